//! What the step, or what ran in its place, asked for.

use super::outside::is_unexplained;
use super::{SMALL, capacity, device, found, held, percent};
use crate::Log;
use crate::causes::{Cause, Confidence, Finding};
use crate::context::Run;
use crate::message::{ALLOCATOR, NO_ROOM, ONE_REQUEST};
use memfit_engine::Phase;
use memfit_graph::Bytes;

pub(super) fn another_run(log: &Log) -> Option<Finding> {
    let m = device(log)?;
    if m.detail.as_deref() == Some(ONE_REQUEST) {
        let text = "What one request of the longest context keeps for attention is more than the weights leave free.";
        return found(Cause::PredictionBatch, Confidence::Certain, text.into(), vec![m.line]);
    }
    let (cause, what) = match log.context.run? {
        Run::Validation => (Cause::ValidationBatch, "validation"),
        Run::Prediction => (Cause::PredictionBatch, "prediction"),
        Run::Loading => (Cause::CheckpointLoad, "code that reads weights"),
        Run::Training | Run::Building | Run::Weights => return None,
    };
    let text = format!("The allocation that failed was made by {what}, as the functions above it tell.");
    found(cause, Confidence::Likely, text, vec![m.line])
}

pub(super) fn weights(log: &Log) -> Option<Finding> {
    let m = device(log)?;
    if m.detail.as_deref() == Some(NO_ROOM) {
        let text = "The weights are on the card and leave no room for what a request keeps.";
        return found(Cause::Weights, Confidence::Certain, text.into(), vec![m.line]);
    }
    let moved = log.context.run == Some(Run::Building) && log.context.step.is_none();
    if log.context.run != Some(Run::Weights) && !moved {
        return None;
    }
    let share =
        held(m).zip(capacity(log, m)).map(|(held, capacity)| (held, capacity, percent(held, capacity)));
    let (sure, text) = match share {
        Some((held, capacity, share @ 60..)) => (
            if share >= 80 { Confidence::Certain } else { Confidence::Likely },
            format!("{held} of {capacity} ({share} %) were weights already, before any step."),
        ),
        None if !moved => {
            (Confidence::Possible, "It was while the weights were made, before any step.".into())
        }
        _ => return None,
    };
    found(Cause::Weights, sure, text, vec![m.line])
}

