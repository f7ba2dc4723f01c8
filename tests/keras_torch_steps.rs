//! Keras models on its PyTorch backend, against what PyTorch allocates for a step of each (`models/reference/keras_torch_steps.py`).
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::{Framework, Model, Plan};
use memfit_graph::Binding;
use serde_json::{Value, json};

/// By how much, in bytes, an estimate may be lower: scalars of the optimizer, the loss and the metrics, of 512 bytes each.
const SCALARS: u64 = 24 << 10;

#[test]
fn steps_hold_what_pytorch_allocates() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/models/reference/keras_torch_steps.json");
    let reference: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut off = Vec::new();
    for step in reference["steps"].as_array().unwrap() {
        let (mut name, options) =
            (format!("{} {} {}", step["model"], step["optimizer"], step["policy"]), &step["options"]);
        if !options.is_null() {
            name += &format!(" {options}");
        }
        let config = step["config"].to_string();
        let imported = memfit_keras::import(config.as_bytes(), &memfit_keras::Options::default()).unwrap();
        let model = Model::new(imported.graph, &name, "keras", 0);
        let plan = Plan {
            framework: Framework::Pytorch,
            optimizer: step["optimizer"].as_str().unwrap().into(),
            as_fake_tensors: true,
            clip_norm: options["global_clipnorm"].is_number(),
            accumulate: options["gradient_accumulation_steps"].as_u64().map_or(1, |k| k as u32),
            ema: options["use_ema"] == true,
            ..Plan::default()
        };
        let binding = Binding { batch: step["batch"].as_u64(), ..Binding::default() };
        let estimate = model.estimate(&binding, &plan).unwrap();
        let (estimated, allocated) = (estimate.peak.allocated.0, step["peak_bytes"].as_u64().unwrap());
        if !(allocated.saturating_sub(SCALARS)..=allocated).contains(&estimated)
            || !estimate.unknown.is_empty()
        {
            off.push(format!("{name}: estimated {estimated}, allocated {allocated} {:?}", estimate.unknown));
        }
    }
    assert!(off.is_empty(), "{off:#?}");
}

#[test]
fn a_function_of_ones_own_is_told_as_a_bound() {
    let layer =
        |class: &str, config: Value| json!({"module": "keras.layers", "class_name": class, "config": config});
    let function = json!({"module": "builtins", "class_name": "function", "config": "mine", "registered_name": "function"});
    let dense =
        |activation: Value| layer("Dense", json!({"name": "dense", "units": 4, "activation": activation}));
    let input = layer("InputLayer", json!({"name": "in", "batch_shape": [null, 8], "dtype": "float32"}));
    for framework in [Framework::Pytorch, Framework::Tensorflow] {
        for (activation, unknown) in [(json!("hard_silu"), 0), (function.clone(), 1)] {
            let layers = json!([input.clone(), dense(activation)]);
            let model = json!({"module": "keras", "class_name": "Sequential", "config": {"name": "m", "layers": layers}});
            let imported =
                memfit_keras::import(model.to_string().as_bytes(), &memfit_keras::Options::default());
            let model = Model::new(imported.unwrap().graph, "m", "keras", 0);
            let binding = Binding { batch: Some(2), ..Binding::default() };
            let plan = Plan { framework, ..Plan::default() };
            let estimate = model.estimate(&binding, &plan).unwrap();
            assert_eq!(estimate.unknown.len(), unknown, "{framework:?} {:?}", estimate.unknown);
        }
    }
}

/// The peak of a step of one recurrent layer over so many steps.
fn peak_of(class: &str, config: &Value, time: u64, batch: u64) -> u64 {
    let layer =
        |class: &str, config: Value| json!({"module": "keras.layers", "class_name": class, "config": config});
    let input = json!({"name": "in", "batch_shape": [null, time, 128], "dtype": "float32"});
    let mut own = json!({"name": "rnn", "units": 128});
    for (key, value) in config.as_object().unwrap() {
        own[key] = value.clone();
    }
    let masking =
        own.as_object_mut().unwrap().remove("masking").map(|_| layer("Masking", json!({"name": "mask"})));
    let layers: Vec<Value> =
        [layer("InputLayer", input)].into_iter().chain(masking).chain([layer(class, own)]).collect();
    let model =
        json!({"module": "keras", "class_name": "Sequential", "config": {"name": "m", "layers": layers}});
    let imported =
        memfit_keras::import(model.to_string().as_bytes(), &memfit_keras::Options::default()).unwrap();
    let model = Model::new(imported.graph, "m", "keras", 0);
    let binding = Binding { batch: Some(batch), ..Binding::default() };
    // Without workspaces, which are as large for any length.
    let plan = Plan { framework: Framework::Pytorch, as_fake_tensors: true, ..Plan::default() };
    model.estimate(&binding, &plan).unwrap().peak.allocated.0
}

#[test]
fn sequences_of_neighbouring_lengths_hold_as_much_a_step() {
    // Of 128 features, and masks of 512 samples: what is smaller than a block of the allocator takes one all the same.
    let relu = json!({"activation": "relu"});
    for (class, config, batch) in [
        ("SimpleRNN", json!({}), 32),
        ("SimpleRNN", json!({"return_sequences": true, "dropout": 0.1}), 1),
        ("SimpleRNN", json!({"masking": true, "go_backwards": true}), 512),
        ("LSTM", json!({"recurrent_dropout": 0.2, "return_sequences": true, "unroll": true}), 4),
        ("LSTM", relu.clone(), 4),
        ("GRU", json!({"activation": "relu", "return_sequences": true}), 4),
    ] {
        // Written out, with a step for each; then folded, of prime and of even lengths.
        let peak = |time: u64| peak_of(class, &config, time, batch);
        let begun = peak(256);
        let each = |time: u64| (peak(time) - begun) as f64 / (time - 256) as f64;
        let written = each(512);
        for time in [513, 1021, 1022, 2003, 2004, 100_003] {
            let folded = each(time);
            assert!(
                (folded / written - 1.0).abs() < 0.02,
                "{class} {config} {batch}: {time} {folded} beside {written}"
            );
        }
        assert!(peak_of(class, &config, 1_000_000_007, 1) > 1_000_000_007, "{class}");
    }
}
