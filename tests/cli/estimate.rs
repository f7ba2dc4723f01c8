//! `memfit estimate`.

use crate::models::Builder;
use crate::{file, memfit, memfit_with_input, schema};
use serde_json::Value;
use std::path::Path;

/// The estimate as JSON, checked against the schema and for sums.
fn estimate(args: &[&str]) -> Value {
    let run = memfit(&[&["estimate"], args, &["--format", "json"]].concat());
    assert_eq!((run.code, &*run.err), (0, ""), "{args:?}");
    let json = run.json();
    assert_eq!(schema::of("estimate", &json), [""; 0], "{args:?}");
    assert_sums(&json);
    json
}

/// Categories re-add to the peak, and layers to the categories.
fn assert_sums(json: &Value) {
    let state = |v: &Value| v.as_object().unwrap().clone();
    let number = |v: &Value| v.as_u64().unwrap();
    let (peak, breakdown) = (&json["peak"], state(&json["breakdown"]));
    let process = ["allocator_bytes", "context_bytes"];
    let tensors: u64 =
        breakdown.iter().filter(|(k, _)| !process.contains(&&***k)).map(|(_, v)| number(v)).sum();
    assert_eq!(tensors, number(&peak["allocated_bytes"]));
    assert_eq!(tensors + number(&breakdown["allocator_bytes"]), number(&peak["reserved_bytes"]));
    assert_eq!(breakdown.values().map(number).sum::<u64>(), number(&peak["device_bytes"]));
    let layers = json["layers"].as_array().unwrap();
    for (category, total) in &breakdown {
        let sum: u64 = layers.iter().filter_map(|l| l["at_peak"].get(category)).map(number).sum();
        assert!(sum == number(total) || process.contains(&&**category), "{category}: {sum} of {total}");
    }
    let saved: u64 = layers.iter().map(|l| number(&l["saved_bytes"])).sum();
    assert_eq!(saved, number(&json["saved_for_backward_bytes"]));
    let parameters: u64 = layers.iter().map(|l| number(&l["parameters"])).sum();
    let model = &json["model"];
    assert_eq!(parameters, number(&model["parameters_trainable"]) + number(&model["parameters_frozen"]));
}

fn peak(json: &Value) -> u64 {
    json["peak"]["allocated_bytes"].as_u64().unwrap()
}

#[test]
fn a_small_model_is_what_a_hand_count_says() {
    let model = file("estimate_hand.onnx", &Builder::conv().bytes());
    let json = estimate(&[&model, "-b", "2", "--loss", "none"]);
    assert_eq!(json["model"]["parameters_trainable"], 4 * 3 * 3 * 3 + 4);
    assert_eq!(json["plan"]["batch_size"], 2);
    // Autograd keeps the convolution's input (2*3*8*8 floats) and the result of the ReLU (2*4*8*8).
    assert_eq!(json["saved_for_backward_bytes"], (2 * 3 * 8 * 8 + 2 * 4 * 8 * 8) * 4);
    let bytes = |key: &str| json["breakdown"][key].as_u64().unwrap();
    // 432 bytes of weights and 16 of biases, each rounded up to a block of 512; Adam keeps two of each.
    assert_eq!((bytes("parameters_bytes"), bytes("optimizer_bytes")), (1024, 2048));
}

#[test]
fn a_batch_is_the_same_however_it_is_given() {
    let model = file("estimate_ways.onnx", &Builder::conv().bytes());
    let by_flag = estimate(&[&model, "-b", "4"]);
    assert_eq!(estimate(&[&model, "--set", "batch=4"]), by_flag);
    assert_eq!(estimate(&[&model, "--input", "x:4x3x8x8"]), by_flag);
    assert!(peak(&estimate(&[&model, "-b", "64"])) > peak(&by_flag));
}

