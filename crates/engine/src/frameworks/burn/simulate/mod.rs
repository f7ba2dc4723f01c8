//! Runs a program without computing: every buffer that Burn makes and when it goes.

mod autodiff;
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
use memory::{Boundary, Device, Memory};
use std::collections::BTreeMap;

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

/// Runs one step in its steady state.
pub(crate) fn simulate(program: &Program, backend: Backend) -> Simulated {
    let memory: Memory = Memory::default();
    let device = Device { memory: memory.clone(), backend };
    memory.borrow_mut().timeline.layers = program.layers.clone();
    let mut tape = Tape::default();
    let mut values: BTreeMap<Slot, Tracked> = BTreeMap::new();
    let mut storages = Vec::new();
    for source in &program.sources {
        device.at(Phase::Setup, source.layer);
        tape.layer = source.layer;
        let category = match source.kind {
            SourceKind::Parameter | SourceKind::Frozen => Category::Parameter,
            SourceKind::Buffer => Category::Buffer,
            SourceKind::Input | SourceKind::Target => Category::Input,
            SourceKind::State(_) => Category::OptimizerState,
        };
        let ty = program.ty(source.slot);
        let tensor = device.allocate(ty.kind, &ty.shape, category, &source.name);
        storages.push(tensor.buffer.id);
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
    device.boundary();
    let moved = Program::last_uses(&program.instrs, &kept);
    for (instr, moved) in program.instrs.iter().zip(&moved) {
        device.at(Phase::Forward, instr.layer);
        tape.layer = instr.layer;
        run(&mut tape, &device, program, instr, moved, &mut values);
        // What nobody reads goes at once.
        device.boundary();
    }
    for (old, new) in &program.replaced {
        if let Some(value) = values.remove(new) {
            device.recategorize(&value.tensor, Category::Buffer);
            values.insert(*old, Tracked::constant(value.tensor));
        }
    }
    let mut saved = Vec::new();
    if let Some(loss) = program.loss.and_then(|slot| values.remove(&slot)) {
        saved = living(&memory, &loss);
        let mut grads = tape.backward(&device, loss);
        drop(tape);
        for update in &program.updates {
            let Some(parameter) = values.remove(&update.parameter) else { continue };
            let layer = update.instrs.first().map_or(0, |i| i.layer);
            device.at(Phase::OptimizerStep, layer);
            let Some(gradient) = parameter.node.and_then(|node| grads.take(node)) else { continue };
            device.recategorize(&gradient, Category::Gradient);
            let mut own = BTreeMap::from([
                (update.parameter, Tracked::constant(parameter.tensor)),
                (update.gradient, Tracked::constant(gradient)),
            ]);
            for (old, _) in &update.replaced {
                if let Some(state) = values.remove(old) {
                    own.insert(*old, state);
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
                    values.insert(*old, value);
                }
            }
        }
        drop(grads);
    } else {
        drop(tape);
    }
    device.boundary();
    let carried = program.sources.iter().zip(&storages).filter_map(|(source, old)| {
        let new = values.get(&source.slot)?.tensor.buffer.id;
        (new != *old).then_some((*old, new))
    });
    memory.borrow_mut().timeline.carried = carried.collect();
    // What is held between steps is not freed by the step.
    let Device { memory: held, .. } = device;
    drop(held);
    let (timeline, boundaries) = {
        let mut r = memory.borrow_mut();
        (std::mem::take(&mut r.timeline), std::mem::take(&mut r.boundaries))
    };
    drop(memory);
    drop(values);
    Simulated { timeline, storages, saved, boundaries }
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
fn living(memory: &Memory, loss: &Tracked) -> Vec<StorageId> {
    let r = memory.borrow();
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
