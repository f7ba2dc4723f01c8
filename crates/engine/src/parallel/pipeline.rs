//! Pipeline parallel training: each GPU has a stretch of the layers, and micro-batches go through them one after the other.
//!
//! Stretches are of whole blocks, cut so that the one with the most parameters has as few as can be
//! (`deepspeed/runtime/pipe/module.py`, `partition_method="parameters"`). Under the schedule of one forward, one backward
//! (1F1B: Narayanan et al., arXiv 2104.04473; `torch.distributed.pipelining.Schedule1F1B`), stage `s` of `P` has up to `P - s`
//! micro-batches in flight, so it keeps what backward needs of so many. What arrives from a neighbour is a tensor of its own.
//! What is stored once and read in several stages, such as a matrix that embeds and gives the logits, each of these stages has, with
//! a gradient, which is summed over them, and the optimizer's state (`deepspeed/runtime/pipe/module.py`, `TiedLayerSpec`;
//! Megatron-LM's `share_embeddings_and_output_weights`).
//! The step that comes out is that of the stage that holds most.

use super::data::unit;
use crate::structure::Structure;
use crate::timeline::{Event, EventKind, Storage};
use crate::{Category, Phase, Timeline, blocks, replay};
use memfit_graph::{Bytes, Graph, Problem, order};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A stored tensor that a second layer reads.
pub(crate) struct Tie {
    tensor: Arc<str>,
    /// Whose it is: the layer that reads it first.
    owner: Arc<str>,
    reader: Arc<str>,
}

/// The stored tensors that several layers read.
pub(crate) fn ties(graph: &Graph, structure: &Structure) -> Vec<Tie> {
    let layer = |node: usize| structure.layers[structure.node_layers[node] as usize].clone();
    let mut found = Vec::new();
    for (n, node) in graph.nodes.iter().enumerate() {
        for id in node.inputs.iter().flatten().filter(|id| structure.kinds[id.index()].is_some()) {
            let first = structure.first_use[id.index()].map_or(n, |first| first as usize);
            let (owner, reader) = (layer(first), layer(n));
            if owner != reader {
                found.push(Tie { tensor: graph.tensor(*id).name.clone(), owner, reader });
            }
        }
    }
    found
}

/// Ties by number: the label of the tensor, the layer that has it, the one that reads it too.
type Ties = Vec<(u32, usize, usize)>;

fn numbered(timeline: &Timeline, ties: &[Tie]) -> Ties {
    // Of equal names the first, as they are read.
    let places = |names: &[Arc<str>]| -> BTreeMap<Arc<str>, usize> {
        order::map(names.iter().cloned().enumerate().rev().map(|(at, name)| (name, at)))
    };
    let (labels, layers) = (places(&timeline.labels), places(&timeline.layers));
    let number = |tie: &Tie| {
        let label = u32::try_from(*labels.get(&tie.tensor)?).ok()?;
        Some((label, *layers.get(&tie.owner)?, *layers.get(&tie.reader)?))
    };
    ties.iter().filter_map(number).collect()
}

/// What of ties a stage looks for: which tensors it reads though they are another layer's, and what of such a layer is tied.
struct Read {
    labels: BTreeSet<u32>,
    /// By layer that has tied tensors.
    owners: BTreeMap<usize, Owner>,
}

#[derive(Default)]
struct Owner {
    tied: BTreeSet<u32>,
    /// All its parameters' labels.
    all: BTreeSet<u32>,
    /// The sizes of those that are tied.
    sizes: BTreeSet<Bytes>,
}

impl Read {
    fn of(timeline: &Timeline, ties: &Ties, here: impl Fn(usize) -> bool) -> Read {
        let mut read = Read { labels: BTreeSet::new(), owners: BTreeMap::new() };
        for (label, owner, _) in ties.iter().filter(|(.., reader)| here(*reader)) {
            read.labels.insert(*label);
            read.owners.entry(*owner).or_default().tied.insert(*label);
        }
        for storage in timeline.storages.iter().filter(|s| s.category == Category::Parameter) {
            if let Some(owner) = read.owners.get_mut(&(storage.layer as usize)) {
                owner.all.insert(storage.label);
                if owner.tied.contains(&storage.label) {
                    owner.sizes.insert(storage.bytes);
                }
            }
        }
        read
    }

