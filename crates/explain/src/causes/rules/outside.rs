//! What is outside of the step: contexts, libraries, other processes and the driver.

use super::{device, found, percent};
use crate::causes::{Cause, Confidence, Finding};
use crate::context::Run;
use crate::message::{FOUND, Kind, Message, NO_ALGORITHM, NO_ENGINE};
use crate::{Log, Outcome};
use memfit_graph::Bytes;

/// What a context and its libraries take at most (cuBLAS, cuDNN and every kernel of a framework loaded).
const CONTEXT: Bytes = Bytes::mib(1536);

/// What a library's handle and its first scratch memory take at most (cuBLAS's workspace on Hopper is 32 MiB, cuDNN's handle with its
/// kernels some hundred).
const LIBRARY: Bytes = Bytes::mib(256);

pub(super) fn context_start(log: &Log) -> Option<Finding> {
    let m = log.failure()?;
    // The driver's bare refusal while PyTorch starts (torch/cuda/__init__.py).
    let starts = m.kind == Kind::Driver && log.context.frames.iter().any(|f| f == "_lazy_init");
    if !starts && (m.kind != Kind::Start || m.family == "library") {
        return None;
    }
    let text = "The driver could not make a context, which needs a few hundred MiB before any tensor: other processes hold the card.";
    found(Cause::ContextStart, Confidence::Certain, text.into(), vec![m.line])
}

pub(super) fn library_handle(log: &Log) -> Option<Finding> {
    let m = log.failure().filter(|m| m.kind == Kind::Start && m.family == "library")?;
    let status = m.detail.clone().unwrap_or_default();
    let sure = if status.contains("ALLOC_FAILED") || status.contains("out of memory") {
        Confidence::Certain
    } else if m.free.is_some_and(|free| free < LIBRARY) {
        Confidence::Likely
    } else {
        Confidence::Possible
    };
    let text = match [NO_ENGINE, NO_ALGORITHM].contains(&&*status) {
        true => format!(
            "{status}: each needs scratch memory, and what gets none is not taken; shapes or a dtype that cuDNN does not have end so, too."
        ),
        false => format!(
            "{status}: the library's handle and scratch memory come from the driver, outside of the framework's allocator, and the driver had none left."
        ),
    };
    found(Cause::LibraryHandle, sure, text, vec![m.line])
}

pub(super) fn preallocation(log: &Log) -> Option<Finding> {
    // What holds nearly all of a card is a framework that took it at its start.
    if let Some(m) = device(log)
        && let (Some(capacity), Some(other)) = (m.capacity, m.others.iter().max_by_key(|p| p.bytes))
        && percent(other.bytes, capacity) >= 75
    {
        let text = format!(
            "Process {} holds {} of {}: as much as TensorFlow or JAX takes when it starts.",
            other.pid, other.bytes, capacity
        );
        return found(Cause::Preallocation, Confidence::Likely, text, vec![m.line]);
    }
    let refused: Vec<&Message> = log
        .messages
        .iter()
        .filter(|m| m.kind == Kind::Retry && m.requested.is_some_and(|r| r >= Bytes::mib(256)))
        .collect();
    let first = refused.first()?;
    if log.outcome() == Outcome::NoFailure
        || device(log).is_some_and(|m| m.allocated.is_some() || m.family != "tensorflow")
    {
        return None;
    }
    let text = format!(
        "TensorFlow asked the driver for {} when it started and was refused: something else, often a second TensorFlow, holds the card.",
        first.requested.unwrap_or_default()
    );
    let lines = refused.iter().map(|m| m.line).chain(log.failure().map(|m| m.line)).collect();
    found(Cause::Preallocation, Confidence::Likely, text, lines)
}

/// What TensorFlow found of the card when it started, where that is little: the message, the whole, and what was free.
fn found_at_start<'a>(log: &'a Log, m: &Message) -> Option<(&'a Message, Bytes, Bytes)> {
    let found =
        log.messages.iter().filter(|t| t.detail.as_deref() == Some(FOUND) && m.family == "tensorflow");
    let (t, capacity, free) = found.filter_map(|t| Some((t, t.capacity?, t.free?))).next()?;
    (percent(free, capacity) < 75).then_some((t, capacity, free))
}

