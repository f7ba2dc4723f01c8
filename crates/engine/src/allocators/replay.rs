//! Runs a timeline through an allocator.

use super::{Allocator, Block, OutOfMemory, Usage};
use crate::{Category, Event, EventKind, Phase, Search, StorageId, Timeline};
use memfit_graph::Bytes;
use std::ops::Range;
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
    /// The first moment with the most allocated; `event` is an index into the timeline in every step.
    pub peak_allocated: Moment,
    /// The first moment with the most reserved.
    pub peak_reserved: Moment,
    /// The moment with the most reserved while a kernel's plans are compared, in the first step: what nvidia-smi may show for an
    /// instant. Nothing where there is no search.
    pub peak_search: Moment,
    /// How often the allocator gave everything back and tried again.
    pub retries: u32,
    /// The least that it was not allowed to hold, where there was such and it counts that.
    pub refused: Option<Bytes>,
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

/// How a timeline is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayOptions {
    /// How many steps follow each other, three by default. The second meets the segments that the first has left with the
    /// optimizer's state in between, and reserved memory may grow by a third (VGG-16); in the third it may grow again, and it
    /// was not seen to in a fourth.
    pub steps: u32,
    /// Whether the optimizer's state is there before the first step. By default it comes to life when the optimizer first runs, in
    /// between the gradients.
    pub state_first: bool,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        ReplayOptions { steps: 3, state_first: false }
    }
}

/// Runs the steps of the default through an allocator, up to the first request that can't be met.
pub fn replay<A: Allocator + ?Sized>(timeline: &Timeline, allocator: &mut A) -> Replay {
    replay_with(timeline, allocator, ReplayOptions::default())
}

/// The same, with options.
///
/// In the first step the allocator meets what happens only then: searches for a kernel's plan ([`Timeline::searches`]), and the
/// optimizer's state. When a step ends, what it made in place of its setup stays ([`Timeline::carried`]); all else that it leaves
/// alive is freed: gradients, by `zero_grad`. Those that stood there before it, of earlier micro-batches, stand there before the next
/// step too.
pub fn replay_with<A: Allocator + ?Sized>(
    timeline: &Timeline,
    allocator: &mut A,
    options: ReplayOptions,
) -> Replay {
    let (setup, end) = (timeline.setup_end(), timeline.events.len());
    let mut run = Run {
        timeline,
        found: Replay::default(),
        blocks: vec![None; timeline.storages.len()],
        searches: &timeline.searches,
    };
    let state_comes_late = options.steps > 0 && !options.state_first;
    let is_late = |event: &Event| {
        state_comes_late && timeline.storages[event.storage.0 as usize].category == Category::OptimizerState
    };
    let (mut later, mut lasts) = (Vec::new(), vec![false; timeline.storages.len()]);
    let mut from = 0;
    for events in timeline.events[..setup].chunk_by(|a, b| is_late(a) == is_late(b)) {
        events.iter().for_each(|event| lasts[event.storage.0 as usize] = true);
        let range = from..from + events.len();
        from = range.end;
        if is_late(&events[0]) { later.push(range) } else { run.events(range, allocator) }
    }
    let begins = |event: &Event| event.phase == Phase::OptimizerStep;
    let optimizer = timeline.events[setup..].iter().position(begins).map_or(end, |first| setup + first);
    for step in 0..options.steps {
        let before = allocator.driver_calls();
        if step == 0 {
            run.searched(setup..optimizer, allocator);
            later.drain(..).for_each(|range| run.events(range, allocator));
            run.searched(optimizer..end, allocator);
        } else {
            run.gradients_again(setup, allocator);
            run.events(setup..end, allocator);
        }
        for (old, new) in &timeline.carried {
            run.blocks.swap(old.0 as usize, new.0 as usize);
        }
        for (slot, _) in run.blocks.iter_mut().zip(&lasts).filter(|(_, lasts)| !**lasts) {
            if let Some(block) = slot.take() {
                allocator.free(block);
            }
        }
        // What a step leaves as it found it, the next one finds as this one did. The first makes room for the optimizer's state.
        let is_steady = step > 0 && before.is_some() && before == allocator.driver_calls();
        if is_steady || run.found.failure.is_some() {
            break;
        }
    }
    run.found.retries = allocator.retries();
    run.found.refused = allocator.refused();
    run.found.end = allocator.usage();
    run.found
}

