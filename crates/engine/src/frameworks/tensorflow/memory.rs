//! Plays reference counts through the kernels in the order in which they run, and writes the step down as events.
//!
//! The executor holds one reference to a buffer for each input of a kernel that has still to run. A kernel's outputs are
//! made before its inputs are let go; where it may write over an input of the output's dtype and size, it does so if no
//! other reference is left (framework/op_kernel.cc, `forward_input`). A variable holds a reference of its own, so its
//! buffer is never written over by a kernel that reads it.

use super::convolutions::{Convolutions, Held};
use super::{Builder, Effect, Place, Stage, Wire};
use crate::step::SavedStorage;
use crate::timeline::{Event, EventKind, Storage};
use crate::{Category, Mode, Phase, StorageId, Timeline};
use memfit_graph::kernels::Kernel;
use memfit_graph::{Bytes, DType};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// A step that was played.
pub(super) struct Played {
    pub(super) timeline: Timeline,
    pub(super) saved: Vec<SavedStorage>,
}

/// A step that can be played in any order of its kernels.
pub(super) struct Play<'a> {
    builder: &'a Builder<'a>,
    /// Wires that are held to the end.
    kept: &'a [Wire],
    /// By kernel; of one more, where the wires of all end.
    first: Vec<First>,
    /// The wires that kernels read, one kernel after the other.
    inputs: Vec<u32>,
    /// By wire.
    made: Vec<Output>,
    /// By kernel, what it holds while it runs.
    held: Vec<Held>,
}

/// Where a kernel's wires begin, and what it does besides.
#[derive(Clone, Copy)]
struct First {
    /// The number of its first wire.
    made: u32,
    /// The place of its first input.
    read: u32,
    effect: Effect,
}

/// What an output is in any order.
#[derive(Clone, Copy)]
struct Output {
    dtype: DType,
    elements: u64,
    place: Place,
    category: Category,
}

/// No storage.
const NONE: u32 = u32::MAX;

