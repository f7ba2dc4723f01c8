//! The rules. Each looks at a log and finds its cause, or nothing.

mod host;
mod outside;
mod step;

use super::{Cause, Confidence, Finding};
use crate::Log;
use crate::message::{Kind, Message};
use memfit_graph::Bytes;
pub(crate) use outside::elsewhere;

/// All rules.
pub(super) const RULES: &[fn(&Log) -> Option<Finding>] = &[
    outside::context_start,
    outside::library_handle,
    outside::preallocation,
    outside::other_process,
    outside::refused,
    step::another_run,
    step::weights,
    step::fragmentation,
    step::single_tensor,
    step::optimizer_state,
    step::leak,
    step::step_too_big,
    host::host_memory,
    host::shared_memory,
];

/// A program that needs no more than this is too big for no card.
const SMALL: Bytes = Bytes::mib(64);

/// What is said where no rule finds a cause.
pub(super) fn unknown(m: &Message) -> Finding {
    let explanation = match m.in_use.or(m.requested) {
        Some(total) if m.family == "jax" && total <= SMALL => format!(
            "The program that failed needs only {total}: arrays made before it, or another process, hold the rest, and no line tells which."
        ),
        _ => "Memory could not be had, and no line gives numbers that tell whether the step was too big, memory was in pieces or \
            something else held it."
            .into(),
    };
    Finding { cause: Cause::Unknown, confidence: Confidence::Certain, explanation, lines: vec![m.line] }
}

fn found(cause: Cause, confidence: Confidence, explanation: String, mut lines: Vec<u64>) -> Option<Finding> {
    lines.dedup();
    Some(Finding { cause, confidence, explanation, lines })
}

/// The first failure of the device's memory.
fn device(log: &Log) -> Option<&Message> {
    log.failure().filter(|m| matches!(m.kind, Kind::DeviceAllocation | Kind::Driver))
}

/// What the framework may take at most.
fn capacity(log: &Log, m: &Message) -> Option<Bytes> {
    let taken = log.messages.iter().find(|t| t.kind == Kind::Taken && m.family == t.family);
    m.limit.or(m.capacity).or(taken.and_then(|t| t.limit))
}

/// What this process's tensors held. On Metal, scratch memory of graphs counts as well.
fn held(m: &Message) -> Option<Bytes> {
    if m.detail.as_deref() == Some("MPS") { m.in_use } else { m.allocated }
}

/// Percent of the whole.
fn percent(part: Bytes, whole: Bytes) -> u64 {
    u64::try_from(u128::from(part.0) * 100 / u128::from(whole.0.max(1))).unwrap_or(u64::MAX)
}
