//! Damaged and hostile files are errors with a message, never a panic, and ask for little.

#![allow(clippy::unwrap_used)]

use memfit_graph::Binding;
use memfit_keras::{Options, import};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::io::{Cursor, Write};
use std::sync::LazyLock;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

const LAYERS: &str = include_str!("../../../models/keras/layers.json");
const OPERATIONS: &str = include_str!("../../../models/keras/operations.json");

static CONFIGS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let of = |text: &str, list: &str| -> Vec<Value> {
        let all: Value = serde_json::from_str(text).unwrap();
        all[list].as_array().unwrap().iter().map(|m| m["config"].clone()).collect()
    };
    [of(LAYERS, "models"), of(OPERATIONS, "cases")].concat()
});

fn problem(bytes: &[u8]) -> String {
    let problems = import(bytes, &Options::default()).unwrap_err();
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn archive(entries: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        zip.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn a_file_that_is_cut_anywhere_is_an_error() {
    for file in ["lenet.keras", "lenet.h5", "siamese.json"] {
        let path = format!("{}/../../models/keras/{file}", env!("CARGO_MANIFEST_DIR"));
        let whole = std::fs::read(path).unwrap();
        assert!(import(&whole, &Options::default()).is_ok(), "{file}");
        for at in (0..whole.len().saturating_sub(1)).step_by(97) {
            // An HDF5 file's tail is weights, which nobody reads.
            let result = import(&whole[..at], &Options::default());
            assert!(result.is_err() || file.ends_with(".h5"), "{file} cut at {at}");
        }
    }
}

#[test]
fn a_bomb_is_not_inflated() {
    let zeros = vec![b' '; 64 << 20];
    let bomb = archive(&[("config.json", &zeros)], CompressionMethod::Deflated);
    assert!(bomb.len() < 100_000);
    assert!(problem(&bomb).contains("at most 16 MiB"));
    assert!(problem(&archive(&[("weights.h5", b"x")], CompressionMethod::Stored)).contains("config.json"));
}

#[test]
fn nesting_and_sizes_have_limits() {
    let deep = "[".repeat(1 << 20);
    assert!(problem(format!("{{\"class_name\":{deep}").as_bytes()).contains("nested too deeply"));
    let mut nested = json!({"class_name": "Dense", "config": {"name": "d", "units": 1}});
    for _ in 0..20 {
        nested = json!({"class_name": "TimeDistributed", "config": {"name": "t", "layer": nested}});
    }
    let model = |layer: Value| {
        let input = json!({"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 4, 4]}});
        json!({"module": "keras", "class_name": "Sequential", "config": {"name": "s", "layers": [input, layer]}}).to_string()
    };
    assert!(problem(model(nested).as_bytes()).contains("nested deeper"));
    let dense = |units: Value| model(json!({"class_name": "Dense", "config": {"name": "d", "units": units}}));
    assert!(import(dense(json!(u64::MAX)).as_bytes(), &Options::default()).is_ok());
    assert!(problem(dense(json!(-1)).as_bytes()).contains("its config"));
    let flat = |n: u64| {
        let input = json!({"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, n, n]}});
        let flatten = json!({"class_name": "Flatten", "config": {"name": "f"}});
        json!({"class_name": "Sequential", "config": {"name": "s", "layers": [input, flatten]}}).to_string()
    };
    assert!(problem(flat(u64::MAX).as_bytes()).contains("out of range"));
}

#[test]
fn a_cycle_and_a_name_that_is_none_are_told() {
    let dense = |name: &str, from: &str| json!({"class_name": "Dense", "name": name, "config": {"name": name, "units": 2}, "inbound_nodes": [[[from, 0, 0, {}]]]});
    let input = json!({"class_name": "InputLayer", "name": "x", "config": {"name": "x", "batch_input_shape": [null, 2]}, "inbound_nodes": []});
    let model = |layers: Vec<Value>| {
        json!({"class_name": "Functional", "config": {"name": "f", "layers": layers, "input_layers": [["x", 0, 0]], "output_layers": [["b", 0, 0]]}}).to_string()
    };
    let cycle = model(vec![input.clone(), dense("a", "b"), dense("b", "a")]);
    assert!(problem(cycle.as_bytes()).contains("its own output"));
    let missing = model(vec![input.clone(), dense("a", "nobody"), dense("b", "a")]);
    assert!(problem(missing.as_bytes()).contains("`nobody`"));
    let twice = model(vec![input, dense("b", "x"), dense("b", "x")]);
    assert!(problem(twice.as_bytes()).contains("two layers"));
}

#[test]
fn models_that_multiply_end() {
    let mut inner = json!({"class_name": "Activation", "config": {"name": "a", "activation": "relu"}});
    for i in 0..24 {
        let input = json!({"class_name": "InputLayer", "name": "x", "config": {"name": "x", "batch_shape": [null, 2]}, "inbound_nodes": []});
        let mut layer = inner.clone();
        let name = layer["config"]["name"].clone();
        layer["name"] = name.clone();
        layer["inbound_nodes"] = json!([[["x", 0, 0, {}]], [[name, 0, 0, {}]]]);
        inner = json!({"class_name": "Functional", "config": {"name": format!("m{i}"), "layers": [input, layer],
            "input_layers": [["x", 0, 0]], "output_layers": [[name, 1, 0]]}});
    }
    assert!(problem(inner.to_string().as_bytes()).contains("layer calls"));
}

#[test]
fn what_is_no_model_says_what_to_do() {
    assert!(problem(b"").contains("empty"));
    assert!(problem(b"\x08\x01hello").contains("model.save"));
    assert!(problem(b"{\"weights\": []}").contains("to_json"));
    let subclassed = json!({"module": "mine", "class_name": "MyModel", "registered_name": "lab>MyModel", "config": {"units": 4}});
    let message = problem(subclassed.to_string().as_bytes());
    assert!(message.contains("functional API") && message.contains("ONNX"), "{message}");
}

/// Imports, and infers under some bindings what can be imported.
fn try_all(bytes: &[u8]) {
    if let Ok(model) = import(bytes, &Options::default()) {
        for batch in [None, Some(1), Some(u64::MAX)] {
            let _ = memfit_graph::infer(&model.graph, &Binding { batch, ..Binding::default() });
        }
    }
}

/// A leaf of the JSON replaced by something else.
fn mutate(value: &mut Value, at: &mut usize, with: &Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|v| mutate(v, at, with)),
        Value::Object(map) => map.values_mut().for_each(|v| mutate(v, at, with)),
        _ => {}
    }
    if *at == 0 {
        *value = with.clone();
    }
    *at = at.wrapping_sub(1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_value_in_a_config_makes_it_panic(model in 0usize..4000, at in 0usize..400, with in prop_oneof![
        Just(json!(null)), Just(json!(0)), Just(json!(-1)), Just(json!(u64::MAX)), Just(json!(i64::MIN)), Just(json!(1e300)), Just(json!("x")),
        Just(json!([])), Just(json!({})), Just(json!([1, 2, 3, 4, 5])), Just(json!(true)), Just(json!([[1, 2], [3, 4]])),
    ]) {
        let mut config = CONFIGS[model % CONFIGS.len()].clone();
        let mut at = at;
        mutate(&mut config, &mut at, &with);
        try_all(config.to_string().as_bytes());
    }

    #[test]
    fn no_byte_in_a_file_makes_it_panic(at in 0usize..4096, byte: u8, file in 0usize..2) {
        let path = format!("{}/../../models/keras/{}", env!("CARGO_MANIFEST_DIR"), ["lenet.h5", "lenet.keras"][file]);
        let mut bytes = std::fs::read(path).unwrap();
        let at = at % bytes.len();
        bytes[at] = byte;
        try_all(&bytes);
    }
}
