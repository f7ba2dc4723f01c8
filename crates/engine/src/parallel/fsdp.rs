//! Fully sharded parameters: what is gathered, when, and how gradients are summed.
//!
//! As `fully_shard` does it for each repeated block and then for the model (torch/distributed/fsdp/_fully_shard, 2.15):
//!
//! - Before a block runs its parameters are gathered into one buffer and copied out of it. In forward the buffer stays until the next
//!   block's is there (`wait_for_unshard`), in backward it goes at once, and the block that comes next is gathered meanwhile
//!   (`_backward_prefetch`).
//! - A block's gradients are whole until it is done. They are copied into the input of a reduce-scatter, which lives until the next
//!   block's (`foreach_reduce`, `reduce_scatter_states`); each GPU keeps its part of the result.
//! - What is in no block stays gathered from the model's first layer to the end of backward (a root does not reshard after forward).
//! - With `reshard_after_forward=False`, its ZeRO 2, so do all blocks until their backward is done (`_fully_shard.py`).

use super::data::{shard_of, unit};
use crate::timeline::{Event, EventKind, Storage};
use crate::{Category, Phase, StorageId, Timeline, blocks};
use memfit_graph::{Bytes, order};

/// By layer, the number of its block; `None` for what is in none. Where nothing repeats each list's item is one.
fn groups(timeline: &Timeline) -> Vec<Option<usize>> {
    let names = timeline.layers.iter().map(|name| &**name);
    let mut of: Vec<Option<String>> =
        blocks::of(names.clone()).into_iter().map(|block| block.map(str::to_owned)).collect();
    if of.iter().all(Option::is_none) {
        of = names.map(|name| Some(unit(name)).filter(|_| !name.starts_with('('))).collect();
    }
    let known: Vec<&String> = order::set(of.iter().flatten()).into_iter().collect();
    of.iter().map(|block| known.binary_search(&block.as_ref()?).ok()).collect()
}

/// The step as it is rewritten.
struct Sharder<'t> {
    timeline: &'t mut Timeline,
    n: u64,
    groups: Vec<Option<usize>>,
    /// By block and, last, of what is in none: the bytes of its parameters.
    sizes: Vec<Bytes>,
    /// The event before which the others are put.
    at: Event,
    put: Vec<Event>,
    /// Whether a block's parameters stay whole after forward, and those that do.
    keeps: bool,
    kept: Vec<(usize, StorageId)>,
    /// The block that runs with its parameters.
    running: Option<(usize, StorageId)>,
    /// A buffer that parameters were gathered into, with its block.
    gathered: Option<(usize, StorageId)>,
    /// The order of blocks in forward.
    ran: Vec<usize>,
    /// Whole gradients, and the input of the last reduce-scatter.
    pending: Vec<StorageId>,
    reducing: Option<StorageId>,
    /// By whole gradient, its part.
    shards: Vec<(StorageId, StorageId)>,
}

/// Rewrites a step whose stored parameters have been divided by `n` already; `whole` are the storages' sizes before. `keeps` is whether
/// blocks stay whole between forward and backward.
pub(super) fn apply(timeline: &mut Timeline, n: u64, whole: &[Bytes], keeps: bool) {
    let groups = groups(timeline);
    let root = groups.iter().flatten().max().map_or(0, |last| last + 1);
    let mut sizes = vec![Bytes::ZERO; root + 1];
    for (storage, bytes) in timeline.storages.iter().zip(whole) {
        if storage.category == Category::Parameter {
            sizes[groups.get(storage.layer as usize).copied().flatten().unwrap_or(root)] += *bytes;
        }
    }
    let events = timeline.events.clone();
    let Some(last) = events.last().copied() else { return };
    let mut s = Sharder {
        timeline,
        n,
        groups,
        sizes,
        at: last,
        put: Vec::new(),
        keeps,
        kept: Vec::new(),
        running: None,
        gathered: None,
        ran: Vec::new(),
        pending: Vec::new(),
        reducing: None,
        shards: Vec::new(),
    };
    let (mut before, mut phase, mut model) = (Vec::new(), Phase::Setup, None);
    for (i, event) in events.iter().enumerate() {
        s.at = *event;
        if event.phase != phase {
            // What ends with forward, with backward, and what begins with either.
            s.leave(phase);
            s.release_gathered();
            match event.phase {
                Phase::Forward if model.is_none() => model = s.gather(root),
                Phase::Backward => s.prefetch(s.ran.last().copied()),
                Phase::OptimizerStep => s.end(model.take()),
                _ => {}
            }
            phase = event.phase;
        }
        if matches!(phase, Phase::Forward | Phase::Backward) {
            s.run(s.groups.get(event.layer as usize).copied().flatten(), phase);
        }
        let is_gradient = s.timeline.storages[event.storage.0 as usize].category == Category::Gradient;
        match event.kind {
            EventKind::Allocate if is_gradient && phase == Phase::Backward => s.pending.push(event.storage),
            // It did not live until its block was done.
            EventKind::Free => s.pending.retain(|id| *id != event.storage),
            EventKind::Allocate => {}
        }
        before.push((i, std::mem::take(&mut s.put)));
    }
    s.leave(phase);
    s.release_gathered();
    s.end(model);
    before.push((events.len(), std::mem::take(&mut s.put)));
    let shards = order::map(std::mem::take(&mut s.shards));
    for event in timeline.events.iter_mut().filter(|event| event.kind == EventKind::Free) {
        event.storage = shards.get(&event.storage).copied().unwrap_or(event.storage);
    }
    timeline.insert(order::map(before.into_iter().filter(|(_, put)| !put.is_empty())));
}

