//! The rules. Each looks at a log and finds its cause, or nothing.

use super::{Cause, Confidence, Finding};
use crate::context::Run;
use crate::message::{ALLOCATOR, Kind, Message};
use crate::{Log, Outcome};
use memfit_engine::Phase;
use memfit_graph::Bytes;

/// All rules.
pub(super) const RULES: &[fn(&Log) -> Option<Finding>] = &[
    context_start,
    library_handle,
    preallocation,
    other_process,
    single_tensor,
    fragmentation,
    another_run,
    optimizer_state,
    leak,
    step_too_big,
    host_memory,
    shared_memory,
];

/// What a context and its libraries take at most (cuBLAS, cuDNN and every kernel of a framework loaded).
const CONTEXT: Bytes = Bytes::mib(1536);

/// What a library's handle and its first scratch memory take at most (cuBLAS's workspace on Hopper is 32 MiB, cuDNN's handle with its
/// kernels some hundred).
const LIBRARY: Bytes = Bytes::mib(256);

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

/// Percent of the whole.
fn percent(part: Bytes, whole: Bytes) -> u64 {
    u64::try_from(u128::from(part.0) * 100 / u128::from(whole.0.max(1))).unwrap_or(u64::MAX)
}

fn context_start(log: &Log) -> Option<Finding> {
    let m = log.failure()?;
    // The driver's bare refusal while PyTorch starts (torch/cuda/__init__.py).
    let starts = m.kind == Kind::Driver && log.context.frames.iter().any(|f| f == "_lazy_init");
    if !starts && (m.kind != Kind::Start || m.family == "library") {
        return None;
    }
    let text = "The driver could not make a context, which needs a few hundred MiB before any tensor: other processes hold the card.";
    found(Cause::ContextStart, Confidence::Certain, text.into(), vec![m.line])
}

fn library_handle(log: &Log) -> Option<Finding> {
    let m = log.failure().filter(|m| m.kind == Kind::Start && m.family == "library")?;
    let status = m.detail.clone().unwrap_or_default();
    let sure = if status.contains("ALLOC_FAILED") || status.contains("out of memory") {
        Confidence::Certain
    } else if m.free.is_some_and(|free| free < LIBRARY) {
        Confidence::Likely
    } else {
        Confidence::Possible
    };
    let text = format!(
        "{status}: the library's handle and scratch memory come from the driver, outside of the framework's allocator, and the driver had none left."
    );
    found(Cause::LibraryHandle, sure, text, vec![m.line])
}

