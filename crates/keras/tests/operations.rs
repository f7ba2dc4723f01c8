//! Every operation of `keras.ops` in a model gives the shapes and dtypes that Keras says (models/reference/keras_operations.py).

#![allow(clippy::unwrap_used)]

use memfit_keras::{Options, import};
use serde_json::{Value, json};

#[test]
fn every_operation_gives_what_keras_says() {
    let text = include_str!("../../../models/keras/operations.json");
    let truths: Value = serde_json::from_str(text).unwrap();
    let truths = truths["cases"].as_array().unwrap();
    let mut problems = Vec::new();
    for truth in truths {
        let case = truth["case"].as_str().unwrap();
        match import(truth["config"].to_string().as_bytes(), &Options::default()) {
            Ok(model) => {
                let of = |id| {
                    let declared = model.graph.tensor(id).declared.as_tensor().unwrap();
                    let dims: Vec<_> =
                        declared.shape.as_ref().unwrap().dims().iter().map(|d| d.known()).collect();
                    json!([dims, declared.dtype.name()])
                };
                let found: Value = model.graph.outputs.iter().map(|id| of(*id)).collect();
                if !agree(&found, &truth["outputs"]) {
                    problems.push(format!("{case}: expected {}, found {found}", truth["outputs"]));
                }
            }
            Err(found) => problems.extend(found.iter().map(|p| format!("{case}: {p}"))),
        }
    }
    assert!(truths.len() > 500 && problems.is_empty(), "{} cases:\n{}", truths.len(), problems.join("\n"));
}

/// Where Keras does not tell a size, any will do.
fn agree(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| agree(a, b)),
        (_, Value::Null) => true,
        (a, b) => a == b,
    }
}
