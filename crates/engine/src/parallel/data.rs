//! Data parallel training: copies of gradients, or shards of what ZeRO and FSDP split.
//!
//! A step is rewritten as the framework would run it on each GPU, at the batch size of one GPU:
//!
//! - DDP copies gradients into buckets that live as long as the model does, the first of 1 MiB, the others of 25
//!   (`torch/nn/parallel/distributed.py`, `_DEFAULT_BUCKET_CAP_MB`; `torch/csrc/distributed/c10d/reducer.cpp`).
//! - ZeRO 1 splits the optimizer's state and its step, ZeRO 2 the gradients too, ZeRO 3 and FSDP the parameters (Rajbhandari et
//!   al., arXiv 1910.02054; `torch.distributed.fsdp`). A gradient is whole until its layer is done.
//! - What is split is gathered again while it is used, a repeated block at a time, the next one being fetched while one runs.

use super::Sharding;
use crate::timeline::{Event, EventKind, Storage};
use crate::{Category, Phase, StorageId, Timeline};
use memfit_graph::{Bytes, order};
use std::collections::BTreeMap;

const FIRST_BUCKET: Bytes = Bytes::mib(1);
const BUCKET: Bytes = Bytes::mib(25);

/// The step as one of `n` GPUs runs it.
pub(super) fn apply(timeline: &mut Timeline, sharding: Sharding, n: u64) {
    let split = |category: Category| match category {
        Category::OptimizerState => sharding != Sharding::Ddp,
        Category::Parameter => sharding == Sharding::Zero3,
        _ => false,
    };
    let whole: Vec<Bytes> = timeline.storages.iter().map(|s| s.bytes).collect();
    let (temporary, kept) = (made_in(timeline, Phase::OptimizerStep), made_in(timeline, Phase::Setup));
    let shards_gradients = matches!(sharding, Sharding::Zero2 | Sharding::Zero3);
    for ((storage, temporary), kept) in timeline.storages.iter_mut().zip(temporary).zip(kept) {
        // Gradients that an earlier micro-batch left have been summed and split.
        let left = kept && shards_gradients && storage.category == Category::Gradient;
        if split(storage.category) || left || (temporary && sharding != Sharding::Ddp) {
            storage.bytes = Bytes(storage.bytes.0.div_ceil(n));
        }
    }
    match sharding {
        // DDP reduces for ZeRO 1 too.
        Sharding::Ddp | Sharding::Zero1 => buckets(timeline),
        Sharding::Zero2 => shard_gradients(timeline, n),
        Sharding::Zero3 => {
            shard_gradients(timeline, n);
            gather(timeline, &whole);
        }
    }
}

/// By storage, whether it comes to life in a phase.
fn made_in(timeline: &Timeline, phase: Phase) -> Vec<bool> {
    let mut made = vec![false; timeline.storages.len()];
    for event in timeline.events.iter().filter(|e| e.kind == EventKind::Allocate && e.phase == phase) {
        made[event.storage.0 as usize] = true;
    }
    made
}

/// DDP's buckets, made when the model is wrapped.
fn buckets(timeline: &mut Timeline) {
    let gradients = timeline.storages.iter().filter(|s| s.category == Category::Gradient);
    let mut left: Bytes = gradients.map(|s| s.bytes).sum();
    let (label, at) = (timeline.label("gradient bucket"), timeline.setup_end());
    let (mut size, mut made) = (FIRST_BUCKET, Vec::new());
    while left > Bytes::ZERO {
        let bytes = left.min(size);
        let storage = timeline.add(Storage { bytes, category: Category::Gradient, layer: 0, label });
        made.push(Event { kind: EventKind::Allocate, storage, phase: Phase::Setup, layer: 0 });
        (left, size) = (left - bytes, BUCKET);
    }
    timeline.insert(order::map([(at, made)]));
}

