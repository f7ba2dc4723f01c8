//! A change of a plan, under the keys that a plan in JSON has, made in the state of the page. Advice comes so.

use super::{AMOUNTS, FLAGS, State};
use serde_json::{Map, Value};

/// Keys of a plan that [`State::apply`] takes, beside those of numbers and flags.
const KEYS: [&str; 11] = [
    "batch_size",
    "other_processes_bytes",
    "accumulate",
    "parallel",
    "precision",
    "optimizer",
    "optimizer_impl",
    "checkpoint",
    "freeze",
    "set",
    "input",
];

/// Whether the page has a control for all that a change says.
pub(crate) fn can_apply(change: &Map<String, Value>) -> bool {
    let has_control = |key: &str| {
        KEYS.contains(&key) || AMOUNTS.iter().any(|n| n.is(key)) || FLAGS.iter().any(|f| f.key == key)
    };
    !change.is_empty() && change.keys().all(|key| has_control(key))
}

impl State {
    /// Takes what a change says; keys that the page has no control for are left out.
    pub(crate) fn apply(&mut self, change: &Map<String, Value>) {
        self.apply_amounts(change);
        for (key, value) in change {
            match (&**key, value) {
                ("batch_size", Value::Number(n)) => self.batch = n.as_u64().unwrap_or(self.batch).max(1),
                ("other_processes_bytes", Value::Number(n)) => {
                    self.others = n.as_u64().unwrap_or_default() >> 20;
                }
                ("accumulate", Value::Number(n)) => {
                    self.accumulate = n.as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(1).max(1);
                }
                ("parallel", Value::String(word)) => {
                    self.sharing = if word == "ddp" { String::new() } else { word.clone() };
                }
                ("precision", Value::String(word)) => self.precision.clone_from(word),
                ("optimizer", Value::String(word)) => self.optimizer.clone_from(word),
                ("optimizer_impl", Value::String(word)) => self.optimizer_impl.clone_from(word),
                ("checkpoint", Value::String(word)) => self.checkpoint.clone_from(word),
                ("freeze", Value::Array(globs)) => {
                    self.freeze = globs.iter().filter_map(|g| g.as_str().map(str::to_owned)).collect();
                }
                ("set", Value::Object(sizes)) => {
                    let sizes = sizes.iter().filter_map(|(name, n)| Some((name.clone(), n.as_u64()?)));
                    self.set.extend(sizes);
                }
                ("input", Value::Object(shapes)) => {
                    let dims =
                        |v: &Value| v.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>();
                    let shapes = shapes.iter().filter_map(|(name, v)| Some((name.clone(), dims(v)?)));
                    self.input.extend(shapes);
                }
                ("allocator", Value::Object(settings)) => {
                    let on = |key: &str| settings.get(key) == Some(&Value::Bool(true));
                    self.turn("expandable", on("expandable_segments"));
                    self.turn("growth", on("memory_growth"));
                    self.turn("async-pool", on("cuda_malloc_async"));
                }
                (key, Value::Bool(on)) => self.set_flag(key, *on),
                _ => {}
            }
        }
    }

    /// Turns the flag with this key of a plan.
    fn set_flag(&mut self, key: &str, on: bool) {
        let known = FLAGS.iter().find(|flag| flag.key == key);
        if let Some(flag) = known {
            self.turn(flag.word, on == (flag.value == "true"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_is_made_in_the_state() {
        let mut state = State { batch: 64, others: 500, ..State::default() };
        state.turn("display", true);
        let Value::Object(mut change) = json!({
            "batch_size": 16, "accumulate": 4, "precision": "mixed-bf16", "freeze": ["a.*"], "set": {"seq": 256},
            "input": {"x": [16, 3, 112, 112]}, "allocator": {"expandable_segments": true}, "other_processes_bytes": 0,
            "display": false, "keep_gradients": true, "xla": false, "nothing": [1], "validation_batch": 8,
        }) else {
            panic!()
        };
        state.apply(&change);
        let mut expected = State {
            batch: 16,
            accumulate: 4,
            precision: "mixed-bf16".into(),
            freeze: vec!["a.*".into()],
            ..State::default()
        };
        expected.set.insert("seq".into(), 256);
        expected.count("validation", 8);
        expected.input.insert("x".into(), vec![16, 3, 112, 112]);
        for word in ["expandable", "keep-gradients", "no-xla"] {
            expected.turn(word, true);
        }
        assert_eq!(state, expected);
        assert!(!can_apply(&change) && !can_apply(&Map::new()));
        change.remove("nothing");
        assert!(can_apply(&change));
        for (change, has_control) in [(json!({"tensor_parallel": 2}), true), (json!({"loss": "mse"}), false)]
        {
            assert_eq!(can_apply(change.as_object().unwrap()), has_control, "{change}");
        }
    }
}
