//! From the text of a config to a graph.

use crate::builder::Builder;
use crate::compiled;
use crate::container::Text;
use crate::layer::Keras;
use crate::model::{Model as Structure, keras_of};
use crate::object::Object;
use crate::options::Options;
use crate::reader::{Reader, Shared};
use crate::{LayerSummary, Model};
use memfit_graph::Problem;
use serde_json::Value;

pub(crate) fn import(text: &Text, options: &Options) -> Result<Model, Vec<Problem>> {
    let root = plain(whole(text).map_err(|problem| vec![problem])?);
    let object = Object::read(&root).map_err(|_| {
        let hint = "model.to_json() writes one; a file of weights or of tensors alone holds no architecture";
        vec![Problem::new("file", "expected a Keras model's config, found other JSON").hint(hint)]
    })?;
    let keras = keras_of(&root, text.version.as_deref());
    let shared = Shared::default();
    let reader = Reader { keras, options, shared: &shared, depth: 0 };
    let mut structure = Structure::read(&object, &reader, true, "")?;
    let mut builder = Builder::new(options);
    let inputs = structure.declared_inputs(&builder).map_err(|problem| vec![problem])?;
    let inputs: Vec<_> = inputs.into_iter().map(|(name, spec)| builder.input(&name, spec)).collect();
    let outputs = structure.run(&mut builder, "", &inputs);
    builder.graph.outputs = outputs.iter().map(|f| f.id).collect();
    builder.graph.name = object.name().to_owned();
    builder.problems.extend(builder.graph.too_deep());
    if !builder.problems.is_empty() {
        return Err(builder.problems);
    }
    let unused = options.layers.keys().filter(|key| !is_named(key, &builder.summaries));
    let unused: Vec<Problem> = unused.map(|key| no_such_layer(key)).collect();
    let idle = options
        .layers
        .keys()
        .filter(|key| is_named(key, &builder.summaries) && !builder.told.contains(key.as_str()));
    let unused: Vec<Problem> = unused.into_iter().chain(idle.map(|key| keras_own(key))).collect();
    let custom: Vec<String> =
        builder.uncounted.iter().map(|(path, class)| format!("{path} ({class})")).collect();
    let version = text.version.as_deref().or_else(|| root.get("keras_version").and_then(Value::as_str));
    let producer = match (version, keras) {
        (Some(version), _) => format!("keras {version}"),
        (None, Keras::V2(_)) => "keras 2".into(),
        (None, Keras::V3) => "keras 3".into(),
    };
    Ok(Model {
        graph: builder.graph,
        producer,
        keras: Some(keras),
        layers: builder.summaries,
        compiled: compiled::read(&root),
        warnings: custom.iter().map(|c| uncounted(c)).chain(unused).collect(),
        custom,
    })
}

/// The config with what it was compiled with, where the file keeps that beside it.
fn whole(text: &Text) -> Result<Value, Problem> {
    let mut root = unwrap(parse(&text.json)?);
    let training = text.training.as_ref().and_then(|training| parse(training).ok());
    if let (Some(training), Value::Object(map)) = (training, &mut root) {
        map.entry("compile_config").or_insert_with(|| compiled::of_training(training));
    }
    Ok(root)
}

/// The config with what a file keeps beside it.
pub(crate) fn with_version(text: Text) -> Result<Vec<u8>, Problem> {
    let mut root = whole(&text)?;
    let Some(version) = text.version else { return Ok(text.json) };
    if let Value::Object(map) = &mut root {
        map.insert("keras_version".into(), version.into());
    }
    // JSON that was read can be written.
    Ok(serde_json::to_vec(&root).unwrap_or_default())
}

/// Whether a layer has this path, name or class, its package left out or not.
fn is_named(key: &str, layers: &[LayerSummary]) -> bool {
    layers.iter().any(|l| {
        let (name, class) = (l.path.rsplit('/').next(), l.class.rsplit('>').next());
        l.path == key || l.class == key || name == Some(key) || class == Some(key)
    })
}