impl Sharder<'_> {
    fn make(&mut self, bytes: Bytes, label: &str) -> StorageId {
        let (label, layer) = (self.timeline.label(label), self.at.layer);
        let storage = self.timeline.add(Storage { bytes, category: Category::Transient, layer, label });
        self.put.push(Event { kind: EventKind::Allocate, storage, ..self.at });
        storage
    }

    fn free(&mut self, storage: StorageId) {
        self.put.push(Event { kind: EventKind::Free, storage, ..self.at });
    }

    fn release_gathered(&mut self) {
        if let Some((_, buffer)) = self.gathered.take() {
            self.free(buffer);
        }
    }

    /// Gathers the parameters of a group; gives what holds them.
    fn gather(&mut self, group: usize) -> Option<StorageId> {
        let bytes = self.sizes.get(group).copied().filter(|bytes| *bytes > Bytes::ZERO)?;
        let is_there = self.gathered.is_some_and(|(of, _)| of == group);
        let before = if is_there { None } else { self.gathered };
        if !is_there {
            self.gathered = Some((group, self.make(bytes, "gathered parameters")));
        }
        if let Some((_, buffer)) = before {
            self.free(buffer);
        }
        Some(self.make(bytes, "whole parameters"))
    }

    /// Begins to gather a block that backward comes to next.
    fn prefetch(&mut self, block: Option<usize>) {
        self.release_gathered();
        let is_whole = |block: &usize| self.kept.iter().any(|(kept, _)| kept == block);
        if let Some(block) = block.filter(|block| !is_whole(block))
            && let Some(bytes) = self.sizes.get(block).copied()
        {
            self.gathered = Some((block, self.make(bytes, "gathered parameters")));
        }
    }

    /// Comes to a layer of a block, or of none.
    fn run(&mut self, block: Option<usize>, phase: Phase) {
        if self.running.map(|(running, _)| running) == block {
            return;
        }
        self.leave(phase);
        let Some(block) = block else { return };
        let at = self.kept.iter().position(|(kept, _)| *kept == block);
        self.running = match at {
            Some(at) => Some(self.kept.swap_remove(at)),
            None => self.gather(block).map(|parameters| (block, parameters)),
        };
        match phase {
            Phase::Forward if self.running.is_some() => self.ran.push(block),
            Phase::Backward => {
                let at = self.ran.iter().rposition(|ran| *ran == block);
                let next = at.and_then(|at| self.ran.get(at.checked_sub(1)?).copied());
                self.prefetch(next);
            }
            _ => {}
        }
    }

    /// The block that ran is done.
    fn leave(&mut self, phase: Phase) {
        let Some((block, parameters)) = self.running.take() else { return };
        if self.keeps && phase == Phase::Forward {
            return self.kept.push((block, parameters));
        }
        self.free(parameters);
        if phase == Phase::Backward {
            self.reduce(Some(block));
        }
    }

    /// Sums the gradients of a group over all GPUs.
    fn reduce(&mut self, group: Option<usize>) {
        let of = |s: &Self, id: StorageId| {
            s.groups.get(s.timeline.storages[id.0 as usize].layer as usize).copied().flatten()
        };
        let (done, rest) = self.pending.iter().partition(|id| of(self, **id) == group);
        let done: Vec<StorageId> = done;
        self.pending = rest;
        let bytes = done.iter().map(|id| self.timeline.storages[id.0 as usize].bytes).sum();
        if bytes == Bytes::ZERO {
            return;
        }
        if let Some(input) = self.reducing.take() {
            self.free(input);
        }
        self.reducing = Some(self.make(bytes, "reduce-scatter input"));
        for whole in done {
            self.free(whole);
            let shard = shard_of(self.timeline, whole, self.n);
            self.put.push(Event { kind: EventKind::Allocate, storage: shard, ..self.at });
            self.shards.push((whole, shard));
        }
    }

    /// Backward is done.
    fn end(&mut self, model: Option<StorageId>) {
        if let Some(parameters) = model {
            self.free(parameters);
            self.reduce(None);
        }
        for (_, parameters) in std::mem::take(&mut self.kept) {
            self.free(parameters);
        }
        if let Some(input) = self.reducing.take() {
            self.free(input);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two blocks of a parameter of 1,000 bytes each and a head of 100, each with its gradient.
    fn step() -> Timeline {
        let layers = ["h.0.a", "h.0.b", "h.1.a", "h.1.b", "head"].into_iter().map(Into::into).collect();
        let mut timeline = Timeline { layers, ..Timeline::default() };
        let label = timeline.label("w");
        let event = |timeline: &mut Timeline, category, layer, bytes, phase| {
            let storage = timeline.add(Storage { bytes: Bytes(bytes), category, layer, label });
            timeline.events.push(Event { kind: EventKind::Allocate, storage, phase, layer });
        };
        for (layer, bytes) in [(0, 1_000), (2, 1_000), (4, 100)] {
            event(&mut timeline, Category::Parameter, layer, bytes, Phase::Setup);
        }
        for layer in 0..5 {
            event(&mut timeline, Category::Activation, layer, 1, Phase::Forward);
        }
        for (layer, bytes) in [(4, 100), (2, 1_000), (0, 1_000)] {
            event(&mut timeline, Category::Gradient, layer, bytes, Phase::Backward);
        }
        timeline
    }

    #[test]
    fn a_block_in_backward_stands_beside_what_comes_and_what_goes() {
        let mut timeline = step();
        let whole: Vec<Bytes> = timeline.storages.iter().map(|s| s.bytes).collect();
        apply(&mut timeline, 10, &whole, false);
        let (mut live, mut most) = (Vec::new(), (0, Vec::new()));
        for event in timeline.events.iter().filter(|event| event.phase == Phase::Backward) {
            let storage = &timeline.storages[event.storage.0 as usize];
            let label = timeline.labels[storage.label as usize].to_string();
            match event.kind {
                EventKind::Allocate => live.push((event.storage, label, storage.bytes.0)),
                EventKind::Free => live.retain(|(id, ..)| *id != event.storage),
            }
            let all = live.iter().map(|(.., bytes)| bytes).sum::<u64>();
            if all > most.0 {
                most = (all, live.iter().map(|(_, label, _)| label.clone()).collect());
            }
        }
        // The whole gradients of the head and of the first block, the second block's part and its reduce-scatter, and the first's own.
        let reducing = most.1.iter().filter(|label| *label == "reduce-scatter input").count();
        assert_eq!((most.0, reducing), (100 + 1_000 + 100 + 1_000 + 1_000, 1), "{:?}", most.1);
        // In the end each GPU has its parts.
        let left = live.iter().map(|(.., bytes)| bytes).sum::<u64>();
        assert_eq!(left, 10 + 100 + 100, "{live:?}");
    }

    #[test]
    fn what_is_kept_is_gathered_once() {
        let gathered = |keeps| {
            let mut timeline = step();
            let whole: Vec<Bytes> = timeline.storages.iter().map(|s| s.bytes).collect();
            apply(&mut timeline, 10, &whole, keeps);
            let (mut made, mut now, mut most) = (0, 0, 0);
            for event in &timeline.events {
                let storage = &timeline.storages[event.storage.0 as usize];
                match event.kind {
                    _ if &*timeline.labels[storage.label as usize] != "whole parameters" => {}
                    EventKind::Allocate => (made, now) = (made + 1, now + storage.bytes.0),
                    EventKind::Free => now -= storage.bytes.0,
                }
                most = most.max(now);
            }
            (made, now, most)
        };
        // The head, which is in no block, and two blocks, once or in each pass.
        assert_eq!(gathered(true), (3, 0, 100 + 2 * 1_000));
        assert_eq!(gathered(false), (5, 0, 100 + 1_000));
    }
}
