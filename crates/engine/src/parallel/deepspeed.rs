//! ZeRO as DeepSpeed runs it, in the place of PyTorch's own.
//!
//! deepspeed/runtime, 0.19; the names of options and their defaults are those of `zero/config.py`:
//!
//! - Gradients are copied into a bucket of `reduce_bucket_size` elements, taken whole however small the model is: under stages 1 and 2
//!   while backward runs (`stage_1_and_2.py`, `setup_buckets`, `_release_ipg_buffers`), under stage 3 for good (`stage3.py`,
//!   `_setup_for_real_optimizer`). With `overlap_comm`, which is off below stage 3, there would be two.
//! - Stage 3 keeps a GPU's parts of all gradients in one buffer from the beginning (`grad_partitions_flat_buffer`), and parameters of
//!   up to `param_persistence_threshold` elements whole.
//! - A module's parameters are gathered when it runs, and those of the next modules ahead of it: up to `prefetch_bucket_size` elements,
//!   and no more than `max_live_parameters` in all. They go after it has run, unless a module that comes within the next
//!   `max_reuse_distance` elements has them too, as those of the last layers in backward
//!   (`partitioned_param_coordinator.py`, `fetch_sub_module`, `__params_to_release`).
//!
//! `allgather_bucket_size` takes no memory: what is gathered after a step lies in the parameters themselves
//! (`utils.py`, `all_gather_dp_groups`).

use crate::timeline::{Event, EventKind, Storage};
use crate::{Category, Phase, StorageId, Timeline};
use memfit_graph::{Bytes, order};
use std::collections::BTreeMap;
use std::fmt;

/// Its options that decide what is held, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DeepSpeed {
    pub reduce_bucket: u64,
    pub prefetch_bucket: u64,
    pub max_live: u64,
    pub max_reuse: u64,
    pub persistence: u64,
}

impl Default for DeepSpeed {
    fn default() -> DeepSpeed {
        DeepSpeed {
            reduce_bucket: 500_000_000,
            prefetch_bucket: 50_000_000,
            max_live: 1_000_000_000,
            max_reuse: 1_000_000_000,
            persistence: 100_000,
        }
    }
}

impl fmt::Display for DeepSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeepSpeed { reduce_bucket, prefetch_bucket, max_live, max_reuse, persistence } = self;
        write!(
            f,
            "as DeepSpeed shares: reduce_bucket_size {reduce_bucket}; under stage 3 stage3_prefetch_bucket_size \
            {prefetch_bucket}, stage3_max_live_parameters {max_live}, stage3_max_reuse_distance {max_reuse}, \
            stage3_param_persistence_threshold {persistence}; allgather_bucket_size takes no memory"
        )
    }
}

/// What the bucket that gradients are copied into is called.
const BUCKET: &str = "reduce bucket";

/// Adds the bucket of stages 1 and 2, which is there while backward runs. `element` is the bytes of one.
pub(super) fn reduce_in_bucket(timeline: &mut Timeline, options: DeepSpeed, element: u64) {
    let is_backward = |event: &Event| event.phase == Phase::Backward;
    let (Some(first), Some(last)) =
        (timeline.events.iter().position(is_backward), timeline.events.iter().rposition(is_backward))
    else {
        return;
    };
    let (make, free) = (timeline.events[first], timeline.events[last]);
    let storage = buffer(timeline, BUCKET, Bytes(options.reduce_bucket.saturating_mul(element)));
    let make = Event { kind: EventKind::Allocate, storage, ..make };
    let free = Event { kind: EventKind::Free, storage, ..free };
    timeline.insert(order::map([(first, vec![make]), (last + 1, vec![free])]));
}

fn buffer(timeline: &mut Timeline, label: &str, bytes: Bytes) -> StorageId {
    let label = timeline.label(label);
    timeline.add(Storage { bytes, category: Category::Gradient, layer: 0, label })
}

/// A run of a module with parameters of its own.
struct Run {
    at: usize,
    layer: usize,
    phase: Phase,
}

/// Rewrites a step whose stored parameters have been divided by `n` already; `whole` are the storages' sizes before.
pub(super) fn shard_parameters(
    timeline: &mut Timeline,
    n: u64,
    whole: &[Bytes],
    options: DeepSpeed,
    element: u64,
) {
    let mut sizes = vec![Bytes::ZERO; timeline.layers.len()];
    for (storage, bytes) in timeline.storages.iter_mut().zip(whole) {
        if storage.category != Category::Parameter {
            continue;
        }
        if bytes.0 / element <= options.persistence {
            storage.bytes = *bytes;
        } else if let Some(size) = sizes.get_mut(storage.layer as usize) {
            *size += *bytes;
        }
    }
    let mut put: BTreeMap<usize, Vec<Event>> = BTreeMap::new();
    let (moved, buffers) = into_buffers(timeline, &mut put, n, options, element);
    fetch(timeline, &mut put, &sizes, options, element);
    put.entry(timeline.setup_end()).or_default().splice(0..0, buffers);
    timeline.insert(put);
    // A gradient ends where it is copied, and not again.
    let mut ended = vec![false; moved.len()];
    timeline.events.retain(|event| {
        let at = event.storage.0 as usize;
        let is_end = event.kind == EventKind::Free && moved.get(at).copied().unwrap_or(false);
        !(is_end && std::mem::replace(&mut ended[at], true))
    });
}