impl<'a> Play<'a> {
    pub(super) fn new(
        builder: &'a Builder<'a>,
        kept: &'a [Wire],
        gradients: &BTreeMap<u32, Wire>,
    ) -> Play<'a> {
        let kernels = &builder.flow.kernels;
        let (mut first, mut made) = (Vec::with_capacity(kernels.len() + 1), Vec::new());
        let convolutions = Convolutions::of(builder.plan);
        let held =
            convolutions.iter().flat_map(|c| kernels.iter().map(|kernel| c.held(&builder.flow, kernel)));
        let held = held.collect();
        let number = |n: usize| u32::try_from(n).unwrap_or(NONE);
        let mut read = 0;
        for kernel in kernels {
            first.push(First { made: number(made.len()), read: number(read), effect: kernel.effect });
            read += kernel.inputs.len();
            let category = match kernel.stage {
                Stage::Forward => Category::Activation,
                Stage::Backward => Category::ActivationGradient,
                Stage::Update => Category::Transient,
            };
            let outputs = kernel.outputs.iter();
            made.extend(outputs.map(|o| Output {
                dtype: o.dtype,
                elements: o.elements(),
                place: o.place,
                category,
            }));
        }
        first.push(First { made: number(made.len()), read: number(read), effect: Effect::None });
        let wire = |wire: &Wire| first[wire.kernel as usize].made + wire.output;
        let inputs = kernels.iter().flat_map(|kernel| &kernel.inputs).map(wire).collect();
        let mut play = Play { builder, kept, first, inputs, made, held };
        for wire in gradients.values() {
            let wire = play.number(*wire);
            play.made[wire].category = Category::Gradient;
        }
        play
    }

    fn number(&self, wire: Wire) -> usize {
        (self.first[wire.kernel as usize].made + wire.output) as usize
    }

    /// The numbers of a kernel's outputs, and of the wires that it reads.
    fn wires(&self, kernel: u32) -> (Range<usize>, &[u32]) {
        let [own, next] = [0, 1].map(|after| self.first[kernel as usize + after]);
        (own.made as usize..next.made as usize, &self.inputs[own.read as usize..next.read as usize])
    }

    /// Plays an order. A wire of `holds` is held until this many kernels have run.
    pub(super) fn whole(&self, order: &[u32], holds: &[(Wire, usize)]) -> Played {
        let mut memory = Memory { records: true, ..Memory::default() };
        memory.timeline.layers = self.builder.layers.clone();
        self.run(&mut memory, order, holds);
        Played { timeline: memory.timeline, saved: memory.saved.into_values().collect() }
    }

    /// The most that is alive at once in an order.
    pub(super) fn highest(&self, order: &[u32]) -> u64 {
        let mut memory = Memory::default();
        self.run(&mut memory, order, &[]);
        memory.most.0
    }

    fn run(&self, memory: &mut Memory, order: &[u32], holds: &[(Wire, usize)]) {
        let Play { builder, .. } = self;
        let flow = &builder.flow;
        let resident = |memory: &mut Memory, bytes, of: &super::Resident| {
            memory.layer = of.layer;
            memory.allocate(bytes, of.category, &of.name)
        };
        let mut variables: Vec<StorageId> = Vec::new();
        for (variable, of) in flow.variables.iter().zip(&builder.residents) {
            let bytes = variable.dtype.size_of(memfit_graph::elements(&variable.shape));
            variables.push(resident(memory, bytes, of));
        }
        let mut feeds: Vec<Option<StorageId>> = vec![None; builder.feeds.len()];
        for kernel in &flow.kernels {
            if let (Effect::Feed(feed), Some(made)) = (kernel.effect, kernel.outputs.first()) {
                let of = &builder.feeds[feed as usize];
                feeds[feed as usize] = Some(resident(memory, made.dtype.size_of(made.elements()), of));
            }
        }
        let mut uses = vec![0_u32; self.made.len()];
        order.iter().flat_map(|at| self.wires(*at).1).for_each(|wire| uses[*wire as usize] += 1);
        let held = holds.iter().map(|(wire, _)| wire);
        self.kept.iter().chain(held).for_each(|wire| uses[self.number(*wire)] += 1);
        let mut until: BTreeMap<usize, Vec<Wire>> = BTreeMap::new();
        holds.iter().for_each(|(wire, end)| until.entry(*end).or_default().push(*wire));
        // By wire.
        let mut storages = vec![NONE; self.made.len()];
        let of = |storages: &[u32], wire: usize| Some(storages[wire]).filter(|id| *id != NONE).map(StorageId);
        let mut inputs: Vec<Option<StorageId>> = Vec::new();
        for (done, at) in order.iter().enumerate() {
            for wire in until.remove(&done).into_iter().flatten() {
                of(&storages, self.number(wire)).into_iter().for_each(|storage| memory.release(storage));
            }
            inputs.clear();
            let (outputs, read) = self.wires(*at);
            inputs.extend(read.iter().map(|wire| of(&storages, *wire as usize)));
            let effect = self.first[*at as usize].effect;
            if memory.records {
                memory.enter(&flow.kernels[*at as usize], &inputs);
            }
            for wire in outputs {
                let Output { dtype, elements, place, category } = self.made[wire];
                let reused = || {
                    let same = |(from, storage): (&u32, &Option<StorageId>)| {
                        let from = self.made[*from as usize];
                        let storage = (*storage)?;
                        let fits = from.dtype == dtype && from.elements == elements;
                        (fits && memory.references[storage.0 as usize] == 1).then_some(storage)
                    };
                    read.iter().zip(&inputs).find_map(same)
                };
                let storage = match (place, effect) {
                    (Place::Host, _) => continue,
                    (Place::Alias, Effect::Read(variable)) => Some(variables[variable as usize]),
                    (Place::Alias, Effect::Feed(feed)) => feeds[feed as usize],
                    (Place::Alias, _) => inputs.first().copied().flatten(),
                    (Place::Reuse, _) if !builder.plan.eager => reused(),
                    (Place::Reuse | Place::New, _) => None,
                };
                let fresh = storage.is_none();
                if fresh && place == Place::Alias {
                    continue;
                }
                let bytes = || dtype.size_of(elements);
                let storage = storage
                    .unwrap_or_else(|| memory.allocate(bytes(), category, flow.kernels[*at as usize].name));
                memory.references[storage.0 as usize] += uses[wire];
                storages[wire] = storage.0;
                if fresh {
                    // Held by the kernel while it runs.
                    memory.release(storage);
                }
            }
            if let Some(held) = self.held.get(*at as usize) {
                memory.hold(*held);
            }
            memory.write(effect, &inputs, &mut variables, builder);
            inputs.iter().flatten().for_each(|storage| memory.release(*storage));
        }
        if memory.records && builder.plan.mode == Mode::Infer {
            let given: BTreeSet<StorageId> =
                self.kept.iter().filter_map(|wire| of(&storages, self.number(*wire))).collect();
            memory.timeline.outputs = given.into_iter().collect();
        }
    }
}

