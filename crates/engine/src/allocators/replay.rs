//! Runs a timeline through an allocator.

use super::{Allocator, OutOfMemory, Usage};
use crate::{EventKind, Phase, StorageId, Timeline};
use memfit_graph::Bytes;
use std::sync::Arc;

/// The allocator's state right after an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The event's index.
    pub event: usize,
    /// Its phase.
    pub phase: Phase,
    /// Its layer, an index into [`Timeline::layers`].
    pub layer: u32,
    /// What was held.
    pub usage: Usage,
    /// The largest free block.
    pub largest_free: Bytes,
    /// How many segments were held.
    pub segments: usize,
}

/// The request at which a replay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whose request.
    pub storage: StorageId,
    /// Its name.
    pub label: Arc<str>,
    /// The layer that ran.
    pub layer: Arc<str>,
    /// The state then; the event's index, phase and layer.
    pub moment: Moment,
    /// The request, and what was free.
    pub out_of_memory: OutOfMemory,
}

/// What a replay found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// The first moment with the most allocated.
    pub peak_allocated: Moment,
    /// The first moment with the most reserved.
    pub peak_reserved: Moment,
    /// How often the allocator gave everything back and tried again.
    pub retries: u32,
    /// What was held at the end.
    pub end: Usage,
    /// Why it did not get to the end.
    pub failure: Option<Failure>,
}

impl Replay {
    /// Whether every request was met.
    pub fn fits(&self) -> bool {
        self.failure.is_none()
    }
}

/// Runs a timeline through an allocator, up to the first request that can't be met.
pub fn replay(timeline: &Timeline, allocator: &mut dyn Allocator) -> Replay {
    replay_emptying(timeline, allocator, &[])
}

/// The same, with [`Allocator::empty_cache`] before each of the events named, in ascending order: PyTorch does so
/// after each search for a convolution's plan.
pub fn replay_emptying(timeline: &Timeline, allocator: &mut dyn Allocator, empty_before: &[usize]) -> Replay {
    let mut replay = Replay::default();
    let mut blocks = vec![None; timeline.storages.len()];
    let mut empty_before = empty_before.iter().peekable();
    for (index, event) in timeline.events.iter().enumerate() {
        while empty_before.next_if(|&&at| at <= index).is_some() {
            allocator.empty_cache();
        }
        let moment = |allocator: &dyn Allocator| Moment {
            event: index,
            phase: event.phase,
            layer: event.layer,
            usage: allocator.usage(),
            largest_free: allocator.largest_free(),
            segments: allocator.segment_count(),
        };
        let at = event.storage.0 as usize;
        let (Some(slot), Some(storage)) = (blocks.get_mut(at), timeline.storages.get(at)) else { continue };
        match event.kind {
            EventKind::Free => {
                if let Some(block) = slot.take() {
                    allocator.free(block);
                }
                continue;
            }
            EventKind::Allocate => match allocator.allocate(storage.bytes) {
                Ok(block) => {
                    if let Some(lost) = slot.replace(block) {
                        allocator.free(lost);
                    }
                }
                Err(out_of_memory) => {
                    let named = |names: &[Arc<str>], i: u32| names.get(i as usize).cloned();
                    replay.failure = Some(Failure {
                        storage: event.storage,
                        label: named(&timeline.labels, storage.label).unwrap_or_else(|| "".into()),
                        layer: named(&timeline.layers, event.layer).unwrap_or_else(|| "".into()),
                        moment: moment(allocator),
                        out_of_memory,
                    });
                    break;
                }
            },
        }
        let usage = allocator.usage();
        if usage.allocated > replay.peak_allocated.usage.allocated {
            replay.peak_allocated = moment(allocator);
        }
        if usage.reserved > replay.peak_reserved.usage.reserved {
            replay.peak_reserved = moment(allocator);
        }
    }
    replay.retries = allocator.retries();
    replay.end = allocator.usage();
    replay
}

#[cfg(test)]
mod tests {
    use super::super::{ExactAllocator, PytorchAllocator, PytorchAllocatorConfig};
    use super::*;
    use crate::{Category, Event, Storage};

    const MIB: u64 = Bytes::MIB;

    /// `+5` allocates 5 MiB, `-0` frees the first storage.
    fn timeline(steps: &[(char, u64)]) -> Timeline {
        let mut t = Timeline { layers: vec!["stem".into()], labels: vec!["x".into()], ..Timeline::default() };
        for &(sign, n) in steps {
            let (kind, storage) = if sign == '+' {
                let bytes = Bytes(n * MIB);
                t.storages.push(Storage { bytes, category: Category::Activation, layer: 0, label: 0 });
                (EventKind::Allocate, StorageId(u32::try_from(t.storages.len() - 1).unwrap()))
            } else {
                (EventKind::Free, StorageId(u32::try_from(n).unwrap()))
            };
            t.events.push(Event { kind, storage, phase: Phase::Forward, layer: 0 });
        }
        t
    }

    #[test]
    fn allocated_and_reserved_peak_at_moments_of_their_own() {
        // 60 MiB live at once, then 55 MiB that no free segment can hold.
        let t = timeline(&[('+', 30), ('+', 30), ('-', 0), ('-', 1), ('+', 55)]);
        let r = replay(&t, &mut PytorchAllocator::new(PytorchAllocatorConfig::default()));
        let (allocated, reserved) = (r.peak_allocated, r.peak_reserved);
        assert_eq!((allocated.event, allocated.usage.allocated, allocated.segments), (1, Bytes(60 * MIB), 2));
        assert_eq!((reserved.event, reserved.usage.reserved), (4, Bytes(116 * MIB)));
        assert_eq!((reserved.usage.slack(), reserved.largest_free), (Bytes(60 * MIB), Bytes(30 * MIB)));
        // Emptying the cache in time saves them.
        let mut a = PytorchAllocator::new(PytorchAllocatorConfig::default());
        assert_eq!(replay_emptying(&t, &mut a, &[4]).peak_reserved.usage.reserved, Bytes(60 * MIB));
    }

    #[test]
    fn a_failure_names_the_request() {
        let t = timeline(&[('+', 30), ('+', 30), ('-', 0), ('+', 40), ('+', 1)]);
        let r = replay(&t, &mut PytorchAllocator::new(PytorchAllocatorConfig::within(Bytes(64 * MIB))));
        let failure = r.failure.unwrap();
        assert_eq!((failure.storage, &*failure.label, &*failure.layer), (StorageId(2), "x", "stem"));
        assert_eq!((failure.moment.event, failure.moment.phase, r.retries), (3, Phase::Forward, 1));
        assert_eq!(failure.out_of_memory.free(), Bytes(34 * MIB));
        assert!(replay(&t, &mut ExactAllocator::new(512, Some(Bytes(71 * MIB)))).fits());
    }
}
