//! Plays reference counts through the kernels in the order in which they run, and writes the step down as events.
//!
//! The executor holds one reference to a buffer for each input of a kernel that has still to run. A kernel's outputs are
//! made before its inputs are let go; where it may write over an input of the output's dtype and size, it does so if no
//! other reference is left (framework/op_kernel.cc, `forward_input`). A variable holds a reference of its own, so its
//! buffer is never written over by a kernel that reads it.

use super::{Builder, Effect, Place, SavedStorage, Stage, Wire};
use crate::timeline::{Event, EventKind, Storage};
use crate::{Category, Phase, StorageId, Timeline};
use memfit_graph::kernels::Made;
use memfit_graph::{Bytes, order};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A step that was played.
pub(super) struct Played {
    pub(super) timeline: Timeline,
    pub(super) saved: Vec<SavedStorage>,
}

#[derive(Default)]
struct Memory {
    timeline: Timeline,
    references: Vec<u32>,
    labels: BTreeMap<Arc<str>, u32>,
    phase: Phase,
    layer: u32,
    /// By storage, whether forward made it and a gradient kernel read it: its layer and those kernels' names.
    saved: BTreeMap<StorageId, SavedStorage>,
    forward: Vec<bool>,
}

/// Plays a schedule. `kept` is held to the end, a wire of `holds` until this many kernels have run.
pub(super) fn play(
    builder: &Builder<'_>,
    order: &[u32],
    kept: &[Wire],
    holds: &[(Wire, usize)],
    gradients: &BTreeMap<u32, Wire>,
) -> Played {
    let flow = &builder.flow;
    let mut memory = Memory::default();
    memory.timeline.layers = builder.layers.clone();
    let resident = |memory: &mut Memory, made: &Made, of: &super::Resident| {
        memory.layer = of.layer;
        memory.allocate(made.dtype.size_of(made.elements()), of.category, &of.name)
    };
    let mut variables: Vec<StorageId> = Vec::new();
    for (variable, of) in flow.variables.iter().zip(&builder.residents) {
        let made = Made { shape: variable.shape.clone(), dtype: variable.dtype, place: Place::New };
        variables.push(resident(&mut memory, &made, of));
    }
    let mut feeds: Vec<Option<StorageId>> = vec![None; builder.feeds.len()];
    for kernel in &flow.kernels {
        if let (Effect::Feed(feed), Some(made)) = (kernel.effect, kernel.outputs.first()) {
            let of = &builder.feeds[feed as usize];
            feeds[feed as usize] = Some(resident(&mut memory, made, of));
        }
    }
    let mut uses: BTreeMap<Wire, u32> = BTreeMap::new();
    for at in order {
        flow.kernels[*at as usize].inputs.iter().for_each(|wire| *uses.entry(*wire).or_default() += 1);
    }
    let mut until: BTreeMap<u32, Vec<Wire>> = BTreeMap::new();
    let number = |kernels: usize| u32::try_from(kernels).unwrap_or(u32::MAX);
    holds.iter().for_each(|(wire, end)| until.entry(number(*end)).or_default().push(*wire));
    let held = holds.iter().map(|(wire, _)| wire);
    kept.iter().chain(held).for_each(|wire| *uses.entry(*wire).or_default() += 1);
    let of_parameters = order::map(gradients.iter().map(|(variable, wire)| (*wire, *variable)));
    let mut storages: BTreeMap<Wire, u32> = BTreeMap::new();
    for (done, at) in (0..).zip(order) {
        for storage in until.remove(&done).into_iter().flatten().filter_map(|wire| storages.get(&wire)) {
            memory.release(StorageId(*storage));
        }
        let kernel = &flow.kernels[*at as usize];
        memory.layer = kernel.layer;
        memory.phase = match kernel.stage {
            Stage::Forward => Phase::Forward,
            Stage::Backward => Phase::Backward,
            Stage::Update => Phase::OptimizerStep,
        };
        let inputs: Vec<Option<StorageId>> =
            kernel.inputs.iter().map(|wire| storages.get(wire).copied().map(StorageId)).collect();
        memory.note_reads(kernel.name, kernel.stage, &inputs);
        for (output, made) in (0..).zip(&kernel.outputs) {
            let wire = Wire { kernel: *at, output };
            let reused = || {
                let same = |(wire, storage): (&Wire, &Option<StorageId>)| {
                    let from = flow.made(*wire);
                    let storage = (*storage)?;
                    let fits = from.dtype == made.dtype && from.elements() == made.elements();
                    (fits && memory.references[storage.0 as usize] == 1).then_some(storage)
                };
                kernel.inputs.iter().zip(&inputs).find_map(same)
            };
            let storage = match (made.place, kernel.effect) {
                (Place::Host, _) => continue,
                (Place::Alias, Effect::Read(variable)) => Some(variables[variable as usize]),
                (Place::Alias, Effect::Feed(feed)) => feeds[feed as usize],
                (Place::Alias, _) => inputs.first().copied().flatten(),
                (Place::Reuse, _) if !builder.plan.eager => reused(),
                (Place::Reuse | Place::New, _) => None,
            };
            let fresh = storage.is_none();
            if fresh && made.place == Place::Alias {
                continue;
            }
            let storage = storage.unwrap_or_else(|| {
                let category = match (of_parameters.get(&wire), kernel.stage) {
                    (Some(_), _) => Category::Gradient,
                    (None, Stage::Forward) => Category::Activation,
                    (None, Stage::Backward) => Category::ActivationGradient,
                    (None, Stage::Update) => Category::Transient,
                };
                memory.allocate(made.dtype.size_of(made.elements()), category, &kernel.name.into())
            });
            let readers = uses.get(&wire).copied().unwrap_or(0);
            memory.references[storage.0 as usize] += readers;
            storages.insert(wire, storage.0);
            if fresh {
                // Held by the kernel while it runs.
                memory.release(storage);
            }
        }
        memory.write(kernel, &inputs, &mut variables, builder);
        inputs.into_iter().flatten().for_each(|storage| memory.release(storage));
    }
    Played { timeline: memory.timeline, saved: memory.saved.into_values().collect() }
}