    /// A gradient and a state are known by their layer, and where that has more, by their size.
    fn is_tied(&self, storage: &Storage) -> bool {
        match storage.category {
            Category::Parameter | Category::Buffer => self.labels.contains(&storage.label),
            Category::Gradient | Category::OptimizerState => {
                self.owners.get(&(storage.layer as usize)).is_some_and(|owner| {
                    let is_all = owner.all.len() < 2 && owner.all.is_subset(&owner.tied);
                    is_all || owner.sizes.contains(&storage.bytes)
                })
            }
            _ => false,
        }
    }
}

/// Makes the step that of the fullest stage; gives the layers whose weights it has, and says which it is.
///
/// # Errors
/// Where there are fewer blocks than stages. `block` is what the framework's allocator rounds to.
pub(super) fn apply(
    timeline: &mut Timeline,
    ties: &[Tie],
    stages: u32,
    micro_batches: u32,
    block: u64,
) -> Result<(Vec<bool>, String), Problem> {
    let ties = numbered(timeline, ties);
    let stage_of = stages_of(timeline, &ties, stages as usize);
    let made = stage_of.iter().max().map_or(1, |last| last + 1);
    if made < stages as usize {
        let message =
            format!("expected at most {made} stages, one for each block of the model, found {stages}");
        return Err(Problem::new("--pipeline-stages", message));
    }
    let in_flight = |s: usize| (made - s).min(micro_batches as usize);
    let run = |s: usize| (s, of_stage(timeline, &stage_of, &ties, s, made, in_flight(s)));
    // Of equals the first, which has the most micro-batches in flight.
    let fullest = (0..made).rev().map(run).max_by_key(|(_, step)| replay::highest(step, block));
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
    let mut here: Vec<bool> = stage_of.iter().map(|stage| *stage == s).collect();
    for (_, owner, reader) in ties {
        here[owner] |= here[reader];
    }
    Ok((here, says))
}

