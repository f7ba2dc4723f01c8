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

#[test]
fn a_log_that_is_not_there_is_bad_input() {
    assert_eq!(memfit(&["explain", "missing.log"]).code, 2);
}
