//! What a Keras file does not say and its importer has to be told: the input of a model that was saved before it was built, and
//! custom layers, typed as the command line takes them: `scale:shape=7x7x64,params=1000,state=2`.

use super::{State, read_shape};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

impl State {
    /// All of it, under the keys of a plan.
    pub(crate) fn told(&self) -> String {
        let layers = self.layers.iter().filter_map(|(name, what)| Some((name.clone(), layer(what)?)));
        let layers: Map<String, Value> = layers.collect();
        json!({"input": self.input, "layer": layers}).to_string()
    }
}

/// What is said of one layer; nothing where it is not understood.
fn layer(what: &str) -> Option<Value> {
    let mut said = Map::new();
    for part in what.split(',') {
        let (key, value) = part.split_once('=')?;
        let value = match key {
            "shape" => json!(read_shape(value)?),
            "params" | "state" => json!(value.parse::<u64>().ok()?),
            _ => return None,
        };
        said.insert(key.into(), value);
    }
    Some(Value::Object(said))
}

/// Reads what was typed of several layers, with spaces between.
///
/// # Errors
/// What was expected.
pub(crate) fn read_layers(text: &str) -> Result<BTreeMap<String, String>, String> {
    let one = |word: &str| {
        let (name, what) =
            word.rsplit_once(':').filter(|(name, what)| !name.is_empty() && layer(what).is_some())?;
        Some((name.to_owned(), what.to_owned()))
    };
    let expected = |word| format!("expected scale:shape=7x7x64,params=1000,state=2, found {word}");
    text.split_whitespace().map(|word| one(word).ok_or_else(|| expected(word))).collect()
}

/// The same as it was typed.
pub(crate) fn layers(said: &BTreeMap<String, String>) -> String {
    said.iter().map(|(name, what)| format!("{name}:{what}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_typed_as_on_the_command_line() {
        let text = "a:b:shape=7x7x64,params=1000 scale:state=2";
        let said = read_layers(text).unwrap();
        assert_eq!((said.len(), &*layers(&said)), (2, text));
        let state = State { layers: said, input: [("x".into(), vec![8, 3])].into(), ..State::default() };
        assert_eq!(
            state.told(),
            r#"{"input":{"x":[8,3]},"layer":{"a:b":{"params":1000,"shape":[7,7,64]},"scale":{"state":2}}}"#
        );
        for wrong in ["scale", ":params=1", "scale:params=-1", "scale:size=1", "scale:shape=7x"] {
            assert!(read_layers(wrong).unwrap_err().ends_with(wrong), "{wrong}");
        }
    }
}
