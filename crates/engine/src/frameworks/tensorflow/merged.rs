//! Grappler keeps one of several kernels that make the same of the same.
//!
//! Gradients were made before: each of the kernels has its own (grappler/optimizers/common_subgraph_elimination.cc), and what two gradient
//! functions compute alike is computed once: `x y + y z` multiplies the gradient by `y` once. Here a kernel may have scalars that are left
//! out, so only those are merged whose inputs and result say all.

use super::{Flow, names};
use memfit_graph::kernels::{Effect, Wire};
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
    let mut first: BTreeMap<(&'static str, Vec<Wire>, Vec<u64>), Wire> = BTreeMap::new();
    let mut same: BTreeMap<Wire, Wire> = BTreeMap::new();
    for (at, kernel) in (0..).zip(&mut flow.kernels) {
        for wire in &mut kernel.inputs {
            *wire = same.get(wire).copied().unwrap_or(*wire);
        }
        let [made] = &kernel.outputs[..] else { continue };
        let of = (kernel.name, kernel.inputs.len());
        if kernel.effect != Effect::None || kernel.turn.is_some() || !DETERMINED.contains(&of) {
            continue;
        }
        let wire = Wire { kernel: at, output: 0 };
        let dtype = u64::from(made.dtype.size_of(1).0);
        let mut inputs = kernel.inputs.clone();
        if names::commutes(kernel) {
            inputs.sort_unstable();
        }
        let key = (kernel.name, inputs, [&made.shape[..], &[dtype]].concat());
        let one = *first.entry(key).or_insert(wire);
        if one != wire {
            same.insert(wire, one);
        }
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
