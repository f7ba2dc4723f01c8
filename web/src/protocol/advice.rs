//! Advice as the JavaScript API gives it, as far as the page shows it.

use super::Verdict;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a step comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) device_bytes: u64,
    pub(crate) verdict: Verdict,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) title: String,
    /// 1 is a setting, 2 a change of the training loop, 3 touches what is learnt.
    pub(crate) effort: u32,
    pub(crate) cost: String,
    pub(crate) saving_bytes: i64,
    /// Whether others have what is saved, and the step needs as much as before.
    pub(crate) for_others: bool,
    pub(crate) result: Outcome,
    /// What differs in the plan.
    pub(crate) plan: Map<String, Value>,
    pub(crate) snippet: String,
}

/// One of a set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) title: String,
    pub(crate) snippet: String,
}

/// Changes that fit together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Set {
    pub(crate) changes: Vec<Part>,
    pub(crate) result: Outcome,
    pub(crate) plan: Map<String, Value>,
}

/// All there is to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Advice {
    pub(crate) now: Outcome,
    pub(crate) changes: Vec<Change>,
    pub(crate) combination: Option<Set>,
}
