//! Data parallel training: copies of gradients, or shards of what ZeRO and FSDP split.
//!
//! A step is rewritten as the framework would run it on each GPU, at the batch size of one GPU:
//!
//! - DDP copies gradients into buckets that live as long as the model does, the first of 1 MiB and more, the others of 25
//!   (`torch/nn/parallel/distributed.py`, `_DEFAULT_BUCKET_CAP_MB`; `torch/csrc/distributed/c10d/reducer.cpp`).
//! - ZeRO 1 splits the optimizer's state and its step, ZeRO 2 the gradients too, ZeRO 3 and FSDP the parameters (Rajbhandari et
//!   al., arXiv 1910.02054; `torch.distributed.fsdp`). A gradient is whole until its layer is done. PyTorch's ZeRO 2 is FSDP that keeps
//!   parameters whole from forward to backward, beside the parts that the optimizer steps.
//!
//! What is gathered again while it is used stands in `fsdp`, what DeepSpeed does in the place of all this in `deepspeed`.

use super::deepspeed::{self, DeepSpeed};
use super::{Sharding, fsdp};
use crate::step::AVERAGED;
use crate::timeline::{Event, EventKind, Storage};
use crate::{Category, Phase, StorageId, Timeline};
use memfit_graph::{Bytes, order};
use std::collections::{BTreeMap, BTreeSet};

const FIRST_BUCKET: Bytes = Bytes::mib(1);
const BUCKET: Bytes = Bytes::mib(25);