/// The old wording does not name others: they hold what is neither free nor this process's. The whole, what was free, what
/// this process held, and the rest, where that is much.
fn unnamed(m: &Message) -> Option<(Bytes, Bytes, Bytes, Bytes)> {
    let (capacity, free, held) = (m.capacity?, m.free?, m.in_use.or(m.reserved.map(|r| r + CONTEXT))?);
    let missing = capacity.saturating_sub(free).saturating_sub(held);
    (m.others.is_empty() && percent(missing, capacity) >= 8).then_some((capacity, free, held, missing))
}

/// What others held of the card when the first failure came, as far as numbers prove it.
pub(crate) fn elsewhere(log: &Log) -> Bytes {
    let Some(m) = log.failure() else { return Bytes::ZERO };
    let named: Bytes = m.others.iter().map(|p| p.bytes).sum();
    let at_start = found_at_start(log, m)
        .map(|(_, capacity, free)| capacity.saturating_sub(free).saturating_sub(CONTEXT));
    named.max(unnamed(m).map(|found| found.3).or(at_start).unwrap_or_default())
}

pub(super) fn other_process(log: &Log) -> Option<Finding> {
    let m = device(log)?;
    // Before a first step this process holds its weights alone.
    if m.kind == Kind::Driver
        && m.requested.is_none()
        && log.context.run == Some(Run::Building)
        && log.context.step.is_none()
    {
        let text = "The driver refused when the model was moved to the device, before any step: something else may hold the card.";
        return found(Cause::OtherProcess, Confidence::Possible, text.into(), vec![m.line]);
    }
    if let Some((t, capacity, free)) = found_at_start(log, m) {
        let text = format!("Of {capacity}, only {free} was free when TensorFlow started.");
        return found(Cause::OtherProcess, Confidence::Certain, text, vec![t.line, m.line]);
    }
    let others: Bytes = m.others.iter().map(|p| p.bytes).sum();
    if let Some(capacity) = m.capacity
        && percent(others, capacity) >= 10
    {
        let needed = m.requested.is_none_or(|r| others >= r.saturating_sub(m.free.unwrap_or_default()));
        let sure = if needed { Confidence::Certain } else { Confidence::Likely };
        return found(
            Cause::OtherProcess,
            sure,
            format!("Others hold {others} of {capacity}."),
            vec![m.line],
        );
    }
    let (capacity, free, held, missing) = unnamed(m)?;
    // Desktops and drivers take some of every card.
    let sure = match percent(missing, capacity) {
        20.. => Confidence::Certain,
        _ if percent(held, capacity) < 60 && !is_unexplained(m) => Confidence::Likely,
        _ => Confidence::Possible,
    };
    let text = format!(
        "Of {capacity}, {free} was free and this process held {held} with its context: {missing} belong to something else."
    );
    found(Cause::OtherProcess, sure, text, vec![m.line])
}

/// Whether the driver refused although it says that much of the card was free, and no limit of the framework explains that.
pub(super) fn is_unexplained(m: &Message) -> bool {
    let (Some(requested), Some(free), Some(capacity)) = (m.requested, m.free, m.capacity) else {
        return false;
    };
    let held = m.reserved.or(m.allocated).unwrap_or_default();
    // Numbers are printed with two decimals.
    let limited = m.limit.is_some_and(|limit| percent(held + requested, limit) >= 95);
    m.family == "pytorch" && free.0 / 2 > requested.0 && percent(free, capacity) >= 10 && !limited
}

pub(super) fn refused(log: &Log) -> Option<Finding> {
    let m = device(log).filter(|m| is_unexplained(m))?;
    let (requested, free) = (m.requested?, m.free?);
    let text = format!(
        "{requested} were asked for and {free} were free: what was short is not the card's own memory."
    );
    found(Cause::Refused, Confidence::Certain, text, vec![m.line])
}