/// By layer, its stage: blocks in forward order, cut so that the most parameters of a stage are as few as can be.
fn stages_of(timeline: &Timeline, ties: &Ties, stages: usize) -> Vec<usize> {
    let mut own = vec![0_u64; timeline.layers.len()];
    let mut readers: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (label, _, reader) in ties {
        readers.entry(*label).or_default().push(*reader);
    }
    for storage in timeline.storages.iter().filter(|s| s.category == Category::Parameter) {
        if let Some(own) = own.get_mut(storage.layer as usize) {
            *own = own.saturating_add(storage.bytes.0);
        }
        for reader in readers.get(&storage.label).into_iter().flatten() {
            own[*reader] = own[*reader].saturating_add(storage.bytes.0);
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
fn of_stage(
    whole: &Timeline,
    stage_of: &[usize],
    ties: &Ties,
    s: usize,
    stages: usize,
    in_flight: usize,
) -> Timeline {
    let mut timeline = whole.clone();
    let stage = |layer: u32| match whole.layers.get(layer as usize).map(|name| &**name) {
        Some("(inputs)") => Some(0),
        Some("(loss)") => Some(stages - 1),
        // Each stage has an optimizer of its own.
        Some("(optimizer)") => None,
        _ => stage_of.get(layer as usize).copied(),
    };
    let is_here = |layer: u32| stage(layer).is_none_or(|of| of == s);
    let read = Read::of(whole, ties, |reader| stage_of[reader] == s);
    let is_tied = |storage: &Storage| read.is_tied(storage);
    let parameters = |here: bool| -> u128 {
        let of = whole.storages.iter().filter(|s| s.category == Category::Parameter);
        of.filter(|p| !here || is_here(p.layer) || is_tied(p)).map(|p| u128::from(p.bytes.0)).sum()
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
            _ if is_set_up || is_gradient => is_here(storage.layer) || is_tied(storage),
            _ => is_here(event.layer),
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

/// Adds what so many more micro-batches in flight keep: their inputs, and all that forward leaves for backward.
fn fly(timeline: &mut Timeline, more: usize) {
    let backward =
        timeline.events.iter().position(|e| matches!(e.phase, Phase::Backward | Phase::OptimizerStep));
    let Some(backward) = backward.filter(|_| more > 0) else { return };
    let first = timeline.setup_end();
    let (mut events, mut places) = (Vec::new(), BTreeMap::new());
    for event in timeline.events.get(first..backward).unwrap_or_default() {
        match event.kind {
            EventKind::Allocate => {
                places.insert(event.storage, events.len());
                events.push(Some(*event));
            }
            EventKind::Free => {
                if let Some(place) = places.remove(&event.storage) {
                    events[place] = None;
                }
            }
        }
    }
    let is_input = |event: &&Event| {
        let storage = &timeline.storages[event.storage.0 as usize];
        event.kind == EventKind::Allocate
            && storage.category == Category::Input
            && storage.bytes > Bytes::ZERO
    };
    let inputs = timeline.events.iter().take(first).filter(is_input).copied();
    let kept: Vec<Event> = inputs.chain(events.into_iter().flatten()).collect();
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
    fn a_micro_batch_in_flight_keeps_its_input_and_what_forward_leaves() {
        let mut t = Timeline::default();
        let event = |kind, storage, phase| Event { kind, storage, phase, layer: 0 };
        let mut made = |category, phase| {
            let storage = t.add(Storage { bytes: Bytes(8), category, layer: 0, label: 0 });
            t.events.push(event(EventKind::Allocate, storage, phase));
            storage
        };
        made(Category::Parameter, Phase::Setup);
        made(Category::Input, Phase::Setup);
        let kept = made(Category::Activation, Phase::Forward);
        t.events.push(event(EventKind::Free, kept, Phase::Backward));
        fly(&mut t, 2);
        // Of each, the input and the activation.
        assert_eq!(t.storages.len(), 3 + 2 * 2);
        let made = t.events.iter().filter(|e| e.kind == EventKind::Allocate).count();
        assert_eq!((made, t.events.len() - made), (7, 5));
    }

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
        assert_eq!(stages_of(&t, &Ties::new(), 2), [0, 0, 0, 1, 1, 1]);
        assert_eq!(stages_of(&t, &Ties::new(), 9), [0, 0, 1, 2, 3, 4]);
        assert!(apply(&mut t.clone(), &[], 9, 9, 512).unwrap_err().message.contains("at most 5 stages"));
    }

    #[test]
    fn many_ties_are_found_by_name() {
        // What is looked for among all takes minutes here.
        let count = 30_000_u32;
        let layers: Vec<Arc<str>> = (0..count).map(|i| format!("blocks.{i}.fc").into()).collect();
        let mut t = Timeline { layers: layers.clone(), ..Timeline::default() };
        t.labels = (0..count).map(|i| format!("w{i}").into()).collect();
        for layer in 0..count {
            let category = Category::Parameter;
            t.storages.push(Storage { bytes: Bytes(8), category, layer, label: layer });
        }
        let last = layers.last().cloned().unwrap();
        let tie = |(tensor, owner): (&Arc<str>, &Arc<str>)| Tie {
            tensor: tensor.clone(),
            owner: owner.clone(),
            reader: last.clone(),
        };
        let given: Vec<Tie> = t.labels.iter().zip(&layers).map(tie).collect();
        let ties = numbered(&t, &given);
        let stage_of = stages_of(&t, &ties, 2);
        let step = of_stage(&t, &stage_of, &ties, 1, 2, 1);
        assert_eq!(ties[7], (7, 7, count as usize - 1));
        // The last layer reads all, so it is a stage of its own.
        assert_eq!(stage_of.iter().filter(|stage| **stage == 1).count(), 1);
        assert_eq!(step.layers.len(), t.layers.len());
    }

    #[test]
    fn a_matrix_that_two_stages_read_both_have() {
        let layers = ["embed", "h.0", "h.1", "head"].map(Into::into).to_vec();
        let mut t = Timeline { layers, ..Timeline::default() };
        for (layer, bytes) in [(0, 100), (1, 10), (2, 10)] {
            let label = t.label(format!("w{layer}"));
            for category in [Category::Parameter, Category::OptimizerState, Category::Gradient] {
                let storage = t.add(Storage { bytes: Bytes(bytes), category, layer, label });
                t.events.push(Event { kind: EventKind::Allocate, storage, phase: Phase::Setup, layer });
            }
        }
        let tie = |tensor: &str| Tie { tensor: tensor.into(), owner: "embed".into(), reader: "head".into() };
        let ties = numbered(&t, &[tie("w0"), tie("unknown")]);
        let stage_of = stages_of(&t, &ties, 2);
        assert_eq!(stage_of, [0, 0, 1, 1]);
        for s in 0..2 {
            let step = of_stage(&t, &stage_of, &ties, s, 2, 1);
            assert_eq!(replay::highest(&step, 1), Bytes(330), "{s}");
        }
    }
}
