//! A failure beside an estimate of the model that ran: which layer asked, at which batch, and what would have fitted.
//!
//! TensorFlow names the tensor's dims; its first is the batch. PyTorch prints what its allocator asked of the driver: a request up
//! to 1 MiB makes it ask for 2 MiB, up to 10 MiB for 20 MiB, and a larger one is rounded up to 2 MiB
//! (c10/cuda/CUDACachingAllocator.cpp, `get_allocation_size`), so that a tensor is recognised by its size when it is large.

use crate::context::Pass;
use crate::{Log, Message};
use memfit_engine::{Estimate, EventKind, Phase};
use memfit_graph::Bytes;
use serde_json::{Value, json};

/// How many places are named.
const PLACES: usize = 3;
/// The largest batch that is tried.
const LARGEST: u64 = 1 << 20;

/// Where an allocation of the failing size is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The layer.
    pub layer: String,
    /// The pass.
    pub phase: Phase,
    /// What is allocated.
    pub label: String,
}

/// A log beside a model.
#[derive(Clone, Debug)]
pub struct Beside {
    /// The batch that the log was run with, where it could be found.
    pub batch: Option<u64>,
    /// How the batch was found.
    pub batch_from: &'static str,
    /// Where the failing allocation may have been made.
    pub places: Vec<Place>,
    /// What that batch takes, as the driver shows it.
    pub predicted: Option<Bytes>,
    /// What the framework could take.
    pub capacity: Option<Bytes>,
    /// The largest batch that fits; 0 where not even one sample does.
    pub fitting: Option<u64>,
}

