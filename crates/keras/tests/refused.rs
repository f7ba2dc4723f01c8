//! What Keras refuses in a config is an error that names the attribute, in every layer that has it; what it takes is read.
//!
//! The layers are those of `models/keras/layers.json`; each value was tried in Keras 3.15 (`keras.models.model_from_json`).

#![allow(clippy::unwrap_used)]

use memfit_graph::Variable;
use memfit_keras::{Model, Options, import};
use serde_json::{Value, json};

const LAYERS: &str = include_str!("../../../models/keras/layers.json");

fn models() -> Vec<Value> {
    let all: Value = serde_json::from_str(LAYERS).unwrap();
    all["models"].as_array().unwrap().iter().map(|m| m["config"].clone()).collect()
}

fn read(config: &Value) -> Result<Model, String> {
    let problems = |found: Vec<memfit_graph::Problem>| found.iter().map(|p| format!("{p}\n")).collect();
    import(config.to_string().as_bytes(), &Options::default()).map_err(problems)
}

/// What Keras refuses as this attribute of a layer of this class.
fn refused(class: &str, attribute: &str, value: &Value) -> Vec<Value> {
    let is_window = class.contains("Conv") || class.contains("Pooling");
    match attribute {
        "filters" if class.starts_with("ConvLSTM") => vec![json!(-2), json!("4"), json!(2.5), Value::Null],
        "units"
        | "filters"
        | "input_dim"
        | "output_dim"
        | "num_heads"
        | "key_dim"
        | "head_dim"
        | "num_key_value_heads"
        | "depth_multiplier"
        | "n" => {
            vec![json!(0), json!(-2), json!("4"), json!(2.5), Value::Null]
        }
        "value_dim" => vec![json!(0), json!(-2)],
        "power_iterations" => vec![json!(0), json!(-2), json!("4"), Value::Null],
        "kernel_size" | "strides" | "dilation_rate" | "pool_size" if is_window => {
            let list = value.as_array().cloned().unwrap_or_default();
            let (mut more, zeros) = (list.clone(), vec![json!(0); list.len()]);
            more.push(json!(1));
            vec![json!(more), json!(list[1..]), json!(zeros)]
        }
        "rate" => vec![json!(-0.5), json!(1.5), json!("0.5"), Value::Null],
        "dropout" if class.ends_with("HeadAttention") || class == "GroupQueryAttention" => {
            vec![json!(-0.5), json!(1.5)]
        }
        "sliding_window" => vec![json!(-3), json!("smae")],
        "groups" => vec![json!(0), json!(-2), json!("4")],
        "score_mode" => vec![json!("czqoncat"), json!(""), json!(5)],
        "bias_axes" => vec![json!("dzqe"), json!("")],
        "activation" | "recurrent_activation" => vec![json!(5)],
        "momentum" | "epsilon" if class == "BatchNormalization" => vec![Value::Null],
        "data_format" => vec![json!("czqhannels_last"), json!(5)],
        "dtype" if class == "InputLayer" => vec![json!("fzqloat32"), json!(""), json!(5)],
        "dtype" => vec![json!({"class_name": "DTypePolicy", "config": {"name": 5}})],
        name if name.ends_with("_regularizer") || name.ends_with("_constraint") => {
            vec![json!("smae"), json!(-3)]
        }
        _ => Vec::new(),
    }
}

/// Every object with a class below this one, with the path to its config.
fn objects(value: &Value, path: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            if let (Some(Value::String(class)), Some(config)) = (map.get("class_name"), map.get("config"))
                && config.is_object()
                && !class.starts_with("__")
            {
                found.push((class.clone(), format!("{path}/config")));
            }
            let is_node = |key: &str| key == "inbound_nodes" || key == "build_config";
            for (key, value) in map.iter().filter(|(key, _)| !is_node(key)) {
                let key = key.replace('~', "~0").replace('/', "~1");
                objects(value, &format!("{path}/{key}"), found);
            }
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, v)| objects(v, &format!("{path}/{i}"), found))
        }
        _ => {}
    }
}

#[test]
fn what_keras_refuses_is_an_error_that_names_the_attribute() {
    let (mut tried, mut seen) = (0, std::collections::BTreeSet::new());
    for model in models() {
        let mut found = Vec::new();
        objects(&model, "", &mut found);
        for (class, path) in found {
            let config = model.pointer(&path).unwrap().as_object().unwrap().clone();
            for (attribute, value) in &config {
                for wrong in refused(&class, attribute, value) {
                    if !seen.insert((class.clone(), attribute.clone(), wrong.to_string())) {
                        continue;
                    }
                    let mut mutated = model.clone();
                    mutated.pointer_mut(&path).unwrap()[attribute] = wrong.clone();
                    let problems =
                        read(&mutated).map(|_| ()).expect_err(&format!("{class} {attribute} {wrong}"));
                    let is_named = problems.contains(attribute.as_str()) && problems.contains("expected");
                    assert!(is_named, "{class} {attribute} {wrong}: {problems}");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 500, "{tried}");
}

fn of_layer(layer: Value) -> Result<Model, String> {
    let input = json!({"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 4, 8]}});
    let config = json!({"name": "s", "layers": [input, layer]});
    read(&json!({"module": "keras", "class_name": "Sequential", "config": config}))
}

fn frozen(model: &Model) -> usize {
    model.graph.tensors.iter().filter(|t| t.variable == Some(Variable::Frozen)).count()
}

#[test]
fn what_keras_takes_is_read() {
    let dense = |more: Value| {
        let mut config = json!({"name": "d", "units": 3});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        of_layer(json!({"class_name": "Dense", "config": config}))
    };
    // A correction of rank zero is none, so the kernel stays trained.
    assert_eq!(frozen(&dense(json!({"lora_rank": 0})).unwrap()), 0);
    assert_eq!(frozen(&dense(json!({"lora_rank": 2})).unwrap()), 1);
    for taken in [
        json!({"use_bias": 1}),
        json!({"use_bias": null}),
        json!({"activation": null}),
        json!({"kernel_regularizer": "l2", "kernel_constraint": {"class_name": "Mine", "config": {}}}),
    ] {
        assert!(dense(taken.clone()).is_ok(), "{taken}");
    }
    let conv = |size: Value, padding: &str| {
        let config = json!({"name": "c", "filters": 2, "kernel_size": size, "padding": padding});
        of_layer(json!({"class_name": "Conv1D", "config": config})).is_ok()
    };
    assert!(conv(json!(3), "SAME") && conv(json!([3]), "causal") && !conv(json!([3, 3]), "same"));
    let mut attends = models().into_iter().find(|m| m.to_string().contains("attention_axes")).unwrap();
    let mut found = Vec::new();
    objects(&attends, "", &mut found);
    let (_, path) = found.iter().find(|(class, _)| class == "MultiHeadAttention").unwrap();
    attends.pointer_mut(path).unwrap()["attention_axes"] = Value::Null;
    read(&attends).unwrap();
}

#[test]
fn a_layer_inside_of_another_is_named() {
    let inner = json!({"class_name": "Dense", "config": {"name": "inner", "units": 0}});
    let wrapper = json!({"class_name": "TimeDistributed", "config": {"name": "outer", "layer": inner}});
    let problem = of_layer(wrapper).unwrap_err();
    let expected = "outer (TimeDistributed): in its layer inner (Dense): its config: units: \
        expected a positive whole number, found 0\n";
    assert_eq!(problem, expected);
}