fn no_such_layer(key: &str) -> Problem {
    Problem::new(format!("--layer {key}"), "the model has no layer of this name or class")
}

fn keras_own(key: &str) -> Problem {
    Problem::new(
        format!("--layer {key}"),
        "it does nothing: Keras knows this layer, and the file says what it has",
    )
}

fn uncounted(layer: &str) -> Problem {
    let name = layer.split(" (").next().unwrap_or(layer);
    Problem::new(layer, "not one of Keras' own layers, so its parameters are not counted")
        .hint(format!("give their number: --layer {name}:params=1000"))
}

/// Parses the text. The parser bounds the depth of nesting.
fn parse(json: &[u8]) -> Result<Value, Problem> {
    let json = json.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(json);
    let parsed = serde_json::from_slice(json).or_else(|error| {
        // Python writes numbers that JSON does not have.
        serde_json::from_slice(&without_python_numbers(json)).map_err(|_| error)
    });
    parsed.map_err(|error| {
        let message = match error.to_string() {
            deep if deep.starts_with("recursion limit") => {
                "its config is nested too deeply to be read".into()
            }
            error => format!("its config is no JSON: {error}"),
        };
        Problem::new("file", message)
    })
}

/// The text with `NaN` and `Infinity` outside of strings replaced by `null`.
fn without_python_numbers(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let (mut i, mut within) = (0, false);
    while let Some(byte) = json.get(i) {
        let rest = &json[i..];
        let word = [b"NaN" as &[u8], b"-Infinity", b"Infinity"].into_iter().find(|w| rest.starts_with(w));
        match (byte, word) {
            (b'\\', _) if within => {
                out.extend(&rest[..rest.len().min(2)]);
                i += 2;
                continue;
            }
            (b'"', _) => within = !within,
            (_, Some(word)) if !within => {
                out.extend(b"null");
                i += word.len();
                continue;
            }
            _ => {}
        }
        out.push(*byte);
        i += 1;
    }
    out
}

/// The value with what TensorFlow's encoder wraps (`{"class_name": "__tuple__", "items": [3, 3]}`) as plain lists
/// (tf_keras/src/saving/legacy/saved_model/json_utils.py).
fn plain(value: Value) -> Value {
    match value {
        Value::Array(list) => list.into_iter().map(plain).collect(),
        Value::Object(mut map) => {
            let wraps = map.get("class_name").is_some_and(|c| c == "__tuple__" || c == "TensorShape");
            match map.remove("items") {
                Some(items @ Value::Array(_)) if wraps => plain(items),
                items => {
                    map.extend(items.map(|items| ("items".to_owned(), items)));
                    map.into_iter().map(|(key, value)| (key, plain(value))).collect()
                }
            }
        }
        value => value,
    }
}

/// A text that is JSON once more (`json.dump(model.to_json())`), or a model below `model_config`.
fn unwrap(root: Value) -> Value {
    let root = match &root {
        Value::String(text) => serde_json::from_str(text).unwrap_or(root),
        _ => root,
    };
    match root {
        Value::Object(mut map) if !map.contains_key("class_name") && map.contains_key("model_config") => {
            map.remove("model_config").unwrap_or_default()
        }
        root => root,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_python_become_nothing() {
        let value = parse(br#"{"a": NaN, "b": [-Infinity, Infinity], "c": "NaN \" Infinity"}"#).unwrap();
        assert_eq!(value, serde_json::json!({"a": null, "b": [null, null], "c": "NaN \" Infinity"}));
        assert!(parse(br#"{"a": Nan}"#).is_err());
    }

    #[test]
    fn wrapped_tuples_are_lists() {
        let wrapped = serde_json::json!({"a": [{"class_name": "__tuple__", "items": [1, {"class_name": "TensorShape", "items": [null]}]}], "items": [2]});
        assert_eq!(plain(wrapped), serde_json::json!({"a": [[1, [null]]], "items": [2]}));
    }
}
