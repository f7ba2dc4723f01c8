//! Keras models read from their configs, against what TensorFlow allocates for a step of each (`models/reference/keras_steps.py`), and what XLA
//! assigns to one (`keras_xla_steps.py`).
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::{Framework, Loss, Model, Plan, Precision};
use memfit_graph::Binding;
use serde_json::{Value, json};

/// By how much, in hundredths, an estimate may differ: the executor's order is one of several.
const TOLERANCE: u64 = 4;

#[test]
fn steps_hold_what_tensorflow_allocates() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/models/reference/keras_steps.json");
    let reference: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut off = Vec::new();
    for step in reference["steps"].as_array().unwrap() {
        let name = format!("{} {}", step["model"], step["policy"]);
        let config = step["config"].to_string();
        let imported = memfit_keras::import(config.as_bytes(), &memfit_keras::Options::default()).unwrap();
        let model = Model::new(imported.graph, &name, "keras", 0);
        let is_mixed = step["policy"] == "mixed_float16";
        let plan = Plan {
            framework: Framework::Tensorflow,
            precision: if is_mixed { Precision::MixedFp16 } else { Precision::Fp32 },
            optimizer: step["optimizer"].as_str().unwrap().into(),
            xla: false,
            loss_scale: false,
            as_fake_tensors: true,
            ..Plan::default()
        };
        let binding = Binding { batch: step["batch"].as_u64(), ..Binding::default() };
        let estimated = model.estimate(&binding, &plan).unwrap().timeline.step_peak().0;
        let allocated = step["step_bytes"].as_u64().unwrap();
        let range = allocated * (100 - TOLERANCE) / 100..=allocated * (100 + TOLERANCE) / 100;
        if !range.contains(&estimated) {
            off.push(format!("{name}: estimated {estimated}, allocated {allocated}"));
        }
    }
    assert!(off.is_empty(), "{off:#?}");
}

#[test]
fn steps_under_xla_hold_what_it_assigns() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/models/reference/keras_xla_steps.json");
    let reference: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut errors = Vec::new();
    for step in reference["steps"].as_array().unwrap() {
        let config = step["config"].to_string();
        let imported = memfit_keras::import(config.as_bytes(), &memfit_keras::Options::default()).unwrap();
        let model = Model::new(imported.graph, "model", "keras", 0);
        let plan = Plan {
            framework: Framework::Tensorflow,
            precision: match step["policy"].as_str().unwrap() {
                "mixed_float16" => Precision::MixedFp16,
                "mixed_bfloat16" => Precision::MixedBf16,
                _ => Precision::Fp32,
            },
            optimizer: step["optimizer"].as_str().unwrap().into(),
            loss: if step["loss"] == "mse" { Loss::Mse } else { Loss::CrossEntropy },
            xla: true,
            ..Plan::default()
        };
        let binding = Binding { batch: step["batch"].as_u64(), ..Binding::default() };
        let estimated = model.estimate(&binding, &plan).unwrap().peak.allocated.0;
        let assigned = step["step_bytes"].as_u64().unwrap();
        errors.push((estimated.abs_diff(assigned) * 1000 / assigned, step["model"].to_string(), estimated));
    }
    errors.sort();
    // In thousandths: which chains XLA fuses is a matter of its cost model, so that no step is exact.
    let at = |hundredths: usize| errors[(errors.len() * hundredths).div_ceil(100) - 1].0;
    assert!(at(50) <= 50 && at(90) <= 150 && errors.last().unwrap().0 <= 300, "{errors:#?}");
}

