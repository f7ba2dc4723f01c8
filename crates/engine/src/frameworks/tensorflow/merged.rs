//! Grappler keeps one of several kernels that make the same of the same.
//!
//! Gradients were made before: each of the kernels has its own (grappler/optimizers/common_subgraph_elimination.cc), and what two gradient
//! functions compute alike is computed once: `x y + y z` multiplies the gradient by `y` once. Here a kernel may have scalars that are left
//! out, so only those are merged whose inputs and result say all.

use super::{Flow, names};
use memfit_graph::kernels::{Effect, Wire};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Kernels that the number of inputs, the inputs and the result's shape determine.
const DETERMINED: &[(&str, usize)] = &[
    ("AddV2", 2),
    ("BatchToSpaceND", 1),
    ("Cast", 1),
    ("Exp", 1),
    ("Mean", 1),
    ("Mul", 2),
    ("Neg", 1),
    ("Pad", 1),
    ("RealDiv", 2),
    ("SpaceToBatchND", 1),
    ("Square", 1),
    ("Sub", 2),
    ("Sum", 1),
];

/// Kernels that another shape determines.
const VIEWS: &[(&str, usize)] = &[("ExpandDims", 1), ("Identity", 1), ("Reshape", 1), ("Squeeze", 1)];

/// Lets all read the first of several equal kernels; XLA does so with views too (xla/service/hlo_cse.cc).
pub(super) fn merge(flow: &mut Flow, views: bool) {
    let mut first: BTreeMap<SmallVec<[u64; 9]>, u32> = BTreeMap::new();
    // By kernel, the one that stands for it.
    let mut one: Vec<u32> = Vec::with_capacity(flow.kernels.len());
    for (at, kernel) in (0..).zip(&mut flow.kernels) {
        kernel.inputs.iter_mut().for_each(|wire| wire.kernel = one[wire.kernel as usize]);
        let of = (kernel.name, kernel.inputs.len());
        let views = if views { VIEWS } else { &[] };
        let name = DETERMINED.iter().chain(views).position(|name| *name == of);
        let is_free = kernel.effect == Effect::None && kernel.turn.is_none();
        let (Some(name), true, Some(made)) = (name, is_free, kernel.outputs.first()) else {
            one.push(at);
            continue;
        };
        let mut key: SmallVec<[u64; 9]> =
            kernel.inputs.iter().map(|wire| u64::from(wire.kernel) << 32 | u64::from(wire.output)).collect();
        if names::commutes(kernel) {
            key.sort_unstable();
        }
        key.extend([name as u64, made.dtype.size_of(1).0]);
        key.extend(made.shape.iter().copied());
        one.push(*first.entry(key).or_insert(at));
    }
}

/// Lets products read what is turned around for them: they take its last two axes in either order (grappler/optimizers/arithmetic_optimizer.cc,
/// `FoldTransposeIntoMatMul`).
pub(super) fn fold_transposes(flow: &mut Flow) {
    for at in 0..flow.kernels.len() {
        let kernel = &flow.kernels[at];
        if !["MatMul", "BatchMatMulV2"].contains(&kernel.name) {
            continue;
        }
        let inputs: Vec<Wire> =
            kernel.inputs.iter().map(|wire| turned(flow, *wire).unwrap_or(*wire)).collect();
        flow.kernels[at].inputs = inputs;
    }
}

/// What this is with its last two axes in the other order. Which axes a kernel moves is seen by its shapes.
fn turned(flow: &Flow, wire: Wire) -> Option<Wire> {
    let kernel = flow.kernel(wire);
    let from = *kernel.inputs.first().filter(|_| kernel.name == "Transpose" && kernel.turn.is_none())?;
    let ([a @ .., m, n], [b @ .., o, p]) = (flow.shape(from), flow.shape(wire)) else { return None };
    (a == b && (m, n) == (p, o)).then_some(from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::DType;

    #[test]
    fn products_take_axes_in_either_order() {
        let mut flow = Flow::default();
        let [x, k] = [0, 1].map(|_| flow.constant(&[2, 4, 3, 5], DType::Float32));
        let last = flow.moved("Transpose", k, &[2, 4, 5, 3]);
        let others = flow.moved("Transpose", k, &[2, 5, 3, 4]);
        let products = [last, others].map(|k| flow.matmul("BatchMatMulV2", x, k, &[2, 4, 3, 3]));
        let read = flow.unary("Exp", last);
        fold_transposes(&mut flow);
        let second = products.map(|product| flow.kernel(product).inputs[1]);
        assert_eq!((second, flow.kernel(read).inputs[0]), ([k, others], last));
    }

    #[test]
    fn only_what_inputs_determine_is_merged() {
        let mut flow = Flow::default();
        let variable = flow.variable(&[4], DType::Float32, true);
        let x = flow.read(variable);
        let [a, b] = [0, 1].map(|_| flow.moved("Pad", x, &[6]));
        let wider = flow.moved("Pad", x, &[8]);
        let [c, d] = [0, 1].map(|_| flow.scaled("Mul", x));
        let sums = [[a, b], [a, wider], [c, d]].map(|pair| flow.add_n(&pair));
        merge(&mut flow, false);
        let read = sums.map(|sum| flow.kernel(sum.unwrap()).inputs.clone());
        assert_eq!(read, [vec![a, a], vec![a, wider], vec![c, d]]);
    }
}