#[test]
fn plan_flags_reach_the_estimate() {
    let model = file("estimate_plan.onnx", &Builder::conv().bytes());
    let base = ["-b", "64"];
    let with = |flags: &[&str]| estimate(&[&[&*model], &base[..], flags].concat());
    let default = peak(&with(&[]));
    assert!(peak(&with(&["--mode", "infer"])) < default);
    assert!(peak(&with(&["--optimizer", "SGD"])) < default);
    assert!(peak(&with(&["--precision", "bfloat16"])) < default);
    assert_eq!(with(&["--precision", "amp"])["plan"]["precision"], "mixed-fp16");
    let one_of_eight = with(&["--gpus", "8", "--parallel", "fsdp"]);
    assert_eq!(
        (one_of_eight["plan"]["gpus"].as_u64(), one_of_eight["plan"]["parallel"].as_str()),
        (Some(8), Some("zero3"))
    );
    let split = &with(&["--tensor-parallel", "2", "--pipeline-stages", "2"])["plan"];
    assert_eq!((split["gpus"].as_u64(), split["tensor_parallel"].as_u64()), (Some(4), Some(2)));
    assert!(split["parallel"].is_null(), "{split}");
    assert_eq!(with(&["--global-clipnorm", "1"])["plan"]["global_clipnorm"], true);
    let clipped = memfit(&["estimate", &model, "-b", "64", "--global-clipnorm", "1"]);
    assert!(clipped.out.contains(" · gradients clipped"), "{}", clipped.out);
    let frozen = with(&["--freeze", "conv.*"]);
    assert_eq!(frozen["model"]["parameters_trainable"], 0);
    assert_eq!(frozen["plan"]["freeze"][0], "conv.*");
    let warnings = &with(&["--optimizer", "rprop", "--optimizer-impl", "fused"])["warnings"];
    assert!(warnings[0].as_str().unwrap().contains("--optimizer-impl"), "{warnings}");
}

#[test]
fn a_card_gives_a_verdict_and_an_exit_code() {
    let model = file("estimate_card.onnx", &Builder::conv().bytes());
    let run = |batch: &str, flags: &[&str]| {
        let args = [&["estimate", &*model, "-b", batch, "--format", "json"], flags].concat();
        let run = memfit(&args);
        (run.code, run.json())
    };
    let (code, json) = run("8", &["--gpu", "RTX 3090"]);
    assert_eq!((code, json["fit"]["verdict"].as_str()), (0, Some("fits")));
    assert_eq!(json["fit"]["capacity_bytes"], 24_576_u64 << 20);
    let usable = json["fit"]["usable_bytes"].as_u64().unwrap();
    assert_eq!(usable + json["breakdown"]["context_bytes"].as_u64().unwrap(), 24_121 << 20);
    // 1 KiB a sample for each of four tensors and more.
    let (code, json) = run("4000000", &["--gpu", "4GiB"]);
    assert_eq!((code, json["fit"]["verdict"].as_str()), (1, Some("does-not-fit")));
    assert!(json["fit"]["headroom_bytes"].as_i64().unwrap() < 0);
    assert!(
        json["fit"]["shortage"]["request_bytes"].as_u64() > json["fit"]["shortage"]["free_bytes"].as_u64()
    );
    assert_eq!(schema::of("estimate", &json), [""; 0]);
    let others = run("8", &["--gpu", "24GiB", "--other-processes", "20GiB", "--display"]).1;
    assert_eq!(others["fit"]["others"].as_array().unwrap().len(), 2);
    let segments = run("8", &["--allocator-conf", "expandable_segments:True"]).1;
    assert_eq!(segments["plan"]["allocator"]["expandable_segments"], true);
}

