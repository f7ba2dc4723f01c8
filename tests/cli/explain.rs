//! `memfit explain`.

use crate::models::Builder;
use crate::{file, memfit, memfit_with_input};
use serde_json::json;

const LOG: &str = "Traceback (most recent call last):\n  File \"train.py\", line 9, in forward\nRuntimeError: CUDA out of memory. Tried to allocate 98.00 MiB (GPU 0; 10.92 GiB total capacity; 10.11 GiB already allocated; 66.44 MiB free; 10.31 GiB reserved in total by PyTorch)\n";

#[test]
fn a_dead_run_is_the_negative_finding() {
    let run = memfit(&["explain", &file("explain_dead.log", LOG.as_bytes()), "--format", "json"]);
    let found = run.json();
    assert_eq!((run.code, &found["outcome"]), (1, &json!("out-of-memory")));
    assert_eq!(found["findings"][0]["cause"], json!("step-too-big"));
    assert_eq!(found["findings"][0]["lines"], json!([3]));
    assert_eq!(found["messages"][0]["requested_bytes"], json!(98 << 20));
}

#[test]
fn a_healthy_log_is_fine() {
    let run = memfit_with_input(&["explain", "-"], b"step 1 loss 0.5\n0 OOM events\n");
    assert_eq!(run.code, 0, "{}", run.out);
    assert!(run.out.starts_with("Nothing in this log"));
}

#[test]
fn with_the_model_it_names_the_batch_that_fits() {
    let model = file("explain_conv.onnx", &Builder::conv().bytes());
    let log = file("explain_model.log", LOG.as_bytes());
    let found = memfit(&["explain", &log, &model, "-b", "4", "--format", "json"]).json();
    assert_eq!(found["model"]["batch_size"], json!(4));
    assert!(found["model"]["largest_batch_size"].as_u64().unwrap() > 4);
}

#[test]
fn what_does_nothing_beside_the_model_is_told() {
    let model = file("explain_warned.onnx", &Builder::conv().bytes());
    let log = file("explain_warned.log", LOG.as_bytes());
    let words = ["explain", &log, &model, "-b", "4", "--xla", "--freeze", "nobody*"];
    let text = memfit(&words).out;
    assert!(text.contains("  warning: --xla does nothing"), "{text}");
    let found = memfit(&[&words[..], &["--format", "json"]].concat()).json();
    let warnings = found["model"]["warnings"].to_string();
    assert!(
        warnings.contains("--xla does nothing") && warnings.contains("nobody* matches no parameter"),
        "{warnings}"
    );
}

#[test]
fn what_the_log_says_otherwise_than_the_model_is_told() {
    let model = file("explain_contradicts.onnx", &Builder::conv().bytes());
    let log = file("explain_contradicts.log", format!("batch_size=16\n{LOG}").as_bytes());
    let said = |batch: &[&str]| {
        let args = [&["explain", &log, &model, "--format", "json"], batch].concat();
        memfit(&args).json()["model"]["contradictions"].to_string()
    };
    assert!(!said(&[]).contains("another batch"));
    let given = said(&["-b", "4"]);
    assert!(given.contains("names another batch: 16"), "{given}");
    assert!(given.contains("Tensors held 10.11 GiB when the allocation failed"), "{given}");
    assert!(given.contains("No tensor of the step at a batch of 4"), "{given}");
}

/// TensorFlow's words for a tensor that could not be had.
fn tensor(shape: &str, node: &str) -> String {
    format!(
        "ResourceExhaustedError: OOM when allocating tensor with shape[{shape}] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [[{{{{node {node}}}}}]]\n"
    )
}

#[test]
fn a_tensor_of_the_batch_tells_it_and_a_weights_gradient_does_not() {
    let model = file("explain_tensor.onnx", &Builder::conv().bytes());
    let of = |name: &str, text: String| {
        memfit(&["explain", &file(name, text.as_bytes()), &model, "--format", "json"]).json()["model"].clone()
    };
    let activation = of("explain_activation.log", tensor("24,4,8,8", "model/conv/Conv2D"));
    assert_eq!(activation["batch_size"], json!(24), "{activation}");
    assert_eq!(activation["places"][0]["phase"], json!("forward"), "{activation}");
    // 4x3x3x3 is the convolution's weight: the first dim is no batch.
    let gradient =
        of("explain_gradient.log", tensor("4,3,3,3", "gradient_tape/model/conv/Conv2DBackpropFilter"));
    assert_eq!(gradient["batch_size"], json!(null), "{gradient}");
    assert_eq!(gradient["places"][0]["phase"], json!("backward"), "{gradient}");
}

