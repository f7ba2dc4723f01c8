//! Keras files on the command line.

use super::usage::fails;
use super::{file, memfit, memfit_with_input};

fn model(name: &str) -> String {
    format!("{}/models/keras/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_container_gives_the_same_model() {
    let shapes = |run: super::Run| run.json()["tensors"].clone();
    let of = |name: &str| shapes(memfit(&["inspect", &model(name), "-b", "4", "--format", "json"]));
    let archive = of("lenet.keras");
    assert_eq!(archive["conv2d"]["shape"], serde_json::json!([4, 28, 28, 6]));
    assert_eq!(archive, of("lenet.h5"));
    let bytes = std::fs::read(model("lenet.keras")).unwrap();
    assert_eq!(archive, shapes(memfit_with_input(&["inspect", "-", "-b", "4", "--format", "json"], &bytes)));
    assert_eq!(of("k2_func_res.json"), of("k2_func_res.h5"));
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("unpacked.keras");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(model("siamese.json"), folder.join("config.json")).unwrap();
    let unpacked = memfit(&["inspect", folder.to_str().unwrap(), "-b", "4", "--format", "json"]);
    assert_eq!(shapes(unpacked), of("siamese.json"));
}

#[test]
fn counts_and_the_framework_are_those_of_keras() {
    let json = memfit(&["estimate", &model("frozen_backbone.keras"), "-b", "2", "--format", "json"]).json();
    assert_eq!(json["plan"]["framework"], "tensorflow");
    let counts = &json["model"];
    assert_eq!((&counts["format"], &counts["parameters_trainable"]), (&"keras".into(), &1290.into()));
    assert_eq!(counts["parameters_frozen"].as_u64().unwrap() + counts["buffers"].as_u64().unwrap(), 288_352);
    let torch =
        memfit(&["estimate", &model("lenet.keras"), "-b", "2", "--framework", "pytorch", "--format", "json"]);
    assert_eq!(torch.json()["plan"]["framework"], "pytorch");
}

#[test]
fn what_a_file_was_compiled_with_applies_where_nothing_is_said() {
    let text = std::fs::read_to_string(model("siamese.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["compile_config"] = serde_json::json!({
        "optimizer": {"module": "keras.optimizers", "class_name": "SGD", "registered_name": null,
                      "config": {"momentum": 0.9, "nesterov": false, "use_ema": true, "gradient_accumulation_steps": 4}},
        "loss": "mse", "metrics": null, "jit_compile": false,
    });
    let compiled = file("compiled.json", config.to_string().as_bytes());
    let of = |words: &[&str]| {
        let json = memfit(&[&["estimate", &compiled, "-b", "4", "--format", "json"], words].concat()).json();
        let plan = ["optimizer", "ema", "accumulate", "loss"].map(|key| json["plan"][key].to_string());
        (
            plan.join(" "),
            json["assumptions"].to_string().contains("as the file was compiled"),
            json["plan"]["xla"].clone(),
        )
    };
    assert_eq!(of(&[]), (r#""momentum" true 4 "mse""#.into(), true, true.into()));
    assert_eq!(of(&["--accumulate", "1"]).0, r#""momentum" true 1 "mse""#);
    // Another optimizer is not the one that has an average of the weights.
    assert_eq!(
        of(&["--optimizer", "adamw", "--loss", "bce"]),
        (r#""adamw" false 1 "bce""#.into(), false, true.into())
    );
}

#[test]
fn keras_3_compiles_a_step_by_itself_and_keras_2_when_it_is_told_to() {
    for (file, words, on) in [
        ("lenet.keras", &[][..], true),
        ("lenet.keras", &["--no-xla"], false),
        ("k2_func_res.h5", &[], false),
        ("k2_func_res.h5", &["--xla"], true),
        // Neither does Keras 3 with a distribution strategy, and TensorFlow's Keras was Keras 2 up to 2.15.
        ("lenet.keras", &["--gpus", "2"], false),
        ("lenet.keras", &["--gpus", "2", "--xla"], true),
        ("lenet.keras", &["--gpu", "t4", "--stack", "tensorflow 2.15"], false),
        ("lenet.keras", &["--gpu", "t4", "--stack", "tensorflow 2.16"], true),
    ] {
        let run =
            memfit(&[&["estimate", &model(file), "-b", "8", "--framework", "tensorflow"], words].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        let said = if on { "XLA is on" } else { "XLA is off" };
        assert!((run.out + &run.err).contains(said), "{file} {words:?}");
    }
}

#[test]
fn tensorflow_gives_each_gpu_the_whole_model() {
    let told = |words: &[&str]| {
        memfit(&[&["estimate", &model("lenet.keras"), "-b", "8", "--gpus", "2"], words].concat())
    };
    let said = "TensorFlow gives each GPU the whole model";
    for (words, warns) in [
        (&[][..], false),
        (&["--parallel", "zero3"], true),
        (&["--parallel", "pp"], true),
        // Nothing of a Keras file is split, and that is what is counted.
        (&["--parallel", "tp"], false),
    ] {
        let run = told(words);
        assert_eq!((run.out + &run.err).contains(said), warns, "{words:?}");
    }
    let split = told(&["--parallel", "tp"]).out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(split.contains("so each GPU has all"), "{split}");
}

#[test]
fn advice_for_keras_on_pytorch_is_written_in_keras() {
    let of = |framework: &str| {
        let words = ["-b", "4096", "--gpu", "1GiB", "--framework", framework, "--code", "--format", "json"];
        memfit(&[&["advise", &model("lenet.keras")], &words[..]].concat()).json()
    };
    let (torch, tensorflow) = (of("pytorch"), of("tensorflow"));
    let snippet = |json: &serde_json::Value, name: &str| {
        let change = json["changes"].as_array().unwrap().iter().find(|change| change["name"] == name);
        change.map(|change| change["snippet"].as_str().unwrap().to_owned())
    };
    for (json, error) in
        [(&torch, "torch.OutOfMemoryError"), (&tensorflow, "tf.errors.ResourceExhaustedError")]
    {
        let code = |name: &str| snippet(json, name).unwrap_or_else(|| panic!("no {name}: {json}"));
        assert!(code("mixed-precision").contains("keras.mixed_precision.set_global_policy"));
        assert!(code("accumulate").contains("gradient_accumulation_steps="));
        assert!(code("retry").contains(error));
    }
    for name in ["fused-optimizer", "channels-last", "checkpoint", "drop-gradients"] {
        assert_eq!(snippet(&torch, name), None);
    }
    // Its layers are named with a slash.
    assert!(snippet(&torch, "freeze").is_some_and(|code| code.contains("layer.name == \"dense_2\"")));
}

#[test]
fn a_policy_in_the_file_stands_before_the_plans_precision() {
    let of = |file: &str, precision: &str| {
        let words = ["estimate", &model(file), "-b", "8", "--precision", precision, "--format", "json"];
        memfit(&words).json()
    };
    let [own, other, none] = [("mixed_per_layer", "fp32"), ("mixed_per_layer", "bf16"), ("lenet", "fp32")]
        .map(|(file, precision)| of(&format!("{file}.keras"), precision));
    assert_eq!(
        (&own["plan"]["precision"], &none["plan"]["precision"]),
        (&"mixed-fp16".into(), &"fp32".into())
    );
    assert!(own["assumptions"].to_string().contains("scales the loss"));
    assert_eq!((&own["peak"], &own["warnings"].to_string()), (&other["peak"], &"[]".to_owned()));
    assert!(other["warnings"].to_string().contains("stands before --precision"));
}

#[test]
fn what_a_file_does_not_say_is_asked_for_and_taken() {
    let unbuilt = model("sequential_unbuilt.keras");
    fails(&memfit(&["estimate", &unbuilt, "-b", "2"]), &["before it was built", "--input"]);
    let json = memfit(&["estimate", &unbuilt, "--input", "2x32x32x3", "--format", "json"]).json();
    assert_eq!(json["model"]["parameters_trainable"], 18_234);
    assert_eq!(json["batch_size"].as_u64().or(json["plan"]["batch_size"].as_u64()), Some(2));
    let custom = model("custom_layer.keras");
    let told =
        memfit(&["estimate", &custom, "-b", "2", "--layer", "scale:params=64,state=1", "--format", "json"])
            .json();
    assert_eq!(
        (&told["model"]["parameters_trainable"], &told["model"]["buffers"]),
        (&2371.into(), &1.into())
    );
    assert!(told["warnings"].as_array().unwrap().is_empty(), "{}", told["warnings"]);
    assert!(told["unknown"].to_string().contains("Scale"), "{}", told["unknown"]);
    let untold = memfit(&["estimate", &custom, "-b", "2", "--format", "json"]).json();
    assert!(untold["warnings"].to_string().contains("--layer scale:params"), "{}", untold["warnings"]);
    let other = memfit(&[
        "inspect",
        &custom,
        "--layer",
        "Scale:params=64",
        "--layer",
        "shift:params=1",
        "--format",
        "json",
    ])
    .json();
    assert_eq!(other["warnings"].as_array().unwrap().len(), 1, "{}", other["warnings"]);
    assert!(other["warnings"].to_string().contains("--layer shift"), "{}", other["warnings"]);
    fails(&memfit(&["estimate", &custom, "--layer", "scale"]), &["--layer", "shape=7x7x64"]);
    let known =
        memfit(&["inspect", &model("lenet.keras"), "--layer", "dense:params=3", "--format", "json"]).json();
    assert!(
        known["warnings"].to_string().contains("--layer dense: it does nothing"),
        "{}",
        known["warnings"]
    );
}

#[test]
fn several_gpus_have_a_batch_each_and_accumulate_nothing() {
    let of = |words: &str| {
        let words: Vec<&str> =
            words.split(' ').chain(["--gpu", "1GiB", "--code", "--format", "json"]).collect();
        memfit(&[&["advise", &model("lenet.keras")], &words[..]].concat()).json()
    };
    let code = |json: &serde_json::Value, name: &str| {
        let change = json["changes"].as_array().unwrap().iter().find(|change| change["name"] == name);
        change.map(|change| (change["title"].to_string(), change["snippet"].as_str().unwrap().to_owned()))
    };
    assert!(
        code(&of("-b 4096"), "accumulate").is_some() && code(&of("-b 4096 --gpus 4"), "accumulate").is_none()
    );
    let size = |snippet: &str| -> u64 {
        let (_, rest) = snippet.split_once("validation_batch_size=").unwrap();
        rest.split_once(')').unwrap().0.parse().unwrap()
    };
    let (title, snippet) = code(&of("-b 64 --validation-batch 8192 --gpus 4"), "validation-batch").unwrap();
    let each: u64 = title.split(|c: char| !c.is_ascii_digit()).find_map(|n| n.parse().ok()).unwrap();
    assert!(size(&snippet) == 4 * each && snippet.contains("all 4 GPUs"), "{title}: {snippet}");
    let (_, alone) = code(&of("-b 64 --validation-batch 8192"), "validation-batch").unwrap();
    assert!(!alone.contains("GPUs"), "{alone}");
    let told = memfit(&[
        "estimate",
        &model("lenet.keras"),
        "-b",
        "8",
        "--gpus",
        "2",
        "--accumulate",
        "2",
        "--format",
        "json",
    ]);
    assert!(told.json()["warnings"].to_string().contains("MirroredStrategy"), "{}", told.out);
}

#[test]
fn a_difference_across_formats_is_one_of_the_models() {
    let onnx = format!("{}/models/lenet.ts_train.onnx", env!("CARGO_MANIFEST_DIR"));
    let diff = |old: &str, new: &str, more: &[&str]| {
        memfit(&[&["diff", old, new, "-b", "8", "--format", "json"], more].concat()).json()
    };
    let frameworks =
        |json: &serde_json::Value| [json["old_framework"].clone(), json["new_framework"].clone()];
    let keras = model("lenet.keras");
    for (old, new, more, framework, warns) in [
        (&onnx, &keras, &[][..], "pytorch", true),
        (&keras, &onnx, &[], "tensorflow", true),
        (&keras, &onnx, &["--framework", "pytorch"], "pytorch", false),
        (&onnx, &onnx, &[], "pytorch", false),
    ] {
        let found = diff(old, new, more);
        assert_eq!(frameworks(&found), [framework; 2]);
        let warnings = found["warnings"].to_string();
        assert_eq!(warnings.contains(&format!("both are estimated under {framework}")), warns, "{warnings}");
    }
    let mixed = diff(&keras, &model("k2_func_res.h5"), &[]);
    assert!(mixed["warnings"].to_string().contains("compiled with XLA"), "{}", mixed["warnings"]);
}

#[test]
fn a_model_that_is_code_has_two_ways_out() {
    let subclassed =
        r#"{"module": "mine", "class_name": "Net", "registered_name": "lab>Net", "config": {"units": 3}}"#;
    let path = file("subclassed.json", subclassed.as_bytes());
    fails(
        &memfit(&["estimate", &path, "-b", "2"]),
        &["subclassed.json", "lab>Net", "functional API", "ONNX"],
    );
}

/// What Keras keeps for backward on its PyTorch backend, to the byte (models/reference/keras_torch.py).
#[test]
fn the_pytorch_backend_keeps_what_keras_says() {
    let truths: serde_json::Value =
        serde_json::from_str(include_str!("../../models/keras/torch.json")).unwrap();
    for truth in truths["models"].as_array().unwrap() {
        let name = truth["model"].as_str().unwrap();
        let path = super::file(&format!("torch-{name}.json"), truth["config"].to_string().as_bytes());
        let batch = truth["batch"].to_string();
        let options = ["--framework", "pytorch", "--loss", "none", "--format", "json", "-b", &batch];
        let estimate = memfit(&[&["estimate", &path][..], &options].concat()).json();
        assert_eq!(estimate["unknown"], serde_json::json!([]), "{name}");
        assert_eq!(estimate["saved_for_backward_bytes"], truth["saved_bytes"], "{name}");
    }
}