/// The step as one of `n` GPUs runs it. DeepSpeed's options come with the bytes of one of their elements.
pub(super) fn apply(
    timeline: &mut Timeline,
    sharding: Sharding,
    n: u64,
    by_deepspeed: Option<(DeepSpeed, u64)>,
) {
    // An averaged model is a copy of its own; the copy of what is split is split.
    let averaged = timeline.labels.iter().position(|label| **label == *AVERAGED);
    let splits_parameters =
        sharding == Sharding::Zero3 || (sharding == Sharding::Zero2 && by_deepspeed.is_none());
    let split = |storage: &Storage| match storage.category {
        Category::OptimizerState if Some(storage.label as usize) == averaged => splits_parameters,
        Category::OptimizerState => sharding != Sharding::Ddp,
        Category::Parameter => splits_parameters,
        _ => false,
    };
    let whole: Vec<Bytes> = timeline.storages.iter().map(|s| s.bytes).collect();
    let (temporary, kept) = (made_in(timeline, Phase::OptimizerStep), made_in(timeline, Phase::Setup));
    let shards_gradients = matches!(sharding, Sharding::Zero2 | Sharding::Zero3);
    for ((storage, temporary), kept) in timeline.storages.iter_mut().zip(temporary).zip(kept) {
        // Gradients that an earlier micro-batch left have been summed and split.
        let left = kept && shards_gradients && storage.category == Category::Gradient;
        if split(storage) || left || (temporary && sharding != Sharding::Ddp) {
            storage.bytes = Bytes(storage.bytes.0.div_ceil(n));
        }
    }
    match (sharding, by_deepspeed) {
        // DDP reduces for ZeRO 1 too.
        (Sharding::Ddp, _) | (Sharding::Zero1, None) => buckets(timeline),
        (Sharding::Zero2 | Sharding::Zero3, None) => {
            fsdp::apply(timeline, n, &whole, sharding == Sharding::Zero2);
        }
        (Sharding::Zero1 | Sharding::Zero2, Some((options, element))) => {
            shard_gradients(timeline, n, sharding == Sharding::Zero1);
            deepspeed::reduce_in_bucket(timeline, options, element);
        }
        (Sharding::Zero3, Some((options, element))) => {
            deepspeed::shard_parameters(timeline, n, &whole, options, element);
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

/// DDP's buckets, made when the model is wrapped: of whole gradients in the order in which they come, until there are as many bytes as a
/// bucket should have (reducer.cpp, `compute_bucket_assignment_by_size`).
fn buckets(timeline: &mut Timeline) {
    // One for each parameter: what a step finds of the last one gives way to its own.
    let replaced: BTreeSet<usize> = timeline.carried.iter().map(|(old, _)| old.0 as usize).collect();
    let gradients = timeline.storages.iter().enumerate();
    let gradients =
        gradients.filter(|(i, s)| s.category == Category::Gradient && !replaced.contains(i)).map(|(_, s)| s);
    let (mut full, mut open) = (Vec::new(), Bytes::ZERO);
    for gradient in gradients {
        open += gradient.bytes;
        let least = if full.is_empty() { FIRST_BUCKET } else { BUCKET };
        if open >= least {
            full.push(std::mem::take(&mut open));
        }
    }
    full.extend(Some(open).filter(|bytes| *bytes > Bytes::ZERO));
    let (label, at) = (timeline.label("gradient bucket"), timeline.setup_end());
    let made = full.into_iter().map(|bytes| {
        let storage = timeline.add(Storage { bytes, category: Category::Gradient, layer: 0, label });
        Event { kind: EventKind::Allocate, storage, phase: Phase::Setup, layer: 0 }
    });
    let made = made.collect();
    timeline.insert(order::map([(at, made)]));
}

/// The part of a gradient that one of `n` GPUs keeps.
pub(super) fn shard_of(timeline: &mut Timeline, whole: StorageId, n: u64) -> StorageId {
    let label = timeline.label("gradient shard");
    let storage = timeline.storages[whole.0 as usize];
    timeline.add(Storage { bytes: Bytes(storage.bytes.0.div_ceil(n)), label, ..storage })
}

/// A gradient is whole while its layer runs, or until backward is done; then the sum over all GPUs is made and each keeps its part.
fn shard_gradients(timeline: &mut Timeline, n: u64, at_end: bool) {
    let events = timeline.events.clone();
    let mut before: BTreeMap<usize, Vec<Event>> = BTreeMap::new();
    let mut pending: Vec<StorageId> = Vec::new();
    let mut shards: BTreeMap<StorageId, StorageId> = BTreeMap::new();
    let mut layer = None;
    for (i, event) in events.iter().enumerate() {
        if (layer != Some(event.layer) && !at_end) || event.phase == Phase::OptimizerStep {
            for whole in pending.drain(..) {
                let shard = shard_of(timeline, whole, n);
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

/// What a layer is a part of where nothing repeats: its path up to the first number, else its first component.
pub(super) fn unit(layer: &str) -> String {
    let parts: Vec<&str> = layer.split('.').collect();
    let number = parts.iter().position(|part| part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty());
    parts.get(..=number.unwrap_or(0)).map(|p| p.join(".")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradient_is_in_one_bucket() {
        let mut timeline = Timeline::default();
        let label = timeline.label("gradient");
        for kib in [1024, 2, 500 << 10, 2, 2] {
            let bytes = Bytes(kib << 10);
            timeline.add(Storage { bytes, category: Category::Gradient, layer: 0, label });
        }
        buckets(&mut timeline);
        let kib: Vec<u64> = timeline.storages[5..].iter().map(|s| s.bytes.0 >> 10).collect();
        assert_eq!(kib, [1024, (500 << 10) + 2, 4]);
        assert_eq!(timeline.events.len(), 3);
    }

    #[test]
    fn a_gradient_that_gives_way_to_the_next_one_is_in_no_bucket() {
        let mut timeline = Timeline::default();
        let label = timeline.label("gradient");
        let gradient = Storage { bytes: Bytes::mib(2), category: Category::Gradient, layer: 0, label };
        let [old, new] = [timeline.add(gradient), timeline.add(gradient)];
        timeline.carried.push((old, new));
        buckets(&mut timeline);
        assert_eq!(timeline.storages[2..].iter().map(|s| s.bytes).sum::<Bytes>(), Bytes::mib(2));
    }

    #[test]
    fn a_unit_is_a_repeated_block() {
        let units = ["layer1.0.conv2", "h.11", "conv1", "encoder.layer.3.attention.self"].map(unit);
        assert_eq!(units, ["layer1.0", "h.11", "conv1", "encoder.layer.3"]);
    }
}