#[test]
fn the_advice_is_for_the_card_of_the_log() {
    let model = file("explain_advice.onnx", &Builder::conv().bytes());
    let log = file("explain_advice.log", LOG.as_bytes());
    let found = memfit(&["explain", &log, &model, "-b", "4000000", "--format", "json"]).json();
    let largest = found["model"]["largest_batch_size"].as_u64().unwrap();
    assert!(largest > 1000 && largest < 4_000_000, "{found}");
    assert!(!found["model"]["advice"]["changes"].as_array().unwrap().is_empty(), "{found}");
    // A step that fits needs no advice.
    let found = memfit(&["explain", &log, &model, "-b", "4", "--format", "json"]).json();
    assert_eq!(found["model"]["advice"], json!(null));
}

#[test]
fn what_others_hold_of_the_card_is_no_room() {
    let model = file("explain_others.onnx", &Builder::conv().bytes());
    let largest = |name: &str, held: &str| {
        let log = format!(
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 24.00 GiB total capacity; {held} GiB already allocated; 10.44 MiB free; {held} GiB reserved in total by PyTorch)\n"
        );
        let found = memfit(&["explain", &file(name, log.as_bytes()), &model, "--format", "json"]).json();
        found["model"]["largest_batch_size"].as_u64().unwrap()
    };
    let (alone, beside) = (largest("explain_alone.log", "23.00"), largest("explain_beside.log", "2.13"));
    assert!(beside > 0 && beside < alone / 4, "{beside} of {alone}");
}

/// A limit is the allocator's: the card's context is beside it, and what is said of the step and of the largest batch agree.
#[test]
fn a_limit_in_the_log_is_the_allocators() {
    let model = file("explain_limited.onnx", &Builder::conv().bytes());
    let of = |name: &str, allowed: &str, batch: &str| {
        let log = format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 196.00 MiB. GPU 0 has a total capacity of 24.00 GiB of which 120.00 MiB is free. {allowed}Including non-PyTorch memory, this process has 23.70 GiB memory in use. Of the allocated memory 3.61 GiB is allocated by PyTorch, and 241.12 MiB is reserved by PyTorch but unallocated.\n"
        );
        let log = file(name, log.as_bytes());
        let text = memfit(&["explain", &log, &model, "-b", batch]).out;
        let json =
            memfit(&["explain", &log, &model, "-b", batch, "--format", "json"]).json()["model"].clone();
        (json["largest_batch_size"].as_u64().unwrap(), json["verdict"].as_str().unwrap().to_owned(), text)
    };
    let (open, ..) = of("explain_open.log", "", "4");
    let (limited, verdict, text) = of("explain_allowed.log", "6.00 GiB allowed; ", "2000000");
    assert!(limited > open / 5 && limited < open / 3, "{limited} of {open}");
    assert!(verdict == "does-not-fit" && text.contains("that it may take"), "{text}");
    for (name, allowed, largest) in
        [("explain_open.log", "", open), ("explain_allowed.log", "6.00 GiB allowed; ", limited)]
    {
        let (_, verdict, text) = of(name, allowed, &largest.to_string());
        assert!(verdict != "does-not-fit" && !text.contains("more than the"), "{text}");
        let (_, verdict, text) = of(name, allowed, &(largest * 11 / 10).to_string());
        assert!(verdict == "does-not-fit", "{text}");
    }
}

/// Of validation it speaks as of a forward pass, not of the step.
#[test]
fn validation_is_no_step() {
    let file_of_model = file("explain_validation.onnx", &Builder::conv().bytes());
    let said = |name: &str, frame: &str| {
        let log = format!(
            "Epoch 2/10: 5/10 [00:01<00:01]\nTraceback (most recent call last):\n  File \"train.py\", line 90, in validate\n{frame}    out = model(x)\nRuntimeError: CUDA out of memory. Tried to allocate 98.00 MiB (GPU 0; 7.80 GiB total capacity; 6.90 GiB already allocated; 50.56 MiB free; 7.00 GiB reserved in total by PyTorch)\n"
        );
        let log = file(name, log.as_bytes());
        let args = ["explain", &log, &file_of_model, "-b", "64"];
        let json = memfit(&[&args[..], &["--format", "json"]].concat()).json();
        (memfit(&args).out, json["model"].clone())
    };
    let (text, model) = said("explain_validate.log", "");
    assert_eq!((&model["of"], &model["advice"]), (&json!("validation"), &json!(null)));
    assert!(text.contains("The validation batch was 64") && !text.contains("micro-batch"), "{text}");
    assert!(
        model["with_autograd_device_bytes"].as_u64() >= model["predicted_device_bytes"].as_u64(),
        "{model}"
    );
    assert!(model["contradictions"].to_string().contains("autograd was on"), "{model}");
    let decorated = "  File \"torch/utils/_contextlib.py\", line 116, in decorate_context\n";
    let (text, model) = said("explain_no_grad.log", decorated);
    assert_eq!(model["with_autograd_device_bytes"], json!(null), "{text}");
    assert!(text.contains("What helps: outputs taken off the device"), "{text}");
}

#[test]
fn a_log_that_is_not_there_is_bad_input() {
    assert_eq!(memfit(&["explain", "missing.log"]).code, 2);
}