fn preallocation(log: &Log) -> Option<Finding> {
    // What holds nearly all of a card is a framework that took it at its start.
    if let Some(m) = device(log)
        && let (Some(capacity), Some(other)) = (m.capacity, m.others.iter().max_by_key(|p| p.bytes))
        && percent(other.bytes, capacity) >= 75
        && m.detail.as_deref() != Some("MPS")
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

fn other_process(log: &Log) -> Option<Finding> {
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
    // The old wording does not name them: what is neither free nor this process's.
    let (capacity, free, held) = (m.capacity?, m.free?, m.in_use.or(m.reserved.map(|r| r + CONTEXT))?);
    let missing = capacity.saturating_sub(free).saturating_sub(held);
    if !m.others.is_empty() || percent(missing, capacity) < 8 {
        return None;
    }
    let sure = if percent(missing, capacity) >= 20 { Confidence::Certain } else { Confidence::Likely };
    let text = format!(
        "Of {capacity}, {free} was free and this process held {held} with its context: {missing} belong to something else."
    );
    found(Cause::OtherProcess, sure, text, vec![m.line])
}

fn single_tensor(log: &Log) -> Option<Finding> {
    let m = device(log)?;
    if let (Some(requested), Some("larger than a buffer may be")) = (m.requested, m.detail.as_deref()) {
        let text = format!("{requested} were asked for at once, more than the device gives to one buffer.");
        return found(Cause::SingleTensor, Confidence::Certain, text, vec![m.line]);
    }
    let (requested, capacity) = (m.requested?, capacity(log, m));
    match capacity {
        Some(capacity) if requested > capacity => {
            let text = format!("{requested} were asked for at once, more than the {capacity} there are.");
            found(Cause::SingleTensor, Confidence::Certain, text, vec![m.line])
        }
        Some(capacity) if percent(requested, capacity) >= 40 => {
            let text = format!(
                "{requested} were asked for at once, {} % of the card.",
                percent(requested, capacity)
            );
            found(Cause::SingleTensor, Confidence::Likely, text, vec![m.line])
        }
        None if requested >= Bytes(64 * Bytes::GIB) && m.family != "jax" => {
            let text = format!("{requested} were asked for at once.");
            found(Cause::SingleTensor, Confidence::Likely, text, vec![m.line])
        }
        _ => None,
    }
}

fn fragmentation(log: &Log) -> Option<Finding> {
    let m = device(log)?;
    let requested = m.requested?;
    let pool = if m.family == "tensorflow" { m.reserved.or(m.limit) } else { m.reserved };
    let unused = pool?.saturating_sub(m.allocated?);
    if unused < requested || unused < Bytes::mib(64) || m.largest_free.is_some_and(|run| run >= requested) {
        return None;
    }
    let whole = percent(unused, pool?);
    let sure = match (m.largest_free, whole) {
        (Some(_), _) => Confidence::Certain,
        (None, 20..) => Confidence::Likely,
        (None, 5..) => Confidence::Possible,
        // The rest of a block or two is left over in every full pool.
        _ => return None,
    };
    let run = m.largest_free.map_or_else(String::new, |run| format!(", the largest piece of it {run}"));
    let text = format!("The allocator held {unused} without using it{run}, and could not give {requested}.");
    found(Cause::Fragmentation, sure, text, vec![m.line])
}

fn another_run(log: &Log) -> Option<Finding> {
    let m = device(log)?;
    let (cause, what) = match log.context.run? {
        Run::Validation => (Cause::ValidationBatch, "validation"),
        Run::Prediction => (Cause::PredictionBatch, "prediction"),
        Run::Loading => (Cause::CheckpointLoad, "code that reads weights"),
        Run::Training | Run::Building => return None,
    };
    let text = format!("The allocation that failed was made by {what}, as the functions above it tell.");
    found(cause, Confidence::Likely, text, vec![m.line])
}

fn optimizer_state(log: &Log) -> Option<Finding> {
    let m = device(log).filter(|_| log.context.pass == Some(Phase::OptimizerStep))?;
    let text = "The optimizer asked: its state is made at the first step, after forward and backward have already fitted.";
    found(Cause::OptimizerState, Confidence::Likely, text.into(), vec![m.line])
}

fn leak(log: &Log) -> Option<Finding> {
    let m = device(log)?;
    let readings = &log.readings;
    if let (Some(first), Some(last)) = (readings.first(), readings.last())
        && readings.len() >= 4
    {
        let pairs = readings.windows(2);
        let rising = pairs.clone().filter(|w| w[1].1 > w[0].1).count();
        let falling = pairs.clone().filter(|w| w[1].1 < w[0].1).count();
        let late = readings[readings.len() / 2].1;
        // A plateau after the first steps is no leak: it has to rise in both halves.
        let grows = last.1 * 10 > first.1 * 12 && last.1 * 100 > late * 105 && late * 100 > first.1 * 103;
        if grows && rising > 4 * falling {
            let text = format!(
                "Memory that the run printed grew by {} % over {} readings and did not come back.",
                (last.1 - first.1) * 100 / first.1.max(1),
                readings.len()
            );
            return found(Cause::Leak, Confidence::Likely, text, vec![first.0, last.0, m.line]);
        }
    }
    let many = log.context.epoch.is_some_and(|e| e >= 2) || log.context.step.is_some_and(|s| s >= 200);
    let training = !matches!(log.context.run, Some(Run::Validation | Run::Prediction | Run::Loading));
    (many && training).then(|| {
        let at = match (log.context.epoch, log.context.step) {
            (Some(epoch), _) if epoch >= 2 => format!("epoch {epoch}"),
            (_, Some(step)) => format!("step {step}"),
            _ => "many steps".into(),
        };
        Finding {
            cause: Cause::Leak,
            confidence: Confidence::Possible,
            explanation: format!("Steps of the same kind had fitted until {at}: memory grew, or this batch was larger than those before."),
            lines: vec![m.line],
        }
    })
}

fn step_too_big(log: &Log) -> Option<Finding> {
    let m = device(log)?;
    if matches!(log.context.run, Some(Run::Validation | Run::Prediction | Run::Loading)) {
        return None;
    }
    if m.family == "jax" {
        let total = m.in_use.or(m.requested)?;
        let text = format!("The compiled step needs {total} at once.");
        return found(Cause::StepTooBig, Confidence::Likely, text, vec![m.line]);
    }
    let (Some(held), Some(capacity)) = (m.allocated, capacity(log, m)) else {
        if m.reserved.is_some() || m.capacity.is_some() {
            return None;
        }
        let text = match (m.requested, log.context.pass) {
            (Some(asked), _) => {
                format!("{asked} more were asked for; the log does not say what was held already.")
            }
            (None, Some(pass)) if m.detail.as_deref() == Some(ALLOCATOR) => format!(
                "It was in the {} pass; the log does not say what was held and asked for.",
                pass.name()
            ),
            (None, _) => return None,
        };
        return found(Cause::StepTooBig, Confidence::Possible, text, vec![m.line]);
    };
    let share = percent(held, capacity);
    if share < 60 {
        return None;
    }
    let sure = if share >= 80 { Confidence::Certain } else { Confidence::Likely };
    let pass = match log.context.pass {
        Some(Phase::Forward) => " in the forward pass",
        Some(Phase::Backward) => " in the backward pass",
        _ => "",
    };
    let more = m.requested.map_or_else(String::new, |r| format!(" when {r} more were asked for"));
    let text = format!("Live tensors held {held} of {capacity} ({share} %){pass}{more}.");
    found(Cause::StepTooBig, sure, text, vec![m.line])
}

fn host_memory(log: &Log) -> Option<Finding> {
    let first = log.failure().filter(|m| matches!(m.kind, Kind::HostAllocation | Kind::HostKill))?;
    // What only tells of the signal gives way to who says why it was sent.
    let kills = |m: &&Message| m.kind == Kind::HostKill && m.detail.as_deref() != Some("signal 9");
    let named = (first.kind == Kind::HostKill).then(|| log.messages.iter().find(kills)).flatten();
    let m = named.filter(|m| m.line >= first.line).unwrap_or(first);
    let (sure, text) = match (m.kind, m.requested, m.detail.as_deref()) {
        (Kind::HostKill, _, Some("signal 9")) => (
            Confidence::Possible,
            "The process was ended by signal 9 without a message of its own, as the kernel does when memory runs out. `dmesg` or the batch system's report tells for sure.".to_owned(),
        ),
        (Kind::HostKill, _, Some(who)) => (Confidence::Certain, format!("The process was ended for its use of the host's memory, by {who}.")),
        (_, Some(requested), _) => (Confidence::Certain, format!("{requested} of the host's memory were asked for and not had.")),
        _ => (Confidence::Likely, "An allocation of the host's memory failed.".to_owned()),
    };
    found(Cause::HostMemory, sure, text, vec![first.line, m.line])
}

fn shared_memory(log: &Log) -> Option<Finding> {
    let m = log.messages.iter().find(|m| m.kind == Kind::SharedMemory)?;
    let text =
        "Workers hand batches over in /dev/shm, which is full; containers have 64 MiB of it by default.";
    found(Cause::SharedMemory, Confidence::Certain, text.into(), vec![m.line])
}
