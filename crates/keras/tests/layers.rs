//! Small models of every layer have the counts, shapes and variables that Keras itself gives them (models/reference/keras_layers.py).

#![allow(clippy::unwrap_used)]

mod common;

use common::{differences, options};
use memfit_keras::import;
use serde_json::Value;

#[test]
fn every_layer_is_what_keras_says() {
    let text = include_str!("../../../models/keras/layers.json");
    let truths: Value = serde_json::from_str(text).unwrap();
    let truths = truths["models"].as_array().unwrap();
    let mut problems = Vec::new();
    for truth in truths {
        let name = truth["model"].as_str().unwrap();
        match import(truth["config"].to_string().as_bytes(), &options(truth)) {
            Ok(model) => problems.extend(differences(&model, truth).iter().map(|d| format!("{name}: {d}"))),
            Err(found) => problems.extend(found.iter().map(|p| format!("{name}: {p}"))),
        }
    }
    assert!(truths.len() > 100 && problems.is_empty(), "{} models:\n{}", truths.len(), problems.join("\n"));
}