impl Memory {
    fn allocate(&mut self, bytes: Bytes, category: Category, name: &Arc<str>) -> StorageId {
        let label = *self.labels.entry(name.clone()).or_insert_with(|| self.timeline.label(name.clone()));
        let id = self.timeline.add(Storage { bytes, category, layer: self.layer, label });
        self.references.push(1);
        self.forward.push(self.phase == Phase::Forward);
        self.event(EventKind::Allocate, id);
        id
    }

    fn release(&mut self, id: StorageId) {
        let references = &mut self.references[id.0 as usize];
        debug_assert!(*references > 0, "released once too often");
        *references = references.saturating_sub(1);
        if *references == 0 {
            self.event(EventKind::Free, id);
        }
    }

    fn event(&mut self, kind: EventKind, storage: StorageId) {
        self.timeline.events.push(Event { kind, storage, phase: self.phase, layer: self.layer });
    }

    /// Notes which of forward's storages a gradient kernel reads.
    fn note_reads(&mut self, name: &'static str, stage: Stage, inputs: &[Option<StorageId>]) {
        if stage != Stage::Backward {
            return;
        }
        for storage in inputs.iter().flatten().filter(|s| self.forward[s.0 as usize]) {
            let layer = self.timeline.storages[storage.0 as usize].layer;
            let entry = self.saved.entry(*storage);
            let saved =
                entry.or_insert(SavedStorage { storage: *storage, layer, holders: Default::default() });
            if !saved.holders.contains(&name) {
                saved.holders.push(name);
            }
        }
    }

    /// What a kernel does to a variable.
    fn write(
        &mut self,
        kernel: &memfit_graph::kernels::Kernel,
        inputs: &[Option<StorageId>],
        variables: &mut [StorageId],
        builder: &Builder<'_>,
    ) {
        let (variable, given) = match kernel.effect {
            Effect::Update(variable) => (variable, None),
            Effect::Assign(variable) => (variable, inputs.first().copied().flatten()),
            Effect::Scatter(_) | Effect::Read(_) | Effect::Feed(_) | Effect::None => return,
        };
        let old = variables[variable as usize];
        // XLA's outputs share the buffers of the variables they update.
        if given.is_none() && (builder.plan.xla || self.references[old.0 as usize] == 1) {
            return;
        }
        let new = match given.filter(|storage| self.references[storage.0 as usize] == 1) {
            Some(storage) => {
                self.references[storage.0 as usize] += 1;
                storage
            }
            None => {
                let storage = self.timeline.storages[old.0 as usize];
                let of = &builder.residents[variable as usize];
                self.allocate(storage.bytes, of.category, &of.name)
            }
        };
        variables[variable as usize] = new;
        self.release(old);
    }
}
