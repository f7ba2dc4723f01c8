//! Which kernels somebody needs, and what waits for what.

use super::{Effect, Flow, Wire};
use memfit_graph::kernels::Kernel;
use smallvec::SmallVec;

/// Whether a kernel runs for what it does to a variable, whoever reads its outputs.
pub(super) fn has_effect(kernel: &Kernel) -> bool {
    matches!(kernel.effect, Effect::Update(_) | Effect::Assign(_) | Effect::Scatter(_))
}

/// What a kernel waits for: its inputs, then those it only runs after.
pub(super) fn reads(kernel: &Kernel) -> impl DoubleEndedIterator<Item = u32> + '_ {
    kernel.inputs.iter().map(|wire| wire.kernel).chain(kernel.after.iter().copied())
}

/// By kernel, whether the kept wires or the variables' updates need it.
pub(super) fn needed(flow: &Flow, kept: &[Wire]) -> Vec<bool> {
    let mut needed: Vec<bool> = flow.kernels.iter().map(has_effect).collect();
    kept.iter().for_each(|wire| needed[wire.kernel as usize] = true);
    let mut stack: Vec<usize> = (0..flow.kernels.len()).filter(|at| needed[*at]).collect();
    while let Some(at) = stack.pop() {
        for from in reads(&flow.kernels[at]) {
            if !std::mem::replace(&mut needed[from as usize], true) {
                stack.push(from as usize);
            }
        }
    }
    needed
}

/// By kernel, what waits for others.
pub(super) struct Waits {
    /// Those that wait for it, in the order of the kernels that were gone through.
    pub(super) readers: Vec<SmallVec<[u32; 4]>>,
    /// How many others it waits for.
    pub(super) number: Vec<u32>,
    /// The kernels that were gone through.
    pub(super) needed: Vec<u32>,
}

impl Waits {
    /// What these kernels wait for; `one` is who stands for what they read.
    pub(super) fn of(flow: &Flow, kernels: impl Iterator<Item = u32>, one: impl Fn(u32) -> u32) -> Waits {
        let mut waits = Waits {
            readers: vec![SmallVec::new(); flow.kernels.len()],
            number: vec![0; flow.kernels.len()],
            needed: Vec::new(),
        };
        for at in kernels {
            waits.needed.push(at);
            let mut from: SmallVec<[u32; 8]> = reads(&flow.kernels[at as usize]).map(&one).collect();
            from.sort_unstable();
            from.dedup();
            waits.number[at as usize] = u32::try_from(from.len()).unwrap_or(u32::MAX);
            from.into_iter().for_each(|f| waits.readers[f as usize].push(at));
        }
        waits
    }
}