/// Puts a log beside a model. `estimate` gives the step at a batch size, where there is one; `batch` is what the user says it was.
pub fn beside(
    log: &Log,
    batch: Option<u64>,
    mut estimate: impl FnMut(u64) -> Option<Estimate>,
) -> Option<Beside> {
    let failure = log.failure()?;
    let capacity = failure.limit.or(failure.capacity);
    let named = log.messages.iter().find_map(|m| m.shape.as_ref()).and_then(|s| s.first().copied());
    let mut candidates: Vec<(u64, &'static str)> = Vec::new();
    candidates.extend(batch.map(|b| (b, "as given")));
    candidates.extend(named.filter(|b| *b > 0).map(|b| (b, "the first dim of the tensor that failed")));
    candidates.extend(log.context.batch.filter(|b| *b > 0).map(|b| (b, "named in the log")));
    let sizes = (0..14u32).flat_map(|k| [1u64 << k, 3u64 << k >> 1]);
    let powers = sizes.map(|b| (b, "the batch at which a tensor has the size that failed"));
    let search = candidates.is_empty();
    candidates.extend(powers);
    let mut at = None;
    for (batch, from) in candidates {
        let Some(step) = estimate(batch) else { continue };
        let places = places(&step, failure, log.context.pass);
        // What was held when the allocation failed is less than the peak it was on the way to.
        let likely = failure.allocated.is_none_or(|held| step.peak.allocated.0 >= held.0 / 100 * 97);
        if !search || !places.is_empty() && likely {
            at = Some((batch, from, places, step.peak.device));
            break;
        }
    }
    let fitting = capacity.and_then(|c| largest(c, &mut estimate));
    let (batch, batch_from, places, predicted) = match at {
        Some((batch, from, places, predicted)) => (Some(batch), from, places, Some(predicted)),
        None => (None, "", Vec::new(), None),
    };
    Some(Beside { batch, batch_from, places, predicted, capacity, fitting })
}

/// What the allocator asks of the driver for a tensor, as PyTorch prints it.
fn asked(bytes: Bytes) -> Bytes {
    match bytes.0 {
        0..=0x10_0000 => Bytes::mib(2),
        0x10_0001..0xA0_0000 => Bytes::mib(20),
        _ => bytes.round_up(2 * Bytes::MIB),
    }
}

fn same(failure: &Message, requested: Bytes, bytes: Bytes) -> bool {
    if failure.shape.is_some() {
        return bytes == requested;
    }
    // Two decimals are printed.
    let grain = if requested.0 >= Bytes::GIB { Bytes::GIB / 100 } else { Bytes::MIB / 100 };
    requested > Bytes::mib(20) && asked(bytes).0.abs_diff(requested.0) <= grain
}

fn places(step: &Estimate, failure: &Message, pass: Option<Pass>) -> Vec<Place> {
    let Some(requested) = failure.requested else { return Vec::new() };
    let timeline = &step.timeline;
    let wanted = pass.map(|p| match p {
        Pass::Forward => Phase::Forward,
        Pass::Backward => Phase::Backward,
        Pass::OptimizerStep => Phase::OptimizerStep,
    });
    let mut places: Vec<Place> = Vec::new();
    for event in timeline.events.iter().filter(|e| e.kind == EventKind::Allocate && e.phase != Phase::Setup) {
        let storage = &timeline.storages[event.storage.0 as usize];
        if same(failure, requested, storage.bytes) && wanted.is_none_or(|w| w == event.phase) {
            let place = Place {
                layer: timeline.layers[event.layer as usize].to_string(),
                phase: event.phase,
                label: timeline.labels[storage.label as usize].to_string(),
            };
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    // A node's name holds its layer's.
    if let Some(node) = &failure.node {
        let named = |p: &Place| {
            !p.layer.is_empty()
                && node.split('/').any(|part| part == p.layer.rsplit(['/', '.']).next().unwrap_or(""))
        };
        places.sort_by_key(|p| !named(p));
    }
    places.truncate(PLACES);
    places
}

/// The largest batch whose step fits, by doubling and halving.
fn largest(capacity: Bytes, estimate: &mut impl FnMut(u64) -> Option<Estimate>) -> Option<u64> {
    let mut fits = |batch| Some(estimate(batch)?.peak.device <= capacity);
    if !fits(1)? {
        return Some(0);
    }
    let (mut low, mut high) = (1u64, 2u64);
    while high < LARGEST && fits(high)? {
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? { low = middle } else { high = middle }
    }
    Some(low)
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Setup => "setup",
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::OptimizerStep => "optimizer step",
    }
}

impl Beside {
    /// What it says, sentence by sentence.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        match self.batch {
            Some(batch) => said.push(format!("The batch was {batch} ({}).", self.batch_from)),
            None => {
                said.push("The log does not tell the batch, and no size in it does: give it with -b.".into())
            }
        }
        for place in &self.places {
            said.push(format!(
                "A tensor of the size that failed is {} of {} ({}).",
                place.label,
                place.layer,
                phase_name(place.phase)
            ));
        }
        if let Some(predicted) = self.predicted {
            let verdict = match self.capacity {
                Some(capacity) if predicted > capacity => format!(", more than the {capacity} there were"),
                Some(capacity) => format!(", which fits in {capacity}: look for what else held memory"),
                None => String::new(),
            };
            said.push(format!("That step takes {predicted} on the device{verdict}."));
        }
        match self.fitting {
            Some(0) => said.push("Not even a batch of 1 fits.".into()),
            Some(batch) => said.push(format!("The largest batch that fits is {batch}.")),
            None => {}
        }
        said
    }

    pub(crate) fn json(&self) -> Value {
        let places: Vec<Value> = self
            .places
            .iter()
            .map(|p| json!({"layer": p.layer, "phase": phase_name(p.phase), "tensor": p.label}))
            .collect();
        json!({"batch_size": self.batch, "batch_from": self.batch_from, "places": places,
            "predicted_device_bytes": self.predicted.map(|b| b.0), "capacity_bytes": self.capacity.map(|b| b.0),
            "largest_batch_size": self.fitting})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pytorch_asks_for_a_tensor() {
        assert_eq!(asked(Bytes(100)), Bytes::mib(2));
        assert_eq!(asked(Bytes::mib(3)), Bytes::mib(20));
        assert_eq!(asked(Bytes(Bytes::MIB * 33 + 1)), Bytes::mib(34));
    }
}
