//! Grappler keeps one of several kernels that make the same of the same.
//!
//! Gradients were made before: each of the kernels has its own (grappler/optimizers/common_subgraph_elimination.cc), and what two gradient
//! functions compute alike is computed once: `x y + y z` multiplies the gradient by `y` once. Here a kernel may have scalars that are left
//! out, so only those are merged whose inputs and result say all.

use super::{Flow, names};
use memfit_graph::kernels::Effect;
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

/// Lets all read the first of several equal kernels.
pub(super) fn merge(flow: &mut Flow) {
    let mut first: BTreeMap<Vec<u64>, u32> = BTreeMap::new();
    // By kernel, the one that stands for it.
    let mut one: Vec<u32> = Vec::with_capacity(flow.kernels.len());
    for (at, kernel) in (0..).zip(&mut flow.kernels) {
        kernel.inputs.iter_mut().for_each(|wire| wire.kernel = one[wire.kernel as usize]);
        let of = (kernel.name, kernel.inputs.len());
        let name = DETERMINED.iter().position(|name| *name == of);
        let is_free = kernel.effect == Effect::None && kernel.turn.is_none();
        let (Some(name), true, Some(made)) = (name, is_free, kernel.outputs.first()) else {
            one.push(at);
            continue;
        };
        let mut key: Vec<u64> =
            kernel.inputs.iter().map(|wire| u64::from(wire.kernel) << 32 | u64::from(wire.output)).collect();
        if names::commutes(kernel) {
            key.sort_unstable();
        }
        key.extend([name as u64, made.dtype.size_of(1).0]);
        key.extend(&made.shape);
        one.push(*first.entry(key).or_insert(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::DType;

    #[test]
    fn only_what_inputs_determine_is_merged() {
        let mut flow = Flow::default();
        let variable = flow.variable(&[4], DType::Float32, true);
        let x = flow.read(variable);
        let [a, b] = [0, 1].map(|_| flow.moved("Pad", x, &[6]));
        let wider = flow.moved("Pad", x, &[8]);
        let [c, d] = [0, 1].map(|_| flow.scaled("Mul", x));
        let sums = [[a, b], [a, wider], [c, d]].map(|pair| flow.add_n(&pair));
        merge(&mut flow);
        let read = sums.map(|sum| flow.kernel(sum.unwrap()).inputs.clone());
        assert_eq!(read, [vec![a, a], vec![a, wider], vec![c, d]]);
    }
}