#[test]
fn two_hosts_are_compared_component_by_component() {
    let model = file("estimate_hosts.onnx", &Builder::conv().bytes());
    let json =
        estimate(&[&model, "-b", "8", "--gpu", "rtx-3060", "--vs", "gtx-1080-ti, torch 1.12, others 1GiB"]);
    let components = json["comparison"]["components"].as_array().unwrap();
    for key in ["this_bytes", "that_bytes"] {
        let sum = |side: &str| -> u64 {
            components.iter().filter(|c| c["side"] == side).map(|c| c[key].as_u64().unwrap()).sum()
        };
        assert_eq!(sum("has"), sum("off") + sum("usable"), "{key}");
        assert_eq!(sum("needs"), sum("reserved"), "{key}");
    }
    let text = memfit(&["estimate", &model, "-b", "8", "--gpu", "rtx-3060", "--vs", "t4, display"]);
    assert!(text.code == 0 && text.out.contains("Compared"), "{}{}", text.out, text.err);
    // The whole process is judged on both.
    let life = ["--validation-batch", "1000000"];
    let verdict = |gpu: &str, vs: &[&str]| {
        let json = memfit(
            &[&["estimate", &model, "-b", "8", "--format", "json", "--gpu", gpu][..], &life, vs].concat(),
        );
        (json.json()["fit"]["verdict"].clone(), json.json()["comparison"]["fit"]["verdict"].clone())
    };
    let (alone, _) = verdict("2GiB", &[]);
    let (here, there) = verdict("h200", &["--vs", "2GiB"]);
    assert_eq!((&*alone.to_string(), &alone, &*here.to_string()), ("\"does-not-fit\"", &there, "\"fits\""));
    // Words that do nothing there are told, as flags are.
    let idle = estimate(&[&model, "-b", "8", "--gpu", "t4", "--stack", "memory-growth"]);
    assert!(idle["warnings"].to_string().contains("--memory-growth is TensorFlow's"), "{idle}");
    let there = estimate(&[&model, "-b", "8", "--gpu", "t4", "--vs", "t4, limit 1GiB"]);
    assert!(there["warnings"].to_string().contains("--vs: --memory-limit is TensorFlow's"), "{there}");
    // A host is what it is, the first one or the second: TensorFlow's step is compiled on both.
    let flags = ["-b", "8", "--gpu", "t4", "--framework", "pytorch"];
    let needs = |json: &serde_json::Value, key: &str| -> u64 {
        let all = json["comparison"]["components"].as_array().unwrap().clone();
        all.iter().filter(|c| c["side"] == "needs").map(|c| c[key].as_u64().unwrap()).sum()
    };
    let second = estimate(&[&[&*model][..], &flags, &["--vs", "t4, tensorflow"]].concat());
    let first = estimate(&[&model, "-b", "8", "--gpu", "t4", "--stack", "tensorflow", "--vs", "t4"]);
    assert_eq!(needs(&second, "that_bytes"), needs(&first, "this_bytes"));
    let two = memfit(&[&["estimate", &*model][..], &flags, &["--stack", "tensorflow"]].concat());
    assert!(two.code == 2 && two.err.contains("another framework than --framework pytorch"), "{}", two.err);
    let wrong = memfit(&["estimate", &model, "-b", "8", "--gpu", "rtx-3060", "--vs", "t4, cuda 11"]);
    assert!(wrong.code == 2 && wrong.err.contains("known are"), "{}", wrong.err);
}

#[test]
fn another_model_has_the_sizes_that_it_knows_and_the_framework_of_the_process() {
    const LENET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/keras/lenet.keras");
    let conv = file("estimate_beside.onnx", &Builder::conv().bytes());
    let run = |model: &str, other: &str, words: &[&str]| {
        memfit(&[&["estimate", model, "-b", "2", "--with", other, "--format", "json"], words].concat())
    };
    let sequence = file("estimate_sequence.onnx", &Builder::reshape().bytes());
    let beside = run(&sequence, &sequence, &["--set", "seq=6"]);
    assert_eq!(beside.code, 0, "{}", beside.err);
    // What is wrong with the other is told of its file.
    let wrong = run(&conv, &sequence, &[]);
    assert!(wrong.code == 2 && wrong.err.contains("estimate_sequence.onnx"), "{}", wrong.err);
    let part = |json: &serde_json::Value| {
        let parts = json["scenario"]["phases"].as_array().unwrap();
        parts.iter().find(|part| part["name"] == "step of lenet").unwrap()["allocated_bytes"].clone()
    };
    let torch = run(&conv, LENET, &[]).json();
    let same = run(&conv, LENET, &["--framework", "pytorch"]).json();
    assert_eq!(part(&torch), part(&same));
}

#[test]
fn sizes_that_are_needed_and_not_given_are_asked_for() {
    let model = file("estimate_open.onnx", &Builder::conv().bytes());
    let run = memfit(&["estimate", &model]);
    assert_eq!((run.code, &*run.out), (2, ""));
    for word in ["estimate_open.onnx", "batch", "hint:", "-b", "--set"] {
        assert!(run.err.contains(word), "no `{word}` in {}", run.err);
    }
}

#[test]
fn sizes_beyond_any_machine_are_refused_and_never_wrap_around() {
    let model = file("estimate_huge.onnx", &Builder::conv().bytes());
    for batch in ["18446744073709551615", "9223372036854775807", "1000000000000000"] {
        let run = memfit(&["estimate", &model, "-b", batch]);
        assert_eq!((run.code, &*run.out), (2, ""), "{batch}: {}", run.err);
        assert!(!run.err.contains("panicked"), "{batch}: {}", run.err);
    }
    // The largest tensor is 1,024 bytes a sample.
    let peak = peak(&estimate(&[&model, "-b", "1000000000000"]));
    assert!(peak > 1024 * 1_000_000_000_000, "{peak}");
}

