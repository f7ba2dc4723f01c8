//! Reads a timeline off at its highest point.
//!
//! The exact allocator: every request is rounded up to a block and nothing else is lost. What the framework's allocator and
//! the driver hold on top of that is added afterwards.

use crate::allocators::Replay;
use crate::devices::{Device, context::ContextItem};
use crate::range::{self, Slack};
use crate::{Breakdown, Category, Event, EventKind, LiveTensor, Peak, Phase, StorageId, Timeline};
use memfit_graph::Bytes;

/// The state at the highest point.
pub(crate) struct AtPeak {
    pub(crate) peak: Peak,
    pub(crate) breakdown: Breakdown,
    /// By layer of the timeline.
    pub(crate) layers: Vec<Breakdown>,
    /// Tensors alive, largest first.
    pub(crate) largest: Vec<LiveTensor>,
}

impl AtPeak {
    /// Adds what the allocator and the driver hold beyond tensors. Segments may be held longest at another moment than tensors
    /// are; what counts is that they were. A kernel on trial has no more than there is on the `card`.
    pub(crate) fn hold(&mut self, open: &Replay, context: &ContextItem, slack: Slack, card: Option<&Device>) {
        let peak = &mut self.peak;
        peak.reserved = open.peak_reserved.usage.reserved.max(peak.allocated);
        peak.device = peak.reserved + context.expected;
        let room = card.map_or(Bytes(u64::MAX), |card| card.usable().saturating_sub(context.high));
        let search = open.peak_search.usage.reserved.min(room);
        let ends = range::device(peak.allocated, peak.reserved, search, context, slack);
        (peak.device_low, peak.device_high) = (ends.low.min(peak.device), ends.high.max(peak.device));
        self.breakdown.allocator = peak.reserved - peak.allocated;
        self.breakdown.context = context.expected;
    }
}

/// How many of the largest tensors at the peak are listed.
const LISTED: usize = 20;

/// The highest point alone, without what kernels can do without: what a step needs at least.
pub(crate) fn highest(timeline: &Timeline, block: u64) -> Bytes {
    let (mut live, mut highest) = (Bytes::ZERO, Bytes::ZERO);
    for event in &timeline.events {
        if timeline.optional.binary_search(&event.storage).is_ok() {
            continue;
        }
        let bytes = timeline.storages[event.storage.0 as usize].bytes.round_up(block);
        match event.kind {
            EventKind::Allocate => live += bytes,
            EventKind::Free => live -= bytes,
        }
        highest = highest.max(live);
    }
    highest
}

/// Replays a timeline whose requests are rounded up to `block` bytes.
pub(crate) fn peak(timeline: &Timeline, block: u64) -> AtPeak {
    let sizes: Vec<Bytes> = timeline.storages.iter().map(|s| s.bytes.round_up(block)).collect();
    let size = |id: StorageId| sizes[id.0 as usize];
    let mut category: Vec<Category> = timeline.storages.iter().map(|s| s.category).collect();
    let (mut live, mut highest, mut at) = (Bytes::ZERO, Bytes::ZERO, None::<usize>);
    for (i, event) in timeline.events.iter().enumerate() {
        match event.kind {
            EventKind::Allocate => {
                live += size(event.storage);
                if live > highest {
                    (highest, at) = (live, Some(i));
                }
            }
            EventKind::Free => {
                live -= size(event.storage);
                // An activation that is freed before forward ends is a transient.
                let category = &mut category[event.storage.0 as usize];
                if event.phase == Phase::Forward && *category == Category::Activation {
                    *category = Category::Transient;
                }
            }
        }
    }
    let happened = at.map_or(&[][..], |i| &timeline.events[..=i]);
    let mut alive = vec![false; timeline.storages.len()];
    for event in happened {
        alive[event.storage.0 as usize] = event.kind == EventKind::Allocate;
    }
    let mut breakdown = Breakdown::default();
    let mut layers = vec![Breakdown::default(); timeline.layers.len()];
    // Largest first, the earliest of equals.
    let mut largest: Vec<(Bytes, StorageId)> = Vec::with_capacity(LISTED + 1);
    for (id, storage) in (0..).map(StorageId).zip(&timeline.storages).filter(|(id, _)| alive[id.0 as usize]) {
        let (bytes, category) = (size(id), category[id.0 as usize]);
        breakdown.add(category, bytes);
        layers[storage.layer as usize].add(category, bytes);
        let least = largest.get(LISTED - 1).map_or(Bytes::ZERO, |(least, _)| *least);
        if bytes > least {
            largest.insert(largest.partition_point(|(other, _)| *other >= bytes), (bytes, id));
            largest.truncate(LISTED);
        }
    }
    let named = |(bytes, id): (Bytes, StorageId)| {
        let storage = &timeline.storages[id.0 as usize];
        LiveTensor {
            label: String::from(&*timeline.labels[storage.label as usize]),
            layer: String::from(&*timeline.layers[storage.layer as usize]),
            category: category[id.0 as usize],
            bytes,
        }
    };
    let moment: Option<&Event> = at.map(|i| &timeline.events[i]);
    let peak = Peak {
        allocated: highest,
        reserved: highest,
        device: highest,
        device_low: highest,
        device_high: highest,
        phase: moment.map_or(Phase::Setup, |e| e.phase),
        layer: moment.map_or_else(String::new, |e| timeline.layers[e.layer as usize].to_string()),
    };
    AtPeak { peak, breakdown, layers, largest: largest.into_iter().map(named).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Storage;

    #[test]
    fn rows_and_categories_re_add_to_the_peak() {
        let mut t = Timeline {
            layers: vec!["a".into(), "b".into()],
            labels: vec!["x".into()],
            ..Timeline::default()
        };
        let event = |t: &mut Timeline, kind, id: u32, phase, layer| {
            t.events.push(Event { kind, storage: StorageId(id), phase, layer });
        };
        for (bytes, category, layer) in
            [(100, Category::Parameter, 0), (600, Category::Activation, 0), (512, Category::Activation, 1)]
        {
            t.storages.push(Storage { bytes: Bytes(bytes), category, layer, label: 0 });
        }
        event(&mut t, EventKind::Allocate, 0, Phase::Setup, 0);
        event(&mut t, EventKind::Allocate, 1, Phase::Forward, 0);
        event(&mut t, EventKind::Allocate, 2, Phase::Forward, 1);
        event(&mut t, EventKind::Free, 1, Phase::Forward, 1);
        let at = peak(&t, 512);
        assert_eq!(at.peak.allocated, Bytes(512 + 1024 + 512));
        assert_eq!((at.peak.phase, &*at.peak.layer), (Phase::Forward, "b"));
        assert_eq!(at.breakdown.allocated(), at.peak.allocated);
        assert_eq!(at.breakdown.transients, Bytes(1024));
        assert_eq!(at.layers.iter().map(Breakdown::allocated).sum::<Bytes>(), at.peak.allocated);
        assert_eq!(at.largest[0].bytes, Bytes(1024));
    }
}
