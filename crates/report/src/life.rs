//! The parts of a process around its step, for JSON.

use serde::Serialize;

/// The parts of the process around the step.
#[derive(Serialize)]
pub(crate) struct Life<'a> {
    worst: &'a str,
    allocated_bytes: u64,
    phases: Vec<Stretch<'a>>,
}

#[derive(Serialize)]
pub(crate) struct Stretch<'a> {
    name: &'a str,
    allocated_bytes: u64,
}

/// The parts as they are written.
pub(crate) fn life(scenario: &memfit_engine::Scenario) -> Life<'_> {
    let stretch = |s: &memfit_engine::Stretch| s.allocated.0;
    Life {
        worst: scenario.largest().map_or("", |s| &s.name),
        allocated_bytes: scenario.largest().map_or(0, stretch),
        phases: scenario
            .stretches
            .iter()
            .map(|s| Stretch { name: &s.name, allocated_bytes: s.allocated.0 })
            .collect(),
    }
}
