//! Runs a program without computing: every buffer that Burn makes and when it goes.

mod autodiff;
mod checkpoint;
mod elementwise;
mod functions;
mod kernels;
mod memory;
mod planes;
mod products;

use super::program::{Program, Slot, SourceKind};
use crate::{Category, Phase, StorageId, Timeline};
use autodiff::{Tape, Tracked};
pub use memory::Backend;
use memory::{Boundary, Device, Memory, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// A step, run.
pub(crate) struct Simulated {
    pub(crate) timeline: Timeline,
    /// By source of the program.
    pub(crate) storages: Vec<StorageId>,
    /// Storages that autodiff keeps at the end of forward, parameters and buffers excluded.
    pub(crate) saved: Vec<StorageId>,
    /// Where functions of Burn ended.
    pub(crate) boundaries: Vec<Boundary>,
}

/// Batches of a step that are written out: what the third holds, the second held.
const BATCHES: u32 = 2;

/// Runs one step in its steady state.
pub(crate) fn simulate(program: &Program, backend: Backend) -> Simulated {
    let memory: Memory = Memory::default();
    let device = Device { memory: memory.clone(), backend };
    memory.borrow_mut().timeline.layers = program.layers.clone();
    let mut held: BTreeMap<Slot, Tensor> = BTreeMap::new();
    let mut storages = Vec::new();
    for source in &program.sources {
        device.at(Phase::Setup, source.layer);
        let category = match source.kind {
            SourceKind::Parameter | SourceKind::Frozen => Category::Parameter,
            SourceKind::Buffer => Category::Buffer,
            SourceKind::Input | SourceKind::Target => Category::Input,
            SourceKind::State(_) => Category::OptimizerState,
        };
        let ty = program.ty(source.slot);
        let tensor = device.allocate(ty.kind, &ty.shape, category, &source.name);
        storages.push(tensor.buffer.id);
        held.insert(source.slot, tensor);
    }
    device.boundary();
    let mut saved = Vec::new();
    let mut sums: BTreeMap<Slot, Tensor> = BTreeMap::new();
    for i in 0..program.batches().min(BATCHES) {
        let found = batch(program, &device, &mut held, &mut saved);
        if i == 0 {
            sums = found;
            continue;
        }
        for (slot, new) in found {
            let sum = match sums.remove(&slot) {
                Some(sum) => device.binary(sum, new),
                None => new,
            };
            device.recategorize(&sum, Category::Gradient);
            sums.insert(slot, sum);
            device.boundary();
        }
    }
    for update in &program.updates {
        let layer = update.instrs.first().map_or(0, |i| i.layer);
        device.at(Phase::OptimizerStep, layer);
        let Some(gradient) = sums.remove(&update.parameter) else { continue };
        let mut own = BTreeMap::from([(update.gradient, Tracked::constant(gradient))]);
        for (old, _) in &update.replaced {
            if let Some(value) = held.remove(old) {
                own.insert(*old, Tracked::constant(value));
            }
        }
        let kept: Vec<Slot> = update.replaced.iter().map(|(_, new)| *new).collect();
        let moved = Program::last_uses(&update.instrs, &kept);
        let mut none = Tape::default();
        for (instr, moved) in update.instrs.iter().zip(&moved) {
            run(&mut none, &device, program, instr, moved, &mut own);
            device.boundary();
        }
        for (old, new) in &update.replaced {
            if let Some(value) = own.remove(new) {
                held.insert(*old, value.tensor);
            }
        }
    }
    device.boundary();
    let carried = program.sources.iter().zip(&storages).filter_map(|(source, old)| {
        let new = held.get(&source.slot)?.buffer.id;
        (new != *old).then_some((*old, new))
    });
    memory.borrow_mut().timeline.carried = carried.collect();
    // What is held between steps is not freed by the step.
    drop(device);
    let (timeline, boundaries) = {
        let mut r = memory.borrow_mut();
        (std::mem::take(&mut r.timeline), std::mem::take(&mut r.boundaries))
    };
    drop(memory);
    drop(held);
    Simulated { timeline, storages, saved, boundaries }
}

/// Forward and backward of one batch: each parameter's gradient. The first batch says what is saved.
fn batch(
    program: &Program,
    device: &Device,
    held: &mut BTreeMap<Slot, Tensor>,
    saved: &mut Vec<StorageId>,
) -> BTreeMap<Slot, Tensor> {
    let mut tape = Tape::new(program.balanced);
    let mut values: BTreeMap<Slot, Tracked> = BTreeMap::new();
    for source in program.sources.iter().filter(|s| !matches!(s.kind, SourceKind::State(_))) {
        let Some(tensor) = held.get(&source.slot).cloned() else { continue };
        tape.layer = source.layer;
        let tracked = match source.kind {
            SourceKind::Parameter if program.loss.is_some() => tape.leaf(tensor),
            _ => Tracked::constant(tensor),
        };
        values.insert(source.slot, tracked);
    }
    let kept: Vec<Slot> = program
        .sources
        .iter()
        .map(|s| s.slot)
        .chain(program.loss.is_none().then(|| program.outputs.clone()).into_iter().flatten())
        .chain(program.loss)
        .chain(program.replaced.iter().map(|(_, new)| *new))
        .collect();
    let moved = Program::last_uses(&program.instrs, &kept);
    for (instr, moved) in program.instrs.iter().zip(&moved) {
        device.at(Phase::Forward, instr.layer);
        tape.layer = instr.layer;
        run(&mut tape, device, program, instr, moved, &mut values);
        // What nobody reads goes at once.
        device.boundary();
    }
    for (old, new) in &program.replaced {
        if let Some(value) = values.remove(new) {
            device.recategorize(&value.tensor, Category::Buffer);
            values.remove(old);
            held.insert(*old, value.tensor);
        }
    }
    let Some(loss) = program.loss.and_then(|slot| values.remove(&slot)) else {
        let given = program.outputs.iter().filter_map(|slot| values.get(slot));
        let outputs: BTreeSet<StorageId> = given.map(|value| value.tensor.buffer.id).collect();
        device.memory.borrow_mut().timeline.outputs = outputs.into_iter().collect();
        return BTreeMap::new();
    };
    if saved.is_empty() {
        *saved = living(device, &loss);
    }
    let mut grads = tape.backward(device, loss);
    let mut found = BTreeMap::new();
    for update in &program.updates {
        let node = values.get(&update.parameter).and_then(|parameter| parameter.node);
        if let Some(gradient) = node.and_then(|node| grads.take(node)) {
            device.recategorize(&gradient, Category::Gradient);
            found.insert(update.parameter, gradient);
        }
    }
    found
}

fn run(
    tape: &mut Tape,
    device: &Device,
    program: &Program,
    instr: &super::program::Instr,
    moved: &[bool],
    values: &mut BTreeMap<Slot, Tracked>,
) {
    let take =
        |(slot, moved): (&Slot, &bool)| if *moved { values.remove(slot) } else { values.get(slot).cloned() };
    let inputs: Option<Vec<Tracked>> = instr.inputs.iter().zip(moved).map(take).collect();
    let Some(inputs) = inputs else { return };
    if let Some(output) = functions::call(tape, device, &instr.prim, inputs, program.ty(instr.output)) {
        values.insert(instr.output, output);
    }
}

/// Storages made by forward and alive now, the loss left out.
fn living(device: &Device, loss: &Tracked) -> Vec<StorageId> {
    let r = device.memory.borrow();
    let mut alive = vec![false; r.timeline.storages.len()];
    for event in &r.timeline.events {
        alive[event.storage.0 as usize] = event.kind == crate::EventKind::Allocate;
    }
    (0..)
        .map(StorageId)
        .zip(&r.timeline.storages)
        .filter(|(id, s)| {
            alive[id.0 as usize] && s.category == Category::Activation && *id != loss.tensor.buffer.id
        })
        .map(|(id, _)| id)
        .collect()
}
