//! `x + (y - x).detach()`: the straight-through estimator, by which a quantised value passes the gradient of what it stands for.
//!
//! An exporter drops the detach. What is left, x added to a difference from it, is y itself and has no other use: no gradient
//! reaches y (VQ-VAE's codes, binary and quantised activations, Gumbel-softmax with `hard=True`).

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::NodeId;
use memfit_graph::ops::identity::Detach;
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "straight-through estimator", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    if !rw.is(id, "Add") {
        return false;
    }
    let difference = |t| Some((t, rw.input(rw.made_for_one(t, "Sub")?, 1)?));
    let Some(((difference, taken), x)) = rw.operands(id, difference) else { return false };
    if taken != x || rw.is_stored(x) {
        return false;
    }
    let ty = rw.ty(difference).clone();
    let detached = rw.insert_before(id, Arc::new(Detach), vec![Some(difference)], ty);
    rw.reread(id, difference, detached);
    true
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    #[test]
    fn only_a_difference_from_the_tensor_itself_is_detached() {
        for (same, expected) in [(true, &["Sub", "Identity", "Add"][..]), (false, &["Sub", "Add"])] {
            let mut s = Sketch::default();
            let (x, y) = (s.input("x", &[2, 8]), s.input("y", &[2, 8]));
            let z = s.push("Sub", &[y, x]);
            let z = s.push("Add", &if same { [x, z] } else { [z, y] });
            assert_eq!(s.recompose(z), expected);
        }
    }
}
