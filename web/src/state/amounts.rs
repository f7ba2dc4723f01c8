//! What is a number and none at first: how a link, the command line and a plan in JSON say it, and when it means anything.

use super::{State, Where};
use serde_json::{Map, Value, json};

/// Something that is counted where it is there at all.
pub(crate) struct Amount {
    /// In links, and as the field's id.
    pub(crate) word: &'static str,
    pub(crate) label: &'static str,
    pub(crate) note: &'static str,
    /// On the command line, with what follows the number.
    typed: (&'static str, &'static str),
    /// In a plan; of a size, the object that it is in.
    key: &'static str,
    within: Option<&'static str>,
    pub(crate) means: Where,
}

const fn count(
    word: &'static str,
    label: &'static str,
    note: &'static str,
    typed: &'static str,
    key: &'static str,
    means: Where,
) -> Amount {
    Amount { word, label, note, typed: (typed, ""), key, within: None, means }
}

/// All of them, in the order in which they are shown.
#[rustfmt::skip]
pub(crate) const AMOUNTS: [Amount; 7] = [
    count("validation", "Validation batch", "runs between steps, forward alone", "validation-batch", "validation_batch", Where::Training),
    count("gpus", "GPUs", "that train together; the batch is that of one of them", "gpus", "gpus", Where::Parallel),
    count("prefetch", "Batches prefetched", "put on the device ahead of their step", "prefetch-to-device", "prefetch_to_device", Where::Process),
    count("predict", "Predictions kept", "batches whose outputs all stay on the device", "predict-batches", "predict_batches", Where::Process),
    count("stale", "Models still alive", "of earlier runs in the same process, as in a notebook", "stale-models", "stale_models", Where::Process),
    count("steps", "Steps in one call", "Keras’s steps_per_execution", "steps-per-execution", "steps_per_execution", Where::TensorflowTraining),
    Amount {
        word: "limit", label: "Memory limit, MiB", note: "of a logical device", typed: ("memory-limit", "MiB"), key: "memory_limit_bytes",
        within: Some("allocator"), means: Where::Tensorflow,
    },
];

/// What is counted under this word.
fn find(word: &str) -> Option<&'static Amount> {
    AMOUNTS.iter().find(|amount| amount.word == word)
}

impl Amount {
    /// Puts a number into a plan.
    fn put(&self, plan: &mut Map<String, Value>, n: u64) {
        match self.within {
            None => plan.insert(self.key.into(), json!(n)),
            Some(object) => plan.insert(object.into(), json!({ self.key: n.saturating_mul(1 << 20) })),
        };
    }

    /// The number that a change of a plan gives, if it says any.
    fn said(&self, change: &Map<String, Value>) -> Option<u64> {
        match self.within {
            None => change.get(self.key).map(|n| n.as_u64().unwrap_or_default()),
            Some(object) => change.get(object)?.get(self.key).map(|n| n.as_u64().unwrap_or_default() >> 20),
        }
    }
}

impl State {
    /// A number, where there is one.
    pub(crate) fn amount(&self, word: &str) -> Option<u64> {
        self.amounts.get(word).copied()
    }

    /// Sets a number, 0 for none; an unknown word is ignored.
    pub(crate) fn count(&mut self, word: &str, n: u64) {
        let Some(amount) = find(word) else { return };
        if n > 0 {
            self.amounts.insert(amount.word, n);
        } else {
            self.amounts.remove(amount.word);
        }
    }

    pub(super) fn put_amounts(&self, plan: &mut Map<String, Value>) {
        for (amount, n) in self.amounts() {
            amount.put(plan, n);
        }
    }

    /// What is typed for each: the flag and its value.
    pub(super) fn typed_amounts(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.amounts().map(|(amount, n)| (amount.typed.0, format!("{n}{}", amount.typed.1)))
    }

    /// Takes the numbers that a change says.
    pub(super) fn apply_amounts(&mut self, change: &Map<String, Value>) {
        for amount in &AMOUNTS {
            if let Some(n) = amount.said(change) {
                self.count(amount.word, n);
            }
        }
    }

    fn amounts(&self) -> impl Iterator<Item = (&'static Amount, u64)> {
        AMOUNTS.iter().filter_map(|amount| Some((amount, self.amount(amount.word)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_goes_into_a_plan_and_comes_back() {
        let mut state = State::default();
        for (amount, n) in AMOUNTS.iter().zip(3..) {
            state.count(amount.word, n);
        }
        let Ok(Value::Object(plan)) = serde_json::from_str(&state.plan()) else { panic!() };
        assert_eq!(plan["allocator"]["memory_limit_bytes"], json!(9 << 20));
        let mut again = State::default();
        again.apply_amounts(&plan);
        assert_eq!(again, state);
        assert!(
            state.command("m").contains("--prefetch-to-device 5 ")
                && state.command("m").ends_with("--memory-limit 9MiB")
        );
        state.count("stale", 0);
        state.count("unknown", 5);
        assert_eq!((state.amount("stale"), state.amounts.len()), (None, 6));
    }
}
