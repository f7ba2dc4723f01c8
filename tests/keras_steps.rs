//! Keras models read from their configs, against what TensorFlow allocates for a step of each (`models/reference/keras_steps.py`).
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::{Category, Framework, Model, Plan, Precision};
use memfit_graph::Binding;
use serde_json::Value;

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
            ..Plan::default()
        };
        let binding = Binding { batch: step["batch"].as_u64(), ..Binding::default() };
        let timeline = model.estimate(&binding, &plan).unwrap().timeline;
        let estimated = timeline.step_peak().0;
        let allocated = step["step_bytes"].as_u64().unwrap();
        // Grappler turns images around for a GPU, not for the CPU that was traced.
        let turned =
            timeline.storages.iter().filter(|s| timeline.labels[s.label as usize].contains("Transpose"));
        let inputs = timeline.storages.iter().filter(|s| s.category == Category::Input).map(|s| s.bytes);
        let images: u64 = inputs.filter(|bytes| turned.clone().any(|t| t.bytes == *bytes)).map(|b| b.0).sum();
        let range = allocated * (100 - TOLERANCE) / 100..=allocated * (100 + TOLERANCE) / 100 + images;
        if !range.contains(&estimated) {
            off.push(format!("{name}: estimated {estimated}, allocated {allocated}"));
        }
    }
    assert!(off.is_empty(), "{off:#?}");
}
