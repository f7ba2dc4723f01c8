//! Gradients by reverse accumulation, in the order of TensorFlow's gradient tape.
//!
//! Kernels whose outputs' gradients are all known are taken from a stack, the last one first; where several gradients of a
//! tensor meet they are added by `AddN` when its kernel is taken (eager/gradient_tape.h, `ComputeGradient`;
//! eager/imperative_grad.py, `_aggregate_grads`). The order in which gradient kernels are made decides in which order the
//! executor runs what becomes ready together.

use super::{Effect, Flow, Wire};
use std::collections::BTreeMap;

/// The last place of the sums where several gradients of one kernel's outputs meet.
const SUMS: u64 = 255;

/// Adds the gradient kernels of a loss; gives the gradient of each trainable variable that it depends on.
pub(super) fn gradients(flow: &mut Flow, loss: Wire) -> BTreeMap<u32, Wire> {
    let forward = flow.kernels.len();
    let differentiable = differentiable(flow);
    let mut waiting = waiting(flow, loss, &differentiable);
    let mut pending: BTreeMap<Wire, Vec<Wire>> = BTreeMap::new();
    let layer = flow.layer;
    let one = flow.constant(&[], flow.dtype(loss));
    pending.insert(loss, vec![one]);
    let mut found: BTreeMap<u32, Vec<Wire>> = BTreeMap::new();
    let mut stack = vec![loss.kernel];
    while let Some(at) = stack.pop() {
        let kernel = flow.kernels[at as usize].clone();
        flow.layer = kernel.layer;
        flow.scope = kernel.scope;
        flow.gradient_of = Some(at);
        let y = Wire { kernel: at, output: 0 };
        let mut incoming = Vec::with_capacity(kernel.outputs.len());
        for output in 0..u32::try_from(kernel.outputs.len()).unwrap_or(0) {
            let met = pending.remove(&Wire { output, ..y }).unwrap_or_default();
            flow.begin_gradient(&kernel, SUMS - u64::from(output).min(SUMS), met.first().copied());
            incoming.push(if met.len() > 1 { flow.add_n(&met) } else { met.first().copied() });
        }
        flow.begin_gradient(&kernel, 0, incoming.iter().flatten().next().copied());
        if let Effect::Read(variable) = kernel.effect {
            found.entry(variable).or_default().extend(incoming.iter().flatten());
            continue;
        }
        let Some(gradient) = kernel.gradient else { continue };
        let known = incoming.iter().any(Option::is_some);
        let made = if known { gradient(flow, &kernel, y, &incoming) } else { Vec::new() };
        for (i, input) in kernel.inputs.iter().enumerate() {
            if !differentiable[input.kernel as usize] {
                continue;
            }
            if let Some(Some(gradient)) = made.get(i) {
                pending.entry(*input).or_default().push(*gradient);
            }
            let left = &mut waiting[input.kernel as usize];
            *left = left.saturating_sub(1);
            if *left == 0 {
                stack.push(input.kernel);
            }
        }
    }
    debug_assert!(flow.kernels.len() >= forward);
    flow.layer = layer;
    flow.scope = "";
    flow.gradient_of = None;
    flow.end_step();
    found.into_iter().filter_map(|(variable, met)| Some((variable, total(flow, variable, &met)?))).collect()
}

/// The sum of a variable's gradients. Rows of a table are put one after the other, or made dense where another gradient is
/// (`AggregateIndexedSlicesGradients`, indexed_slices_util.py).
fn total(flow: &mut Flow, variable: u32, met: &[Wire]) -> Option<Wire> {
    let met = &without_steps(flow, variable, met);
    let [first, _, ..] = &met[..] else { return met.first().copied() };
    let of = flow.variables[variable as usize].clone();
    let is_dense = |flow: &Flow, wire: &Wire| flow.shape(*wire) == of.shape;
    if met.iter().all(|wire| !is_dense(flow, wire)) {
        let mut rows = flow.shape(*first).to_vec();
        let count =
            met.iter().filter_map(|wire| flow.shape(*wire).first()).fold(0, |n: u64, d| n.saturating_add(*d));
        rows.first_mut().into_iter().for_each(|d| *d = count);
        return Some(flow.concat(met, &rows));
    }
    let dense: Vec<Wire> = met
        .iter()
        .map(|wire| match is_dense(flow, wire) {
            true => *wire,
            false => flow.make("UnsortedSegmentSum", &[*wire], &of.shape, of.dtype, None),
        })
        .collect();
    flow.add_n(&dense)
}

/// The gradients that several steps of a loop found are one, their sum.
fn without_steps(flow: &mut Flow, variable: u32, met: &[Wire]) -> Vec<Wire> {
    let mut others = Vec::new();
    let mut loops: BTreeMap<u32, Vec<Wire>> = BTreeMap::new();
    for wire in met {
        match flow.kernel(*wire).turn {
            Some(turn) => loops.entry(turn.of).or_default().push(*wire),
            None => others.push(*wire),
        }
    }
    for of_one in loops.values() {
        others.extend(flow.sum_of_steps(variable, of_one));
    }
    others
}

/// By kernel, whether a trainable variable reaches it through kernels that have gradients.
fn differentiable(flow: &Flow) -> Vec<bool> {
    let mut reached = vec![false; flow.kernels.len()];
    for (i, kernel) in flow.kernels.iter().enumerate() {
        reached[i] = match kernel.effect {
            Effect::Read(variable) => flow.variables[variable as usize].trainable,
            _ => {
                kernel.gradient.is_some()
                    && kernel.outputs.first().is_some_and(|made| made.dtype.is_float())
                    && kernel.inputs.iter().any(|input| reached[input.kernel as usize])
            }
        };
    }
    reached
}

/// By kernel, how many uses of its outputs lie between it and the loss.
fn waiting(flow: &Flow, loss: Wire, differentiable: &[bool]) -> Vec<u32> {
    let mut waiting = vec![0_u32; flow.kernels.len()];
    let mut seen = vec![false; flow.kernels.len()];
    let mut stack = vec![loss.kernel];
    seen[loss.kernel as usize] = true;
    while let Some(at) = stack.pop() {
        for input in &flow.kernels[at as usize].inputs {
            let from = input.kernel as usize;
            if !differentiable[from] {
                continue;
            }
            waiting[from] += 1;
            if !seen[from] {
                seen[from] = true;
                stack.push(input.kernel);
            }
        }
    }
    waiting
}