pub(super) fn fragmentation(log: &Log) -> Option<Finding> {
    let m = device(log).filter(|m| !is_unexplained(m))?;
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

pub(super) fn single_tensor(log: &Log) -> Option<Finding> {
    // Servers take all weights of a card as one buffer.
    let m = device(log).filter(|_| log.context.run != Some(Run::Weights))?;
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

pub(super) fn optimizer_state(log: &Log) -> Option<Finding> {
    let m = device(log).filter(|_| log.context.pass == Some(Phase::OptimizerStep))?;
    let text = "The optimizer asked: its state is made at the first step, after forward and backward have already fitted.";
    found(Cause::OptimizerState, Confidence::Likely, text.into(), vec![m.line])
}

/// Memory that the run printed as it went, where it grew and did not come back: the first and the last reading.
fn growth(log: &Log) -> Option<((u64, u64), (u64, u64))> {
    let readings = &log.readings;
    let (first, last) = (*readings.first()?, *readings.last()?);
    if readings.len() < 4 {
        return None;
    }
    let pairs = readings.windows(2);
    let rising = pairs.clone().filter(|w| w[1].1 > w[0].1).count();
    let falling = pairs.clone().filter(|w| w[1].1 < w[0].1).count();
    let late = readings[readings.len() / 2].1;
    // A plateau after the first steps is no leak: it has to rise in both halves.
    // Readings are what a log says, in 64 bits: their products have room in 128.
    let is_above = |a: u64, b: u64, percent: u128| u128::from(a) * 100 > u128::from(b) * percent;
    let grows = is_above(last.1, first.1, 120) && is_above(last.1, late, 105) && is_above(late, first.1, 103);
    (grows && rising > 4 * falling).then_some((first, last))
}

/// How far a training had come, where that is so far that steps like the one that failed had fitted.
fn fitted_until(log: &Log) -> Option<String> {
    if matches!(log.context.run, Some(Run::Validation | Run::Prediction | Run::Loading)) {
        return None;
    }
    match (log.context.epoch, log.context.step) {
        (Some(epoch), _) if epoch >= 2 => Some(format!("epoch {epoch}")),
        (_, Some(step)) if step >= 200 => Some(format!("step {step}")),
        _ => None,
    }
}

pub(super) fn leak(log: &Log) -> Option<Finding> {
    let m = device(log)?;
    if let Some((first, last)) = growth(log) {
        let text = format!(
            "Memory that the run printed grew by {} % over {} readings and did not come back.",
            u128::from(last.1.abs_diff(first.1)) * 100 / u128::from(first.1.max(1)),
            log.readings.len()
        );
        return found(Cause::Leak, Confidence::Likely, text, vec![first.0, last.0, m.line]);
    }
    let text = format!(
        "Steps of the same kind had fitted until {}: memory grew, or this batch was larger than those before.",
        fitted_until(log)?
    );
    found(Cause::Leak, Confidence::Possible, text, vec![m.line])
}

pub(super) fn step_too_big(log: &Log) -> Option<Finding> {
    let m = device(log)?;
    let trains =
        !matches!(log.context.run, Some(Run::Validation | Run::Prediction | Run::Loading | Run::Weights));
    let told = [NO_ROOM, ONE_REQUEST].map(Some).contains(&m.detail.as_deref());
    if !trains || told || is_unexplained(m) || weights(log).is_some() {
        return None;
    }
    if m.family == "jax" {
        let total = m.in_use.or(m.requested).filter(|total| *total > SMALL)?;
        let sure = if total > Bytes(Bytes::GIB) { Confidence::Likely } else { Confidence::Possible };
        let text = format!("The compiled step needs {total} at once.");
        return found(Cause::StepTooBig, sure, text, vec![m.line]);
    }
    let (Some(held), Some(capacity)) = (held(m), capacity(log, m)) else {
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
    // Where steps like it had fitted, the step alone does not explain it; where memory was seen to grow, that does.
    let (sure, but) = match (growth(log), fitted_until(log)) {
        (Some(_), _) => {
            (Confidence::Possible, " Not all of it is this step's: memory grew before.".to_owned())
        }
        (None, Some(until)) => (Confidence::Likely, format!(" Steps before it had fitted, until {until}.")),
        (None, None) if share >= 80 => (Confidence::Certain, String::new()),
        (None, None) => (Confidence::Likely, String::new()),
    };
    let pass = match log.context.pass {
        Some(Phase::Forward) => " in the forward pass",
        Some(Phase::Backward) => " in the backward pass",
        _ => "",
    };
    let more = m.requested.map_or_else(String::new, |r| format!(" when {r} more were asked for"));
    let who = if m.detail.as_deref() == Some("MPS") { "Tensors and Metal's graphs" } else { "Live tensors" };
    let text = format!("{who} held {held} of {capacity} ({share} %){pass}{more}.{but}");
    found(Cause::StepTooBig, sure, text, vec![m.line])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_of_any_size_are_compared() {
        let rising = |scale: u64| {
            let readings = (1..=8).map(|k| (k, k * scale)).collect();
            growth(&Log { readings, ..Log::default() })
        };
        assert_eq!(rising(10), Some(((1, 10), (8, 80))));
        // As many bytes as 64 bits have.
        let most = u64::MAX / 8;
        assert_eq!(rising(most), Some(((1, most), (8, 8 * most))));
        let level = Log { readings: vec![(1, u64::MAX); 8], ..Log::default() };
        assert_eq!(growth(&level), None);
    }
}
