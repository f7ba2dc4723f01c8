//! Pipeline parallel training: each GPU has a stretch of the layers, and micro-batches go through them one after the other.
//!
//! Stretches are of whole blocks, cut so that the one with the most parameters has as few as can be
//! (`deepspeed/runtime/pipe/module.py`, `partition_method="parameters"`). Under the schedule of one forward, one backward
//! (1F1B: Narayanan et al., arXiv 2104.04473; `torch.distributed.pipelining.Schedule1F1B`), stage `s` of `P` has up to `P - s`
//! micro-batches in flight, so it keeps what backward needs of so many. What arrives from a neighbour is a tensor of its own.
//! The step that comes out is that of the stage that holds most.

use super::data::unit;
use crate::timeline::{Event, EventKind, Storage};
use crate::{Category, Phase, Timeline, blocks, replay};
use memfit_graph::{Bytes, order};

/// Blocks that tensors are rounded up to where stages are compared.
const BLOCK: u64 = 512;

/// Makes the step that of the fullest stage; gives the layers that it has, and says which it is.
pub(super) fn apply(timeline: &mut Timeline, stages: u32, micro_batches: u32) -> (Vec<bool>, String) {
    let stage_of = stages_of(timeline, stages as usize);
    let made = stage_of.iter().max().map_or(1, |last| last + 1);
    let in_flight = |s: usize| (made - s).min(micro_batches as usize);
    let run = |s: usize| (s, of_stage(timeline, &stage_of, s, made, in_flight(s)));
    // Of equals the first, which has the most micro-batches in flight.
    let fullest = (0..made).rev().map(run).max_by_key(|(_, step)| replay::highest(step, BLOCK));
    let s = fullest.map_or(0, |(s, step)| {
        *timeline = step;
        s
    });
    let says = format!(
        "{made} pipeline stages, cut by parameters; the step is that of stage {}, with {} of at least {micro_batches} \
         micro-batches in flight (1F1B)",
        s + 1,
        in_flight(s)
    );
    (stage_of.iter().map(|stage| *stage == s).collect(), says)
}