#[test]
fn an_unknown_operator_makes_it_not_exact_and_says_so() {
    let mut builder = Builder::conv();
    builder.node("Mystery", "/Mystery", &["y"], "z").domain = "com.example".into();
    builder.output("z");
    let run = memfit_with_input(&["estimate", "-", "-b", "2"], &builder.bytes());
    assert_eq!((run.code, &*run.err), (0, ""));
    for words in ["not exact", "Not exact", "com.example.Mystery"] {
        assert!(run.out.contains(words), "no `{words}` in {}", run.out);
    }
    let run = memfit_with_input(&["estimate", "-", "-b", "2", "--format", "json"], &builder.bytes());
    assert_eq!(run.json()["unknown"], serde_json::json!(["com.example.Mystery"]));
    let on_card = |command| {
        let args = [command, "-", "-b", "2", "--gpu", "t4", "--format", "json"];
        memfit_with_input(&args, &builder.bytes()).json()
    };
    assert_eq!(on_card("fit")["results"][0]["is_partial"], true);
    assert_eq!(on_card("advise")["now"]["is_partial"], true);
}

/// Keras: four means, four variances and the count that `adapt` sets.
#[test]
fn a_count_that_a_layer_has_is_held() {
    let layer = |class: &str, config: &str| format!(r#"{{"class_name": "{class}", "config": {{{config}}}}}"#);
    let layers = [
        layer("InputLayer", r#""batch_shape": [null, 4], "dtype": "float32", "name": "x""#),
        layer("Normalization", r#""name": "norm", "axis": [-1], "mean": null, "variance": null"#),
        layer("Dense", r#""name": "dense", "units": 3"#),
    ];
    let model = format!(
        r#"{{"class_name": "Sequential", "config": {{"name": "m", "layers": [{}]}}, "keras_version": "3.8.0"}}"#,
        layers.join(", ")
    );
    let path = file("state.json", model.as_bytes());
    for framework in ["tensorflow", "pytorch"] {
        let json = estimate(&[&path, "-b", "2", "--framework", framework]);
        assert_eq!(
            (&json["model"]["buffers"], &json["model"]["parameters_trainable"]),
            (&9.into(), &15.into())
        );
        let layers = json["layers"].as_array().unwrap().iter().map(|layer| layer["name"].as_str().unwrap());
        assert_eq!(layers.filter(|name| name.contains("norm")).collect::<Vec<_>>(), ["norm"], "{framework}");
    }
}

#[test]
fn what_is_refused_or_idle_is_said_truly() {
    let model = file("estimate_said.onnx", &Builder::conv().bytes());
    for (flags, says, never) in [
        (&["--framework", "burn", "--ema"][..], "--ema: burn-optim keeps no averaged weights", "master"),
        (&["--framework", "burn", "--optimizer", "adadelta"], "optimizer: Burn's adadelta", "loss:"),
        (&["--freeze", "*"], "no output follows from a trained parameter", "no output to compare"),
        (&["--mode", "infer", "--checkpoint", "block"], "--checkpoint does nothing", "no repeated blocks"),
        (&["--autocast-backward"], "the precision is not a mixed one", "PyTorch's"),
        (&["--no-loss-scale"], "--no-loss-scale does nothing", "--xla"),
    ] {
        let run = memfit(&[&["estimate", &model, "-b", "2"], flags].concat());
        let said = format!("{}{}", run.out, run.err);
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(says) && !words.contains(never), "{flags:?}: {said}");
    }
    let mut one = Builder::default();
    one.node("Relu", "/Relu", &["conv.weight"], "y");
    one.weight("conv.weight", &[1]);
    one.output("y");
    let run = memfit(&["estimate", &file("estimate_one.onnx", &one.bytes()), "-b", "2"]);
    assert!(run.out.contains("1 operator\n"), "{}{}", run.out, run.err);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let model = file("estimate_same.onnx", &Builder::conv().bytes());
    for format in ["text", "json"] {
        let args = ["estimate", &model, "-b", "8", "--format", format];
        assert_eq!(memfit(&args).out, memfit(&args).out);
    }
}

#[test]
fn real_exports_give_sound_documents() {
    let corpus = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus/onnx"));
    let names =
        ["lenet.ts_train", "resnet18.ts_train", "resnet18.dyn_eval", "bert_base.ts_eval", "unet.dyn_train"];
    for name in names {
        let path = corpus.join(format!("{name}.onnx"));
        if !path.exists() {
            println!("skipped: no {}", path.display());
            continue;
        }
        let path = path.to_str().unwrap();
        estimate(&[path, "-b", "2"]);
        estimate(&[path, "-b", "2", "--precision", "mixed-bf16", "--optimizer", "sgd", "--mode", "infer"]);
        let text = memfit(&["estimate", path, "-b", "2", "--depth", "2", "--top", "5"]);
        assert_eq!((text.code, &*text.err), (0, ""), "{name}");
        assert!(text.out.contains("Peak") && text.out.contains("total"), "{}", text.out);
    }
}
