//! Which nodes of a recorded graph lead to what backward begins at, and what each parameter waits for.
//!
//! Source: torch/csrc/autograd/engine.cpp, `compute_dependencies`.

use super::record::Node;
use super::tape::{Edge, Tape};

/// How many gradients each leaf waits for.
pub(super) fn dependencies(tape: &Tape, nodes: &[Node], roots: &[Edge], leaves: usize) -> Vec<u32> {
    let mut remaining = vec![0; leaves];
    reach(tape, nodes, roots, &mut |leaf| remaining[leaf as usize] += 1);
    remaining
}

/// Which nodes lead to the roots, and each edge to a leaf on the way.
fn reach(tape: &Tape, nodes: &[Node], roots: &[Edge], leaf: &mut dyn FnMut(u32)) -> Vec<bool> {
    let mut reached = vec![false; nodes.len()];
    let mut follow = |edge: Edge, reached: &mut Vec<bool>| match edge {
        Edge::Node { node, .. } => reached[node.0 as usize] = true,
        Edge::Leaf(to) => leaf(to),
        Edge::None => {}
    };
    roots.iter().for_each(|root| follow(*root, &mut reached));
    for id in (0..nodes.len()).rev() {
        if reached[id] {
            tape.inputs[nodes[id].inputs.range()].iter().for_each(|input| follow(input.edge, &mut reached));
        }
    }
    reached
}

impl Tape {
    /// Frees what nodes keep that do not lead to `roots`. A graph goes with the last tensor that it belongs to (the shared pointer
    /// of `grad_fn`, c10/core/TensorImpl.h): distances whose nearest alone counts, the side of a straight-through estimator
    /// that is detached.
    pub(super) fn forget_unreached(&mut self, roots: &[Edge]) {
        let reached = reach(self, &self.nodes, roots, &mut |_| {});
        for (node, _) in self.nodes.iter_mut().zip(reached).filter(|(_, reached)| !reached) {
            for at in std::mem::take(&mut node.saved).range() {
                self.memory.release(self.saved[at]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Category;
    use memfit_graph::{Call, DType, Grad, Operand, OutDtype, Place, Saved};

    #[test]
    fn what_no_root_needs_is_forgotten() {
        let mut tape = Tape::new(None, true);
        let x = tape.new_tensor(&[128], DType::Float32, Category::Parameter, "x");
        tape.tensors[x.0 as usize].edge = Edge::Leaf(0);
        let square = Call::new("mul")
            .input(Operand::Input(0), Grad::Pointwise)
            .output(&[128], OutDtype::Promoted, Place::Pointwise)
            .saves([Saved::Output(0)]);
        let [used, unused] = [0; 2].map(|_| tape.run(&square, &[x])[0]);
        let roots = [tape.tensor(used).edge];
        tape.forget_unreached(&roots);
        let holders = |t| tape.memory.references(tape.tensor(t).storage);
        assert_eq!((holders(used), holders(unused)), (2, 1), "its node keeps one of them");
        assert_eq!(dependencies(&tape, &tape.nodes, &roots, 1), [1]);
    }
}