#[derive(Default)]
struct Memory {
    /// Whether the step is written down, or only what is alive is counted.
    records: bool,
    timeline: Timeline,
    labels: BTreeMap<Arc<str>, u32>,
    phase: Phase,
    layer: u32,
    /// By storage, whether forward made it and a gradient kernel read it: its layer and those kernels' names.
    saved: BTreeMap<StorageId, SavedStorage>,
    forward: Vec<bool>,
    /// By storage.
    references: Vec<u32>,
    bytes: Vec<Bytes>,
    live: Bytes,
    most: Bytes,
}

impl Memory {
    fn allocate(&mut self, bytes: Bytes, category: Category, name: &str) -> StorageId {
        let id = StorageId(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
        self.bytes.push(bytes);
        self.references.push(1);
        self.live += bytes;
        self.most = self.most.max(self.live);
        if self.records {
            let label = self.labels.get(name).copied().unwrap_or_else(|| {
                let name: Arc<str> = name.into();
                let label = self.timeline.label(name.clone());
                self.labels.insert(name, label);
                label
            });
            self.timeline.add(Storage { bytes, category, layer: self.layer, label });
            self.forward.push(self.phase == Phase::Forward);
            self.event(EventKind::Allocate, id);
        }
        id
    }

    fn release(&mut self, id: StorageId) {
        let references = &mut self.references[id.0 as usize];
        debug_assert!(*references > 0, "released once too often");
        *references = references.saturating_sub(1);
        if *references == 0 {
            // What cannot be added up is refused when the step is written.
            self.live = self.live.saturating_sub(self.bytes[id.0 as usize]);
            self.event(EventKind::Free, id);
        }
    }

    /// Allocates what a kernel holds while it runs, and frees it.
    fn hold(&mut self, held: Held) {
        let bytes = [held.needed, held.optional];
        let held =
            bytes.map(|n| (n > 0).then(|| self.allocate(Bytes(n), Category::Workspace, "convolution")));
        if let Some(optional) = held[1].filter(|_| self.records) {
            self.timeline.optional.push(optional);
        }
        held.into_iter().flatten().for_each(|storage| self.release(storage));
    }

    fn event(&mut self, kind: EventKind, storage: StorageId) {
        if self.records {
            self.timeline.events.push(Event { kind, storage, phase: self.phase, layer: self.layer });
        }
    }

    /// Notes that a kernel runs, and which of forward's storages it reads where it makes a gradient.
    fn enter(&mut self, kernel: &Kernel, inputs: &[Option<StorageId>]) {
        self.layer = kernel.layer;
        self.phase = match kernel.stage {
            Stage::Forward => Phase::Forward,
            Stage::Backward => Phase::Backward,
            Stage::Update => Phase::OptimizerStep,
        };
        if kernel.stage != Stage::Backward {
            return;
        }
        for storage in inputs.iter().flatten().filter(|s| self.forward[s.0 as usize]) {
            let layer = self.timeline.storages[storage.0 as usize].layer;
            let entry = self.saved.entry(*storage);
            let saved =
                entry.or_insert(SavedStorage { storage: *storage, layer, holders: Default::default() });
            if !saved.holders.contains(&kernel.name) {
                saved.holders.push(kernel.name);
            }
        }
    }

    /// What a kernel does to a variable.
    fn write(
        &mut self,
        effect: Effect,
        inputs: &[Option<StorageId>],
        variables: &mut [StorageId],
        builder: &Builder<'_>,
    ) {
        let (variable, given) = match effect {
            Effect::Update(variable) => (variable, None),
            Effect::Assign(variable) => (variable, inputs.first().copied().flatten()),
            Effect::Scatter(_) | Effect::Read(_) | Effect::Feed(_) | Effect::None => return,
        };
        let old = variables[variable as usize];
        // XLA's outputs share the buffers of the variables they update.
        if builder.plan.xla || (given.is_none() && self.references[old.0 as usize] == 1) {
            return;
        }
        let new = match given.filter(|storage| self.references[storage.0 as usize] == 1) {
            Some(storage) => {
                self.references[storage.0 as usize] += 1;
                storage
            }
            None => {
                let of = &builder.residents[variable as usize];
                self.allocate(self.bytes[old.0 as usize], of.category, &of.name)
            }
        };
        variables[variable as usize] = new;
        self.release(old);
    }
}
