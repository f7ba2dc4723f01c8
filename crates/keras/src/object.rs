//! Serialised Keras objects: `{"module": …, "class_name": …, "config": {…}, "registered_name": …}`.
//!
//! keras/src/saving/serialization_lib.py. Keras 2 writes the class and the config alone, in its later versions all four.

use crate::config::refused;
use crate::functions;
use crate::layer::{Facts, Keras};
use crate::policy::Policy;
use crate::spatial::DataFormat;
use memfit_graph::Penalty;
use serde::Deserialize;
use serde_json::Value;

/// A serialised object, borrowed from the file's JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object<'a> {
    pub(crate) class_name: &'a str,
    pub(crate) module: &'a str,
    pub(crate) registered_name: &'a str,
    pub(crate) config: &'a Value,
    pub(crate) raw: &'a Value,
}

impl<'a> Object<'a> {
    /// Reads the parts; an error says what is missing.
    pub(crate) fn read(raw: &'a Value) -> Result<Object<'a>, String> {
        let text = |key: &str| raw.get(key).and_then(Value::as_str).unwrap_or_default();
        let Some(class_name) = raw.get("class_name").and_then(Value::as_str) else {
            return Err(format!("expected an object with a `class_name`, found {}", kind(raw)));
        };
        let config = raw.get("config").unwrap_or(&Value::Null);
        let (module, registered_name) = (text("module"), text("registered_name"));
        Ok(Object { class_name, module, registered_name, config, raw })
    }

    /// Its name: beside the config in a functional model, else in it.
    pub(crate) fn name(&self) -> &'a str {
        let name = self.raw.get("name").or_else(|| self.config.get("name"));
        name.and_then(Value::as_str).unwrap_or(self.class_name)
    }

    /// Whether it is Keras' own: a module of Keras, or none and no package before the class.
    pub(crate) fn is_builtin(&self) -> bool {
        let of = |package: &str| {
            self.module.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let by_module = of("keras") || of("tf_keras") || of("tensorflow") || of("builtins");
        if self.module.is_empty() { !self.class_name.contains('>') } else { by_module }
    }

    /// The class as messages show it: a custom one with its package.
    pub(crate) fn class(&self) -> &'a str {
        if self.is_builtin() || self.registered_name.is_empty() {
            self.class_name
        } else {
            self.registered_name
        }
    }

    /// Whether it is an operation of `keras.ops` rather than a layer, some of which have the same class name.
    pub(crate) fn is_operation(&self) -> bool {
        self.module.starts_with("keras.src.ops") || self.module.starts_with("keras.ops")
    }

    /// Where its channels stand. What a custom layer means by the word is its own.
    fn data_format(&self) -> Result<Option<DataFormat>, String> {
        let Some(given) = self.config.get("data_format") else { return Ok(None) };
        match DataFormat::deserialize(given) {
            Err(error) if self.is_builtin() => {
                Err(format!("its config: {}", refused("data_format", &error.to_string(), given)))
            }
            read => Ok(read.ok()),
        }
    }

    /// What every layer has.
    pub(crate) fn facts(&self, keras: Keras, within: bool) -> Result<Facts, String> {
        if self.is_builtin() && !self.is_operation() {
            functions::check(self.config, keras)?;
        }
        let trainable = self.config.get("trainable").and_then(Value::as_bool).unwrap_or(true);
        Ok(Facts {
            class: self.class().to_owned(),
            name: self.name().to_owned(),
            trainable: trainable && within,
            policy: Policy::read(self.config.get("dtype"))?,
            keras,
            data_format: self.data_format()?,
            penalties: penalties(self.config),
            activity: match self.class_name {
                "ActivityRegularization" => weighed(self.config),
                _ => self.config.get("activity_regularizer").map_or(Penalty::default(), penalty),
            },
        })
    }
}

/// What a regularizer sums, by its name alone or with its weights. One that is not Keras' own is taken to sum squares.
fn penalty(value: &Value) -> Penalty {
    let class = value.as_str().or_else(|| value.get("class_name")?.as_str()).unwrap_or_default();
    match (class.to_ascii_lowercase().as_str(), value.get("config")) {
        ("", _) => Penalty::default(),
        ("l1" | "l2" | "l1l2" | "l1_l2", Some(config)) => weighed(config),
        ("l1", None) => Penalty { l1: true, l2: false },
        ("l1l2" | "l1_l2", None) => Penalty { l1: true, l2: true },
        _ => Penalty { l1: false, l2: true },
    }
}

/// The sums that weigh anything.
fn weighed(config: &Value) -> Penalty {
    let weighs = |sum: &str| config.get(sum).and_then(Value::as_f64).is_some_and(|weight| weight != 0.0);
    Penalty { l1: weighs("l1"), l2: weighs("l2") }
}

/// What a layer's variables add to the loss (keras/src/regularizers/regularizers.py), those of a layer that it wraps among them.
fn penalties(config: &Value) -> Vec<(String, Penalty)> {
    let own = config.as_object().into_iter().flatten().filter_map(|(key, value)| {
        let of = key.strip_suffix("_regularizer").filter(|of| *of != "activity")?;
        Some((of.to_owned(), penalty(value)))
    });
    let inner = ["layer", "cell"].iter().filter_map(|key| config.get(key)?.get("config"));
    own.chain(inner.flat_map(penalties)).collect()
}

/// What a JSON value is, for messages.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object without one",
    }
}
