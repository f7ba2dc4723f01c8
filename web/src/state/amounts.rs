//! What is a number and none at first: how a link, the command line and a plan in JSON say it, and when it means anything.

use super::State;
use super::places::{Place, When};
use serde_json::{Map, Value, json};

/// Something that is counted where it is there at all.
pub(crate) struct Amount {
    /// In links, and as the field's id.
    pub(crate) word: &'static str,
    pub(crate) label: &'static str,
    pub(crate) note: &'static str,
    /// On the command line: the flag, and the number behind it.
    typed: (&'static str, fn(u64) -> String),
    /// In a plan; with the object that it is in, and how much one is there.
    key: &'static str,
    within: Option<&'static str>,
    unit: u64,
    /// More is not taken.
    most: u64,
    pub(crate) place: Place,
    pub(crate) when: When,
}

const fn count(
    word: &'static str,
    label: &'static str,
    note: &'static str,
    (typed, key): (&'static str, &'static str),
    place: Place,
    when: When,
) -> Amount {
    let most = u32::MAX as u64;
    Amount { word, label, note, typed: (typed, plain), key, within: None, unit: 1, most, place, when }
}

fn plain(n: u64) -> String {
    n.to_string()
}

/// All of them, in the order in which they are shown.
#[rustfmt::skip]
pub(crate) const AMOUNTS: [Amount; 10] = [
    count("validation", "Validation batch", "runs between steps, forward alone", ("validation-batch", "validation_batch"), Place::Plan, When::Training),
    count("gpus", "GPUs in all", "the batch is that of one of them, or of those that share its layers", ("gpus", "gpus"), Place::Parallel, When::Always),
    count("tensor", "Tensor parallel", "GPUs that each layer is split over", ("tensor-parallel", "tensor_parallel"), Place::Parallel, When::Always),
    count("stages", "Pipeline stages", "that the layers are split into; a batch is then one of the micro-batches", ("pipeline-stages", "pipeline_stages"), Place::Parallel, When::Always),
    count("prefetch", "Batches prefetched", "put on the device ahead of their step", ("prefetch-to-device", "prefetch_to_device"), Place::Process, When::Always),
    count("predict", "Predictions kept", "batches whose outputs all stay on the device", ("predict-batches", "predict_batches"), Place::Process, When::Always),
    count("stale", "Models still alive", "of earlier runs in the same process, as in a notebook", ("stale-models", "stale_models"), Place::Process, When::Always),
    count("steps", "Steps in one call", "Keras’s steps_per_execution", ("steps-per-execution", "steps_per_execution"), Place::Process, When::TensorflowTraining),
    Amount {
        word: "limit", label: "Memory limit, MiB", note: "of a logical device", typed: ("memory-limit", |n| format!("{n}MiB")),
        key: "memory_limit_bytes", within: Some("allocator"), unit: 1 << 20, most: 1 << 40, place: Place::Allocator, when: When::Tensorflow,
    },
    Amount {
        word: "fraction", label: "Part of the card, %", note: "that the framework may have", typed: ("memory-fraction", |n| format!("0.{n:02}")),
        key: "memory_fraction_thousandths", within: Some("allocator"), unit: 10, most: 99, place: Place::Allocator, when: When::Always,
    },
];

/// What is counted under this word.
fn find(word: &str) -> Option<&'static Amount> {
    AMOUNTS.iter().find(|amount| amount.word == word)
}

impl Amount {
    /// Puts a number into a plan.
    fn put(&self, plan: &mut Map<String, Value>, n: u64) {
        let object = match self.within {
            None => plan,
            Some(object) => match plan.entry(object).or_insert_with(|| json!({})) {
                Value::Object(object) => object,
                _ => return,
            },
        };
        object.insert(self.key.into(), json!(n.saturating_mul(self.unit)));
    }

    /// The number that a change of a plan gives, if it says any.
    fn said(&self, change: &Map<String, Value>) -> Option<u64> {
        let said = match self.within {
            None => change.get(self.key)?,
            Some(object) => change.get(object)?.get(self.key)?,
        };
        Some(said.as_u64().unwrap_or_default() / self.unit)
    }

    /// Whether it is what a plan has under this key.
    pub(super) fn is(&self, key: &str) -> bool {
        self.within.unwrap_or(self.key) == key
    }
}

impl State {
    /// A number, where there is one.
    pub(crate) fn amount(&self, word: &str) -> Option<u64> {
        self.amounts.get(word).copied()
    }

    /// Sets a number, 0 for none; one that is too large, or an unknown word, is ignored.
    pub(crate) fn count(&mut self, word: &str, n: u64) {
        let Some(amount) = find(word).filter(|amount| n <= amount.most) else { return };
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
        self.amounts().map(|(amount, n)| (amount.typed.0, (amount.typed.1)(n)))
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
        let settings = json!({"memory_limit_bytes": 11 << 20, "memory_fraction_thousandths": 120});
        assert_eq!(plan["allocator"], settings);
        let mut again = State::default();
        again.apply_amounts(&plan);
        assert_eq!(again, state);
        assert!(
            state.command("m").contains("--prefetch-to-device 7 ")
                && state.command("m").ends_with("--memory-limit 11MiB --memory-fraction 0.12")
        );
        state.count("stale", 0);
        state.count("unknown", 5);
        state.count("fraction", 100);
        assert_eq!(
            (state.amount("stale"), state.amount("fraction"), state.amounts.len()),
            (None, Some(12), 9)
        );
    }
}
