//! Compares an imported model with what Keras itself says of it.

#![allow(clippy::unwrap_used, unreachable_pub)]

use memfit_graph::{Graph, Variable};
use memfit_keras::{Custom, Model, Options};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a user would say of the model: the input of one that was saved unbuilt, the parameters of custom layers.
pub fn options(truth: &Value) -> Options {
    let mut options = Options::default();
    let shape = truth["inputs"][0][1].as_array();
    if let Some(shape) = shape {
        options.inputs.insert(String::new(), shape.iter().map(|d| d.as_u64().unwrap_or(1)).collect());
    }
    for (path, layer) in layers(truth) {
        if layer["weights"].is_array() && layer["class"] == "Scale" {
            let of = |trained: bool| {
                let weights = layer["weights"].as_array().unwrap().iter().filter(|w| w[3] == trained);
                Some(
                    weights
                        .map(|w| {
                            w[1].as_array().unwrap().iter().map(|d| d.as_u64().unwrap()).product::<u64>()
                        })
                        .sum(),
                )
            };
            options.layers.insert(path, Custom { shape: None, params: of(true), state: of(false) });
        }
    }
    options
}

/// All layers of the truth with their paths, those of nested models in the place of the models.
fn layers(truth: &Value) -> Vec<(String, &Value)> {
    fn walk<'a>(layers: &'a Value, path: &str, out: &mut Vec<(String, &'a Value)>) {
        for layer in layers.as_array().into_iter().flatten() {
            let name = layer["name"].as_str().unwrap();
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            if layer["layers"].is_array() {
                walk(&layer["layers"], &path, out);
            } else {
                out.push((path, layer));
            }
        }
    }
    let mut out = Vec::new();
    walk(&truth["layers"], "", &mut out);
    out
}

fn elements(graph: &Graph, weights: impl IntoIterator<Item = memfit_graph::TensorId>, trained: bool) -> u64 {
    let of = |id| {
        let tensor = graph.tensor(id);
        let is = (tensor.variable == Some(Variable::Trainable)) == trained;
        if is { tensor.declared.shape().and_then(|s| s.elements()).unwrap_or(0) } else { 0 }
    };
    weights.into_iter().map(of).sum()
}

/// The last part of a variable's name. What stands before are scopes of the code that made the model; a variable that its layer
/// did not name is called `variable_3`, after how many there were before.
fn own_name(name: &str) -> &str {
    let own = name.trim_end_matches(":0").rsplit('/').next().unwrap();
    if own.starts_with("variable") { "gamma" } else { own }
}

/// Whether two shapes, or lists of them, are the same but for sizes that Keras leaves open: `EinsumDense` writes `None` where
/// its `output_shape` does, though the input tells the size.
fn agree(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| agree(a, b)),
        (_, Value::Null) => true,
        (a, b) => a == b,
    }
}

/// Every difference.
pub fn differences(model: &Model, truth: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let graph = &model.graph;
    let all = || (0..graph.tensors.len()).map(|i| memfit_graph::TensorId(i as u32));
    let stored = || all().filter(|id| graph.tensor(*id).variable.is_some());
    let counts = (elements(graph, stored(), true), elements(graph, stored(), false));
    let expected = (truth["trainable"].as_u64().unwrap(), truth["non_trainable"].as_u64().unwrap());
    if counts != expected {
        problems.push(format!("trainable and not: expected {expected:?}, found {counts:?}"));
    }
    let shape = |s: &memfit_graph::Shape| Value::from(s.dims().iter().map(|d| d.known()).collect::<Vec<_>>());
    let outputs: Vec<Value> = graph
        .outputs
        .iter()
        .map(|id| graph.tensor(*id).declared.shape().map_or(Value::Null, shape))
        .collect();
    if !agree(&Value::from(outputs.clone()), &truth["outputs"]) {
        problems.push(format!("outputs: expected {}, found {outputs:?}", truth["outputs"]));
    }
    let ours: BTreeMap<&str, _> = model.layers.iter().map(|l| (&*l.path, l)).collect();
    for (path, layer) in layers(truth) {
        if layer["class"] == "InputLayer" {
            continue;
        }
        let Some(found) = ours.get(&*path) else {
            problems.push(format!("{path}: not found"));
            continue;
        };
        let shapes: Vec<Value> = found.outputs.iter().map(shape).collect();
        let shapes = if shapes.len() == 1 { shapes[0].clone() } else { Value::from(shapes) };
        let same = if layer["class"] == "EinsumDense" {
            agree(&shapes, &layer["output_shape"])
        } else {
            shapes == layer["output_shape"]
        };
        if !same {
            problems.push(format!("{path}: expected {}, found {shapes}", layer["output_shape"]));
        }
        if layer["class"] == "Scale" {
            continue;
        }
        let variables = |id: &memfit_graph::TensorId| {
            let t = graph.tensor(*id);
            let trained = t.variable == Some(Variable::Trainable);
            let shape = t.declared.shape().map_or(Value::Null, shape);
            format!("{} {shape} {} {trained}", own_name(&t.name), t.declared.dtype().unwrap())
        };
        let mut found: Vec<String> = found.weights.iter().map(variables).collect();
        let named = |w: &Value| {
            format!("{} {} {} {}", own_name(w[0].as_str().unwrap()), w[1], w[2].as_str().unwrap(), w[3])
        };
        let mut expected: Vec<String> =
            layer["weights"].as_array().into_iter().flatten().map(named).collect();
        found.sort();
        expected.sort();
        if found != expected && layer["weights"].is_array() {
            problems.push(format!("{path}: expected {expected:?}, found {found:?}"));
        }
    }
    problems
}