/// By layer, its stage: blocks in forward order, cut so that the most parameters of a stage are as few as can be.
fn stages_of(timeline: &Timeline, stages: usize) -> Vec<usize> {
    let mut own = vec![0_u64; timeline.layers.len()];
    for storage in timeline.storages.iter().filter(|s| s.category == Category::Parameter) {
        if let Some(own) = own.get_mut(storage.layer as usize) {
            *own = own.saturating_add(storage.bytes.0);
        }
    }
    // Neighbours in the same block.
    let names = timeline.layers.iter().map(|name| &**name);
    let repeated = blocks::of(names);
    let mut blocks: Vec<(String, u64)> = Vec::new();
    let mut block_of = vec![0; timeline.layers.len()];
    for (i, layer) in timeline.layers.iter().enumerate() {
        let name = repeated.get(i).copied().flatten().map_or_else(|| unit(layer), str::to_owned);
        match blocks.last_mut() {
            // Names in parentheses are no layers of the model.
            _ if layer.starts_with('(') => {}
            Some((last, bytes)) if *last == name => *bytes = bytes.saturating_add(own[i]),
            _ => blocks.push((name, own[i])),
        }
        block_of[i] = blocks.len().saturating_sub(1);
    }
    let sizes: Vec<u64> = blocks.iter().map(|(_, bytes)| *bytes).collect();
    let (mut low, mut high) =
        (sizes.iter().copied().max().unwrap_or(0), sizes.iter().fold(0, |a: u64, b| a.saturating_add(*b)));
    while low < high {
        let middle = low + (high - low) / 2;
        if cut(&sizes, middle, stages).iter().max().is_none_or(|last| *last < stages) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let stage_of_block = cut(&sizes, low, stages);
    block_of.iter().map(|b| stage_of_block.get(*b).copied().unwrap_or(0)).collect()
}

/// By block, its stage, where none has more than `most`. Later stages get a block each at least.
fn cut(sizes: &[u64], most: u64, stages: usize) -> Vec<usize> {
    let (mut stage, mut filled) = (0, 0_u64);
    let mut out = Vec::with_capacity(sizes.len());
    for (i, size) in sizes.iter().enumerate() {
        let is_needed = sizes.len() - i < stages.saturating_sub(stage);
        if i > 0 && (filled.saturating_add(*size) > most || is_needed) {
            (stage, filled) = (stage + 1, 0);
        }
        filled = filled.saturating_add(*size);
        out.push(stage);
    }
    out
}

/// The step as stage `s` runs it.
fn of_stage(whole: &Timeline, stage_of: &[usize], s: usize, stages: usize, in_flight: usize) -> Timeline {
    let mut timeline = whole.clone();
    let stage = |layer: u32| match whole.layers.get(layer as usize).map(|name| &**name) {
        Some("(inputs)") => Some(0),
        Some("(loss)") => Some(stages - 1),
        // Each stage has an optimizer of its own.
        Some("(optimizer)") => None,
        _ => stage_of.get(layer as usize).copied(),
    };
    let is_here = |layer: u32| stage(layer).is_none_or(|of| of == s);
    let parameters = |here: bool| -> u128 {
        let of = whole.storages.iter().filter(|s| s.category == Category::Parameter);
        of.filter(|p| !here || is_here(p.layer)).map(|p| u128::from(p.bytes.0)).sum()
    };
    let (own, all) = (parameters(true), parameters(false).max(1));
    // A tensor is here where a layer of the stage makes it, or lets go of it last; stored ones by the layer that they are of.
    let mut here = vec![false; whole.storages.len()];
    for event in &whole.events {
        let storage = &whole.storages[event.storage.0 as usize];
        let is_set_up = event.phase == Phase::Setup;
        let is_gradient = storage.category == Category::Gradient;
        here[event.storage.0 as usize] |= match event.phase {
            Phase::OptimizerStep if event.kind == EventKind::Free => false,
            _ => is_here(if is_set_up || is_gradient { storage.layer } else { event.layer }),
        };
    }
    for event in
        whole.events.iter().filter(|e| e.phase == Phase::OptimizerStep && e.kind == EventKind::Allocate)
    {
        let bytes = &mut timeline.storages[event.storage.0 as usize].bytes;
        *bytes = Bytes(u64::try_from(u128::from(bytes.0) * own / all).unwrap_or(u64::MAX));
    }
    for (storage, _) in timeline.storages.iter_mut().zip(&here).filter(|(_, here)| !**here) {
        storage.bytes = Bytes::ZERO;
    }
    timeline.events.clear();
    let (mut searches, mut next) = (Vec::new(), whole.searches.iter().peekable());
    for (i, event) in whole.events.iter().enumerate() {
        while let Some(search) = next.next_if(|search| search.event <= i) {
            if is_here(event.layer) {
                searches.push(crate::Search { event: timeline.events.len(), ..*search });
            }
        }
        if here[event.storage.0 as usize] {
            timeline.events.push(*event);
        }
    }
    timeline.searches = searches;
    fly(&mut timeline, in_flight.saturating_sub(1));
    timeline
}

/// Adds what so many more micro-batches in flight keep: all that is alive when backward begins.
fn fly(timeline: &mut Timeline, more: usize) {
    let backward =
        timeline.events.iter().position(|e| matches!(e.phase, Phase::Backward | Phase::OptimizerStep));
    let Some(backward) = backward.filter(|_| more > 0) else { return };
    let first = timeline.setup_end();
    let mut kept: Vec<Event> = Vec::new();
    for event in timeline.events.get(first..backward).unwrap_or_default() {
        match event.kind {
            EventKind::Allocate => kept.push(*event),
            EventKind::Free => kept.retain(|e| e.storage != event.storage),
        }
    }
    let label = timeline.label("of a micro-batch in flight");
    let (mut made, mut freed) = (Vec::new(), Vec::new());
    for event in (0..more).flat_map(|_| &kept) {
        let storage = timeline.storages[event.storage.0 as usize];
        let storage = timeline.add(Storage { label, ..storage });
        made.push(Event { storage, phase: Phase::Forward, ..*event });
        freed.push(Event { storage, kind: EventKind::Free, phase: Phase::Backward, ..*event });
    }
    let end =
        timeline.events.iter().position(|e| e.phase == Phase::OptimizerStep).unwrap_or(timeline.events.len());
    let mut before = order::map([(first, made)]);
    before.entry(end).or_default().extend(freed);
    timeline.insert(before);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_even_and_every_stage_has_something() {
        assert_eq!(cut(&[4, 4, 4, 4], 8, 2), [0, 0, 1, 1]);
        assert_eq!(cut(&[1, 1, 1, 90], 90, 4), [0, 1, 2, 3]);
        let mut t = Timeline::default();
        t.layers.push("(inputs)".into());
        for (i, bytes) in (1..).zip([10, 30, 30, 10, 20]) {
            t.layers.push(format!("blocks.{i}.fc").into());
            t.storages.push(Storage {
                bytes: Bytes(bytes),
                category: Category::Parameter,
                layer: i,
                label: 0,
            });
        }
        assert_eq!(stages_of(&t, 2), [0, 0, 0, 1, 1, 1]);
        assert_eq!(stages_of(&t, 9), [0, 0, 1, 2, 3, 4]);
    }
}