/// An encoder whose last states a decoder begins with, both LSTM with this config.
fn encoder_and_decoder(units: u64, more: Value) -> Model {
    let input = |name: &str| {
        json!({"class_name": "InputLayer", "name": name, "inbound_nodes": [],
               "config": {"name": name, "batch_shape": [null, 6, 5], "dtype": "float32"}})
    };
    let history = |name: &str, index: u64| {
        let shape = if index > 0 { json!([null, units]) } else { json!([null, 6, 5]) };
        json!({"class_name": "__keras_tensor__",
               "config": {"shape": shape, "dtype": "float32", "keras_history": [name, 0, index]}})
    };
    let lstm = |name: &str, args: Value, kwargs: Value, states: bool| {
        let mut config = json!({"name": name, "units": units, "return_state": states, "dtype": "float32"});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"class_name": "LSTM", "name": name, "config": config,
               "inbound_nodes": [{"args": args, "kwargs": kwargs}]})
    };
    let states = json!([history("encoder", 1), history("encoder", 2)]);
    let config = json!({"class_name": "Functional", "config": {"name": "functional", "layers": [
        input("a"), input("b"),
        lstm("encoder", json!([history("a", 0)]), json!({}), true),
        lstm("decoder", json!([history("b", 0)]), json!({"initial_state": states}), false),
    ], "input_layers": [["a", 0, 0], ["b", 0, 0]], "output_layers": [["decoder", 0, 0]]},
    "keras_version": "3.15.1"});
    let imported = memfit_keras::import(config.to_string().as_bytes(), &memfit_keras::Options::default());
    Model::new(imported.unwrap().graph, "functional", "keras", 0)
}

#[test]
fn an_encoder_learns_through_the_states_that_it_gives() {
    let plan = Plan { framework: Framework::Tensorflow, optimizer: "adam".into(), ..Plan::default() };
    let binding = Binding { batch: Some(2), ..Binding::default() };
    for more in [json!({}), json!({"use_cudnn": false}), json!({"unroll": true})] {
        let model = encoder_and_decoder(4, more.clone());
        let estimate = model.estimate(&binding, &plan).unwrap();
        let row = |name: &str| estimate.layers.iter().find(|row| &*row.name == name).unwrap();
        // Only what has a gradient has slots.
        assert!(["encoder", "decoder"].iter().all(|name| row(name).optimizer_bytes.0 > 0), "{more}");
        assert!(estimate.unknown.is_empty(), "{more}: {:?}", estimate.unknown);
    }
}

#[test]
fn a_gradient_flows_through_an_augmentation() {
    let plan = Plan { framework: Framework::Tensorflow, optimizer: "adam".into(), ..Plan::default() };
    let binding = Binding { batch: Some(2), ..Binding::default() };
    for (class, factor, is_known) in [("RandomBrightness", 0.2, true), ("RandomContrast", 0.2, false)] {
        let layers = json!([
            {"class_name": "InputLayer", "config": {"name": "i", "batch_shape": [null, 16, 16, 3]}},
            {"class_name": "Conv2D", "config": {"name": "before", "filters": 4, "kernel_size": 3}},
            {"class_name": class, "config": {"name": "augmentation", "factor": factor}},
            {"class_name": "Conv2D", "config": {"name": "after", "filters": 4, "kernel_size": 3}},
        ]);
        let config = json!({"class_name": "Sequential", "config": {"name": "m", "layers": layers}, "keras_version": "3.15.1"});
        let imported = memfit_keras::import(config.to_string().as_bytes(), &memfit_keras::Options::default());
        let model = Model::new(imported.unwrap().graph, "m", "keras", 0);
        let estimate = model.estimate(&binding, &plan).unwrap();
        let row = estimate.layers.iter().find(|row| &*row.name == "before").unwrap();
        assert!(row.optimizer_bytes.0 > 0, "{class}");
        assert_eq!(estimate.unknown.is_empty(), is_known, "{class}: {:?}", estimate.unknown);
    }
}

#[test]
fn a_model_that_runs_on_cudnn_is_not_compiled() {
    let plan = Plan { framework: Framework::Tensorflow, xla: true, ..Plan::default() };
    let binding = Binding { batch: Some(2), ..Binding::default() };
    let is_off = |more: Value| {
        let estimate = encoder_and_decoder(4, more).estimate(&binding, &plan).unwrap();
        estimate.assumptions.iter().any(|said| said.starts_with("XLA is off"))
    };
    assert!(is_off(json!({})));
    // What cuDNN cannot run it is asked about all the same (lstm.py, `supports_jit`).
    assert!(is_off(json!({"recurrent_dropout": 0.5})));
    assert!(!is_off(json!({"use_cudnn": false})));
    assert!(!is_off(json!({"activation": "relu"})));
}