/// Copies gradients into the bucket as soon as their module has run; gives them, and the events that make the bucket and the buffer
/// with a GPU's parts of them.
fn into_buffers(
    timeline: &mut Timeline,
    put: &mut BTreeMap<usize, Vec<Event>>,
    n: u64,
    options: DeepSpeed,
    element: u64,
) -> (Vec<bool>, Vec<Event>) {
    let (mut moved, mut layer) = (vec![false; timeline.storages.len()], None);
    let mut pending: Vec<StorageId> = Vec::new();
    let mut parts = [Bytes::ZERO; 2];
    let events = std::mem::take(&mut timeline.events);
    for (at, event) in events.iter().enumerate() {
        if layer != Some(event.layer) || event.phase == Phase::OptimizerStep {
            for storage in pending.drain(..) {
                put.entry(at).or_default().push(Event { kind: EventKind::Free, storage, ..*event });
                moved[storage.0 as usize] = true;
            }
            layer = Some(event.layer);
        }
        let storage = &mut timeline.storages[event.storage.0 as usize];
        let part = Bytes(storage.bytes.0.div_ceil(n));
        match (event.kind, event.phase) {
            // It did not live until its module was done.
            (EventKind::Free, _) => pending.retain(|id| *id != event.storage),
            _ if storage.category != Category::Gradient => {}
            (_, Phase::Backward) => {
                pending.push(event.storage);
                parts[0] += part;
            }
            // What earlier micro-batches left is in the buffer.
            (_, Phase::Setup) => {
                storage.bytes = Bytes::ZERO;
                parts[1] += part;
            }
            _ => {}
        }
    }
    let mut buffers = Vec::new();
    if let Some(first) = events.first().filter(|_| parts[0] > Bytes::ZERO) {
        let bucket = Bytes(options.reduce_bucket.saturating_mul(element));
        let all = parts[0].max(parts[1]);
        for (label, bytes) in [(BUCKET, bucket), ("parts of gradients", all)] {
            let storage = buffer(timeline, label, bytes);
            buffers.push(Event { kind: EventKind::Allocate, storage, phase: Phase::Setup, ..*first });
        }
    }
    timeline.events = events;
    (moved, buffers)
}