/// A gradient is whole while its layer runs; then the sum over all GPUs is made and each keeps its part.
fn shard_gradients(timeline: &mut Timeline, n: u64) {
    let events = timeline.events.clone();
    let mut before: BTreeMap<usize, Vec<Event>> = BTreeMap::new();
    let mut pending: Vec<StorageId> = Vec::new();
    let mut shards: BTreeMap<StorageId, StorageId> = BTreeMap::new();
    let mut layer = None;
    let label = timeline.label("gradient shard");
    for (i, event) in events.iter().enumerate() {
        if layer != Some(event.layer) || event.phase == Phase::OptimizerStep {
            for whole in pending.drain(..) {
                let storage = timeline.storages[whole.0 as usize];
                let shard =
                    timeline.add(Storage { bytes: Bytes(storage.bytes.0.div_ceil(n)), label, ..storage });
                let at = Event { kind: EventKind::Allocate, storage: shard, ..*event };
                before
                    .entry(i)
                    .or_default()
                    .extend([at, Event { kind: EventKind::Free, storage: whole, ..*event }]);
                shards.insert(whole, shard);
            }
            layer = Some(event.layer);
        }
        let gradient = timeline.storages[event.storage.0 as usize].category == Category::Gradient;
        match event.kind {
            EventKind::Allocate if gradient && event.phase == Phase::Backward => pending.push(event.storage),
            // It did not live until its layer was done.
            EventKind::Free => pending.retain(|id| *id != event.storage),
            EventKind::Allocate => {}
        }
    }
    for event in &mut timeline.events {
        if event.kind == EventKind::Free
            && let Some(shard) = shards.get(&event.storage)
        {
            event.storage = *shard;
        }
    }
    timeline.insert(before);
}

/// Parameters of a block are whole while it runs, and while the one before it does.
fn gather(timeline: &mut Timeline, whole: &[Bytes]) {
    let units: Vec<String> = timeline.layers.iter().map(|name| unit(name)).collect();
    let mut sizes: BTreeMap<&str, Bytes> = BTreeMap::new();
    for (storage, bytes) in timeline.storages.iter().zip(whole) {
        if storage.category == Category::Parameter
            && let Some(unit) = units.get(storage.layer as usize)
        {
            *sizes.entry(unit).or_default() += *bytes;
        }
    }
    let events = timeline.events.clone();
    let label = timeline.label("gathered parameters");
    let mut before: BTreeMap<usize, Vec<Event>> = BTreeMap::new();
    let mut held: Vec<(&str, StorageId)> = Vec::new();
    for (i, event) in events.iter().enumerate() {
        let runs = matches!(event.phase, Phase::Forward | Phase::Backward);
        let free = |(_, storage)| Event { kind: EventKind::Free, storage, ..*event };
        if !runs {
            if !held.is_empty() {
                before.insert(i, held.drain(..).map(free).collect());
            }
            continue;
        }
        let Some(unit) = units.get(event.layer as usize).map(String::as_str) else { continue };
        if held.iter().any(|(of, _)| *of == unit) {
            continue;
        }
        let Some(bytes) = sizes.get(unit).copied().filter(|b| *b > Bytes::ZERO) else { continue };
        let mut put = Vec::new();
        if held.len() > 1 {
            put.push(free(held.remove(0)));
        }
        let layer = event.layer;
        let storage = timeline.add(Storage { bytes, category: Category::Transient, layer, label });
        put.push(Event { kind: EventKind::Allocate, storage, ..*event });
        held.push((unit, storage));
        before.insert(i, put);
    }
    let last = events.len();
    if let Some(event) = events.last() {
        let freed = held.into_iter().map(|(_, id)| Event { kind: EventKind::Free, storage: id, ..*event });
        before.entry(last).or_default().extend(freed);
    }
    timeline.insert(before);
}

/// The block that a layer is in: its path up to the first number, else its first component.
pub(super) fn unit(layer: &str) -> String {
    let parts: Vec<&str> = layer.split('.').collect();
    let number = parts.iter().position(|part| part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty());
    parts.get(..=number.unwrap_or(0)).map(|p| p.join(".")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_a_repeated_block() {
        let units = ["layer1.0.conv2", "h.11", "conv1", "encoder.layer.3.attention.self"].map(unit);
        assert_eq!(units, ["layer1.0", "h.11", "conv1", "encoder.layer.3"]);
    }
}
