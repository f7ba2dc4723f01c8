//! The frameworks themselves: a step of the same model and plan as a small program in Python, which the host's own interpreter runs.
//!
//! A Keras file is loaded as it is ([`keras`]). A graph is written out as a torch module, one call an operator ([`torch`]). Both
//! stand behind a harness (`torch_step.py`, `keras_step.py`) that trains, reads the framework's own count of its memory and prints it
//! as one line of JSON ([`Report`]).

mod body;
mod fed;
pub mod keras;
mod line;
mod ops;
mod optimizer;
mod report;
pub mod torch;

pub use ops::names as torch_operators;
pub use report::{Moment, Report, Said, read};

use memfit_engine::Plan;
use memfit_graph::DType;
use serde_json::{Value, json};

/// Where and how often a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many steps.
    pub steps: u32,
    /// `cpu` or `cuda`; none: CUDA where the framework has it.
    pub device: Option<&'static str>,
    /// The most that the framework may take of the device.
    pub limit: Option<u64>,
}

/// A program that says which framework would run, in which version and where, as a [`Report`] of no steps.
pub fn describe(runner: &str, device: Option<&str>) -> String {
    let device = device.map_or_else(|| "None".to_owned(), quoted);
    let settings = format!("RUNNER, DEVICE = {}, {device}\n", quoted(runner));
    include_str!("describe.py").replace("# --- the settings ---\n", &settings)
}

/// What both harnesses read. The rest is what each of them reads alone.
fn common(plan: &Plan, settings: Settings) -> Value {
    json!({
        "steps": settings.steps,
        "device": settings.device,
        "limit_bytes": settings.limit,
        "accumulate": plan.accumulate,
        "train": plan.mode == memfit_engine::Mode::Train,
        "autocast": plan.precision.autocast().map(DType::name),
    })
}

/// Text as a literal of Python, which JSON's strings are.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod keys {
    //! A setting that a harness does not read is a plan that is not run.

    use serde_json::Value;
    use std::collections::BTreeSet;

    pub(super) fn given(config: &Value) -> BTreeSet<String> {
        config.as_object().unwrap().keys().cloned().collect()
    }

    pub(super) fn read(harness: &str) -> BTreeSet<String> {
        harness.split("CONFIG[\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
    }
}