/// Gathers parameters as modules run, and lets them go.
fn fetch(
    timeline: &mut Timeline,
    put: &mut BTreeMap<usize, Vec<Event>>,
    sizes: &[Bytes],
    options: DeepSpeed,
    element: u64,
) {
    let mut runs: Vec<Run> = Vec::new();
    let mut end = timeline.events.len();
    for (at, event) in timeline.events.iter().enumerate() {
        let layer = event.layer as usize;
        match event.phase {
            Phase::Setup => {}
            Phase::Forward | Phase::Backward => {
                let has = sizes.get(layer).is_some_and(|size| *size > Bytes::ZERO);
                let phase = event.phase;
                if has && runs.last().is_none_or(|run| (run.layer, run.phase) != (layer, phase)) {
                    runs.push(Run { at, layer, phase });
                }
            }
            Phase::OptimizerStep => end = end.min(at),
        }
    }
    let elements = |layer: usize| sizes.get(layer).map_or(0, |size| size.0 / element);
    let label = timeline.label("gathered parameters");
    let mut live: BTreeMap<usize, StorageId> = BTreeMap::new();
    for (k, run) in runs.iter().enumerate() {
        let here = timeline.events[run.at];
        let events = put.entry(run.at).or_default();
        // What the module before leaves.
        if let Some(before) = k.checked_sub(1).and_then(|k| runs.get(k)) {
            let mut distance = 0_u64;
            let soon = runs[k..].iter().take_while(|next| {
                let is_near = distance < options.max_reuse;
                distance = distance.saturating_add(elements(next.layer));
                is_near
            });
            let is_kept = soon.map(|next| next.layer).any(|layer| layer == before.layer);
            if let Some(storage) = live.remove(&before.layer) {
                if is_kept {
                    live.insert(before.layer, storage);
                } else {
                    events.push(Event { kind: EventKind::Free, storage, ..here });
                }
            }
        }
        let held: u64 = live.keys().chain([&run.layer]).map(|layer| elements(*layer)).sum();
        let most = options.max_live.saturating_sub(held).min(options.prefetch_bucket);
        let mut ahead = 0;
        for (i, next) in runs[k..].iter().enumerate() {
            if i > 0 && ahead >= most {
                break;
            }
            if live.contains_key(&next.layer) {
                continue;
            }
            let (bytes, layer) = (sizes[next.layer], here.layer);
            let storage = timeline.add(Storage { bytes, category: Category::Transient, layer, label });
            events.push(Event { kind: EventKind::Allocate, storage, ..here });
            live.insert(next.layer, storage);
            ahead += if i > 0 { elements(next.layer) } else { 0 };
        }
    }
    if let Some(last) = timeline.events.get(end.saturating_sub(1)).copied() {
        let frees = live.into_values().map(|storage| Event { kind: EventKind::Free, storage, ..last });
        put.entry(end).or_default().extend(frees);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::highest;

    /// Three layers of 1,000 elements with an activation and a gradient each, and a small one.
    fn step() -> Timeline {
        let layers = ["a", "b", "c", "norm"].map(Into::into).to_vec();
        let mut timeline = Timeline { layers, ..Timeline::default() };
        let label = timeline.label("w");
        let make = |timeline: &mut Timeline, category, layer, bytes, phase| {
            let storage = timeline.add(Storage { bytes: Bytes(bytes), category, layer, label });
            timeline.events.push(Event { kind: EventKind::Allocate, storage, phase, layer });
        };
        for (layer, bytes) in [(0, 4_000), (1, 4_000), (2, 4_000), (3, 40)] {
            make(&mut timeline, Category::Parameter, layer, bytes, Phase::Setup);
        }
        for layer in 0..3 {
            make(&mut timeline, Category::Activation, layer, 1, Phase::Forward);
        }
        for layer in [2, 1, 0] {
            make(&mut timeline, Category::Gradient, layer, 4_000, Phase::Backward);
        }
        make(&mut timeline, Category::Transient, 0, 1, Phase::OptimizerStep);
        timeline
    }

    fn options() -> DeepSpeed {
        DeepSpeed { reduce_bucket: 100, prefetch_bucket: 0, max_live: 10_000, max_reuse: 0, persistence: 10 }
    }

    /// The most that is held of what is called so.
    fn most(timeline: &Timeline, label: &str) -> u64 {
        let mut only = timeline.clone();
        for storage in &mut only.storages {
            if &*timeline.labels[storage.label as usize] != label {
                storage.bytes = Bytes::ZERO;
            }
        }
        highest(&only, 1).0
    }

    fn sharded(options: DeepSpeed) -> Timeline {
        let mut timeline = step();
        let whole: Vec<Bytes> = timeline.storages.iter().map(|s| s.bytes).collect();
        shard_parameters(&mut timeline, 10, &whole, options, 4);
        timeline
    }

    #[test]
    fn a_bucket_is_there_while_backward_runs_or_for_good() {
        let mut timeline = step();
        reduce_in_bucket(&mut timeline, options(), 4);
        assert_eq!(most(&timeline, BUCKET), 400);
        let ends = timeline.events.iter().filter(|e| e.kind == EventKind::Free).count();
        assert_eq!((ends, timeline.events.last().unwrap().phase), (1, Phase::OptimizerStep));
        let timeline = sharded(options());
        assert_eq!((most(&timeline, BUCKET), most(&timeline, "parts of gradients")), (400, 3 * 400));
        assert!(timeline.events.iter().all(|e| e.storage.0 != u32::MAX));
        // The small parameter and one whole gradient at a time.
        assert_eq!(timeline.storages[3].bytes, Bytes(40));
        let gradients = timeline.events.iter().filter(|e| e.kind == EventKind::Free && e.storage.0 >= 7);
        assert!(gradients.count() >= 3);
    }

    #[test]
    fn parameters_stay_that_are_used_again_soon() {
        let gathered = |options| most(&sharded(options), "gathered parameters");
        assert_eq!(gathered(options()), 4_000);
        // The last layer's run in backward follows at once; from the second to its own lie two layers.
        assert_eq!(gathered(DeepSpeed { max_reuse: 3_000, ..options() }), 8_000);
        assert_eq!(gathered(DeepSpeed { max_reuse: 100_000, ..options() }), 12_000);
        // The last, in backward, with the second, which was there already, and the first.
        assert_eq!(gathered(DeepSpeed { prefetch_bucket: 1, ..options() }), 12_000);
        assert_eq!(gathered(DeepSpeed { prefetch_bucket: 1, max_live: 1_000, ..options() }), 4_000);
        assert_eq!(gathered(DeepSpeed { persistence: 1_000, ..options() }), 0);
    }
}