/// A replay on its way.
struct Run<'a> {
    timeline: &'a Timeline,
    found: Replay,
    /// By storage.
    blocks: Vec<Option<Block>>,
    /// Those that are still to come.
    searches: &'a [Search],
}

impl Run<'_> {
    /// Runs events, until something fails.
    fn events<A: Allocator + ?Sized>(&mut self, range: Range<usize>, allocator: &mut A) {
        let end = range.end;
        let mut events = &self.timeline.events[range];
        while let [event, after @ ..] = events
            && self.found.failure.is_none()
        {
            let (index, at) = (end - events.len(), event.storage.0 as usize);
            events = after;
            if event.kind == EventKind::Free {
                if let Some(block) = self.blocks[at].take() {
                    allocator.free(block);
                }
            } else if let [next, later @ ..] = after
                && next.storage == event.storage
                && let Some(usage) = allocator.usage_with(self.timeline.storages[at].bytes)
            {
                // Scratch memory dies in the next event: no block need be cut and joined again for that.
                self.rise_to(index, usage);
                events = later;
            } else {
                self.allocate(index, *event, allocator);
            }
        }
    }

    /// Makes the gradients anew that were there before the step and that it freed: earlier micro-batches leave them again.
    fn gradients_again<A: Allocator + ?Sized>(&mut self, setup: usize, allocator: &mut A) {
        let timeline = self.timeline;
        for (index, event) in timeline.events[..setup].iter().enumerate() {
            let at = event.storage.0 as usize;
            let is_gone = self.blocks[at].is_none() && self.found.failure.is_none();
            if is_gone && timeline.storages[at].category == Category::Gradient {
                self.allocate(index, *event, allocator);
            }
        }
    }

    /// The same with the searches before them and before what follows.
    fn searched<A: Allocator + ?Sized>(&mut self, range: Range<usize>, allocator: &mut A) {
        let (mut from, last) = (range.start, self.timeline.events.len().saturating_sub(1));
        while let [search, rest @ ..] = self.searches
            && search.event <= range.end.min(last)
        {
            self.searches = rest;
            let at = search.event.max(from);
            self.events(from..at, allocator);
            self.search(at, search.trial, allocator);
            from = at;
        }
        self.events(from..range.end, allocator);
    }

    /// Plans are tried with scratch memory of up to `trial` bytes, for which the allocator's free blocks are used where they
    /// are large enough; what it takes is given back, and all that is free with it. A plan that asks for more than there is
    /// is passed over, so this never fails.
    fn search<A: Allocator + ?Sized>(&mut self, index: usize, trial: Bytes, allocator: &mut A) {
        if self.found.failure.is_some() {
            return;
        }
        let usage = allocator.usage();
        let more = if allocator.largest_free() >= trial { Bytes::ZERO } else { trial };
        let reserved = usage.reserved + more;
        if reserved > self.found.peak_search.usage.reserved
            && allocator.limit().is_none_or(|limit| reserved <= limit)
        {
            self.found.peak_search = self.moment(index, Usage { reserved, ..usage });
        }
        allocator.empty_cache();
    }

    fn moment(&self, index: usize, usage: Usage) -> Moment {
        let Event { phase, layer, .. } = self.timeline.events[index];
        Moment { event: index, phase, layer, usage }
    }

    #[cold]
    fn fail(&mut self, index: usize, event: Event, usage: Usage, out_of_memory: OutOfMemory) {
        let label = self.timeline.storages[event.storage.0 as usize].label;
        let named = |names: &[Arc<str>], i: u32| names.get(i as usize).cloned();
        self.found.failure = Some(Failure {
            storage: event.storage,
            label: named(&self.timeline.labels, label).unwrap_or_else(|| "".into()),
            layer: named(&self.timeline.layers, event.layer).unwrap_or_else(|| "".into()),
            moment: self.moment(index, usage),
            out_of_memory,
        });
    }

    fn allocate<A: Allocator + ?Sized>(&mut self, index: usize, event: Event, allocator: &mut A) {
        let at = event.storage.0 as usize;
        let storage = &self.timeline.storages[at];
        let result = allocator.allocate(storage.bytes);
        match result {
            Ok(block) => self.blocks[at] = Some(block),
            Err(_) if self.timeline.optional.binary_search(&event.storage).is_ok() => return,
            Err(out_of_memory) => return self.fail(index, event, allocator.usage(), out_of_memory),
        }
        self.rise_to(index, allocator.usage());
    }

    /// Keeps a moment that is higher than all before it.
    fn rise_to(&mut self, index: usize, usage: Usage) {
        if usage.allocated > self.found.peak_allocated.usage.allocated {
            self.found.peak_allocated = self.moment(index, usage);
        }
        if usage.reserved > self.found.peak_reserved.usage.reserved {
            self.found.peak_reserved = self.moment(index, usage);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ExactAllocator, PytorchAllocator, PytorchAllocatorConfig};
    use super::*;
    use crate::Storage;

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
        assert_eq!((allocated.event, allocated.usage.allocated), (1, Bytes(60 * MIB)));
        assert_eq!((reserved.event, reserved.usage.reserved), (4, Bytes(116 * MIB)));
        assert_eq!(reserved.usage.slack(), Bytes(60 * MIB));
        // Emptying the cache in time saves a part.
        let mut a = PytorchAllocator::new(PytorchAllocatorConfig::default());
        let t = Timeline { searches: vec![Search { event: 4, trial: Bytes(MIB) }], ..t };
        let r = replay(&t, &mut a);
        // The second step's first tensors share the segment of 56, to which one of 30 comes.
        assert_eq!((r.peak_reserved.event, r.peak_reserved.usage.reserved), (1, Bytes(86 * MIB)));
        assert_eq!(r.end, Usage { reserved: Bytes(86 * MIB), ..Usage::default() });
    }

    #[test]
    fn what_takes_a_parameters_place_is_there_in_the_next_step() {
        // A parameter of 10 MiB is left behind for a new one.
        let mut t = timeline(&[('+', 10), ('+', 10), ('-', 0)]);
        t.events[0].phase = Phase::Setup;
        t.carried = vec![(StorageId(0), StorageId(1))];
        let r = replay(&t, &mut ExactAllocator::new(512, None));
        assert_eq!((r.peak_allocated.usage.allocated, r.end.allocated), (Bytes(20 * MIB), Bytes(10 * MIB)));
    }

    #[test]
    fn state_that_is_there_first_is_held_by_the_first_forward() {
        let mut t = timeline(&[('+', 20), ('+', 30), ('-', 1)]);
        (t.events[0].phase, t.storages[0].category) = (Phase::Setup, Category::OptimizerState);
        let peak = |state_first| {
            let options = ReplayOptions { steps: 1, state_first };
            let r = replay_with(&t, &mut ExactAllocator::new(512, None), options);
            r.peak_allocated.usage.allocated
        };
        assert_eq!((peak(true), peak(false)), (Bytes(50 * MIB), Bytes(30 * MIB)));
    }

    #[test]
    fn gradients_of_earlier_micro_batches_stand_beside_the_state_of_the_step_before() {
        // State of 20 MiB, a gradient of 10 that was there before, an activation of 5; the step ends without the gradient.
        let mut t = timeline(&[('+', 20), ('+', 10), ('+', 5), ('-', 2), ('-', 1)]);
        (t.storages[0].category, t.storages[1].category) = (Category::OptimizerState, Category::Gradient);
        t.events[..2].iter_mut().for_each(|event| event.phase = Phase::Setup);
        let r = replay(&t, &mut ExactAllocator::new(512, None));
        assert_eq!(r.peak_allocated.usage.allocated, Bytes(35 * MIB));
        assert_eq!(r.end.allocated, Bytes(20 * MIB));
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
