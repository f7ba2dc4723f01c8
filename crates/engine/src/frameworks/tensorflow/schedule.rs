//! The order in which the executor runs the kernels that somebody needs.
//!
//! A kernel runs when its inputs are there. Of those that become ready together the executor runs the cheap ones at once,
//! then goes on with the last of the others and hands the rest to its pool, where the latest comes first
//! (common_runtime/executor.cc, `ScheduleReady`; Eigen's ThreadPool takes its own tasks from the front). So the graph is
//! run depth first, the consumer that was made last before the others: a weight's gradient and its update before the
//! gradient of the input. Variables are read, and random masks drawn, before the batch is looked at.

use super::{Effect, Flow, Place, Stage, Wire};
use memfit_graph::kernels::Kernel;
use std::collections::VecDeque;

/// The kernels that the kept wires and the variables' updates need, in the order in which they run.
pub(super) fn order(flow: &Flow, kept: &[Wire]) -> Vec<u32> {
    let needed = needed(flow, kept);
    let mut consumers: Vec<Vec<u32>> = vec![Vec::new(); flow.kernels.len()];
    let mut waiting = vec![0_u32; flow.kernels.len()];
    for (i, kernel) in (0..).zip(&flow.kernels).filter(|(i, _)| needed[*i as usize]) {
        let mut from: Vec<u32> =
            kernel.inputs.iter().map(|w| w.kernel).chain(kernel.after.iter().copied()).collect();
        from.sort_unstable();
        from.dedup();
        waiting[i as usize] = u32::try_from(from.len()).unwrap_or(u32::MAX);
        from.into_iter().for_each(|f| consumers[f as usize].push(i));
    }
    break_ties(flow, &mut consumers);
    let is_root = |i: &u32| needed[*i as usize] && waiting[*i as usize] == 0;
    let mut pool: VecDeque<u32> = (0..).take(flow.kernels.len()).filter(is_root).collect();
    let feeds = |i: &u32| matches!(flow.kernels[*i as usize].effect, Effect::Feed(_));
    pool.make_contiguous().sort_by_key(feeds);
    let mut order = Vec::new();
    while let Some(next) = pool.pop_front() {
        let mut inline = VecDeque::from([next]);
        while let Some(at) = inline.pop_front() {
            order.push(at);
            let (mut current, mut others) = (None, Vec::new());
            for consumer in &consumers[at as usize] {
                let left = &mut waiting[*consumer as usize];
                *left -= 1;
                if *left > 0 {
                    continue;
                }
                if is_cheap(&flow.kernels[*consumer as usize]) {
                    inline.push_back(*consumer);
                } else {
                    others.extend(current.replace(*consumer));
                }
            }
            if inline.is_empty() {
                inline.extend(current);
            } else {
                others.extend(current);
            }
            others.into_iter().for_each(|other| pool.push_front(other));
        }
    }
    order
}

/// Puts consumers into the order that they have in the graph once grappler has sorted it, of which the executor runs the last
/// one first.
///
/// The order in which gradient kernels were made is left where nothing else is seen: a product's weight gradient comes after
/// its input gradient. What was seen in graphs of TensorFlow 2.21 (partition graphs of a traced step) beyond that: where an optimizer
/// keeps slots, and each update is a long chain, everything but matrix products and transposed convolutions is turned around, so that the gradient
/// of a convolution's filter waits until the rest of backward is done; without slots, what ends in an update comes last
/// and runs first.
fn break_ties(flow: &Flow, consumers: &mut [Vec<u32>]) {
    let is_slot = |kernel: &Kernel| match kernel.effect {
        Effect::Update(v) | Effect::Assign(v) => !flow.variables[v as usize].trainable,
        _ => false,
    };
    let slotted = flow.kernels.iter().any(is_slot);
    // A parameter's gradient, or what is only reshaped, summed or cast into one.
    let mut ends_in_update: Vec<bool> = flow.kernels.iter().map(|k| k.stage == Stage::Update).collect();
    for i in (0..flow.kernels.len()).rev().filter(|i| flow.kernels[*i].stage == Stage::Backward) {
        let passes = |c: &u32| {
            let kernel = &flow.kernels[*c as usize];
            kernel.stage == Stage::Update || is_cheap(kernel) || matches!(kernel.name, "Sum" | "Cast")
        };
        let mut list = consumers[i].iter();
        ends_in_update[i] =
            !consumers[i].is_empty() && list.all(|c| ends_in_update[*c as usize] && passes(c));
    }
    let of = |names: &[&str], c: &u32| {
        let kernel = &flow.kernels[*c as usize];
        kernel.stage == Stage::Backward && names.contains(&kernel.name)
    };
    for list in consumers.iter_mut().filter(|list| list.len() > 1) {
        // The gradients of a transposed convolution stay as they were made.
        if list.iter().any(|c| of(&["Conv2D", "Conv3D"], c)) {
            continue;
        }
        if !slotted {
            list.sort_by_key(|c| ends_in_update[*c as usize]);
        } else if !list.iter().any(|c| of(&["MatMul", "BatchMatMulV2"], c)) {
            list.reverse();
        }
    }
}

/// Kernels that say of themselves that they are not expensive (`OpKernel::IsExpensive`): those that make views.
fn is_cheap(kernel: &Kernel) -> bool {
    kernel.effect == Effect::None
        && kernel.outputs.iter().all(|made| matches!(made.place, Place::Alias | Place::Host))
}

/// By kernel, whether somebody needs it.
fn needed(flow: &Flow, kept: &[Wire]) -> Vec<bool> {
    let mut needed = vec![false; flow.kernels.len()];
    kept.iter().for_each(|wire| needed[wire.kernel as usize] = true);
    for (i, kernel) in flow.kernels.iter().enumerate() {
        needed[i] |= matches!(kernel.effect, Effect::Update(_) | Effect::Assign(_) | Effect::Scatter(_));
    }
    // Inputs are made before what reads them.
    for i in (0..flow.kernels.len()).rev().filter(|i| needed[*i]).collect::<Vec<_>>() {
        let mut stack = vec![i];
        while let Some(at) = stack.pop() {
            let kernel = &flow.kernels[at];
            for from in kernel
                .inputs
                .iter()
                .map(|w| w.kernel as usize)
                .chain(kernel.after.iter().map(|k| *k as usize))
            {
                if !needed[from] {
                    needed[from] = true;
                    stack.push(from);
                }
            }
        }
    }
    needed
}
