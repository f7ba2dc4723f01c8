//! XLA: chains of elementwise kernels become fusions, of which only the outputs are there as buffers.
//!
//! The rule here: an elementwise kernel (casts, comparisons, broadcasts and moves of elements with it) is fused into those that
//! read it where all of them are elementwise, reductions or updates of variables (xla/service/instruction_fusion.cc,
//! `ShouldFuse`; gpu/transforms/priority_fusion.cc). One that is expensive to compute again (exp, tanh, division, roots, powers) is
//! fused only into a single reader. A tensor that forward makes and backward reads stays a buffer: nothing is computed
//! again across that border. Convolutions, matrix products, softmax and random numbers are kernels of their own, as
//! without XLA. Variables are updated in place.

use super::{Effect, Flow, Place, Wire};
use memfit_graph::kernels::Kernel;
use std::collections::BTreeSet;

/// Elementwise kernels that are too expensive to run more than once.
const EXPENSIVE: &[&str] = &[
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Cos",
    "Cosh",
    "Erf",
    "Erfc",
    "Exp",
    "Expm1",
    "Log",
    "Log1p",
    "Pow",
    "RealDiv",
    "Reciprocal",
    "Rsqrt",
    "Sigmoid",
    "Silu",
    "Sin",
    "Sinh",
    "Softplus",
    "Sqrt",
    "Tan",
    "Tanh",
];

/// Kernels with an output of their own that move or compare elements one by one.
const MOVES: &[&str] = &[
    "Cast",
    "Equal",
    "Fill",
    "Greater",
    "GreaterEqual",
    "Less",
    "LessEqual",
    "NotEqual",
    "Pad",
    "ReverseV2",
    "Slice",
    "StridedSlice",
    "Tile",
    "Transpose",
    "ZerosLike",
];

const REDUCTIONS: &[&str] = &["BiasAddGrad", "Max", "Mean", "Min", "Prod", "Sum"];

/// Kernels that write over an input but are fusions or library calls of their own.
const OPAQUE: &[&str] = &["Softmax", "LogSoftmax", "SparseSoftmaxCrossEntropyWithLogits"];

/// Buffers that one fusion may read and write (xla/service/gpu/gpu_fusible.h, `MaxOperandsAndOutputsPerFusion`).
const MOST_OPERANDS: usize = 96;

fn is_elementwise(kernel: &Kernel) -> bool {
    let [made] = &kernel.outputs[..] else { return false };
    let view = made.place == Place::Alias && kernel.effect == Effect::None;
    let pointwise = made.place == Place::Reuse && !OPAQUE.contains(&kernel.name);
    view || pointwise || MOVES.contains(&kernel.name)
}

fn takes_in(kernel: &Kernel) -> bool {
    let updates = matches!(kernel.effect, Effect::Update(_) | Effect::Assign(_));
    updates || is_elementwise(kernel) || REDUCTIONS.contains(&kernel.name)
}

/// Fuses what can be fused; kernels that were are left unread.
pub(super) fn fuse(flow: &mut Flow, kept: &[Wire]) {
    let mut is_kept = vec![false; flow.kernels.len()];
    kept.iter().for_each(|wire| is_kept[wire.kernel as usize] = true);
    let mut readers: Vec<Vec<u32>> = vec![Vec::new(); flow.kernels.len()];
    for (i, kernel) in (0..).zip(&flow.kernels) {
        kernel.inputs.iter().for_each(|wire| readers[wire.kernel as usize].push(i));
    }
    let mut fused: Vec<bool> = flow
        .kernels
        .iter()
        .zip(readers.iter().zip(is_kept))
        .map(|(kernel, (readers, is_kept))| {
            let many = readers.len() > 1 && EXPENSIVE.contains(&kernel.name);
            let reader = |r: &u32| {
                let reader = &flow.kernels[*r as usize];
                // A parameter's gradient goes straight into its update.
                takes_in(reader) && (reader.stage == kernel.stage || readers.len() == 1)
            };
            is_elementwise(kernel) && !readers.is_empty() && !many && !is_kept && readers.iter().all(reader)
        })
        .collect();
    for i in 0..flow.kernels.len() {
        if !flow.kernels[i].inputs.iter().any(|wire| fused[wire.kernel as usize]) {
            continue;
        }
        // Inputs come before what reads them, so theirs are widened already.
        let (mut inputs, mut seen, mut after) = (Vec::new(), BTreeSet::new(), flow.kernels[i].after.clone());
        for wire in flow.kernels[i].inputs.clone() {
            let at = wire.kernel as usize;
            if fused[at] && inputs.len() + flow.kernels[at].inputs.len() > MOST_OPERANDS {
                fused[at] = false;
                own_buffers(&mut flow.kernels[at]);
            }
            let from = &flow.kernels[at];
            let through = if fused[at] { &from.inputs[..] } else { std::slice::from_ref(&wire) };
            if fused[at] {
                after.extend(&from.after);
            }
            inputs.extend(through.iter().filter(|w| seen.insert(**w)));
        }
        flow.kernels[i].inputs = inputs;
        flow.kernels[i].after = after;
        if !fused[i] {
            own_buffers(&mut flow.kernels[i]);
        }
    }
}

/// A view of something that is no buffer has one of its own.
fn own_buffers(kernel: &mut Kernel) {
    kernel
        .outputs
        .iter_mut()
        .filter(|made| made.place == Place::Alias)
        .for_each(|made| made.place = Place::Reuse);
}
