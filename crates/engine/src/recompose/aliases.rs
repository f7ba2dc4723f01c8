//! Nodes that hand their input on: Identity, and a Cast to the dtype that the tensor already has.
//!
//! PyTorch runs nothing for `x.to(x.dtype)`; the exporters write a Cast. An Identity of an initializer is different:
//! the TorchScript exporter merges equal-valued initializers of a fresh model and writes one Identity for each further
//! user, so that every one of them stands for a parameter of its own.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::softmax::Softmax;
use memfit_graph::{DType, NodeId, Role, TensorId};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "alias", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let (Some(from), Some(to)) = (rw.input(id, 0), rw.output(id)) else { return false };
    let alias = match rw.node(id).op.name() {
        "Identity" => true,
        "Cast" | "CastLike" => rw.dtype(to) == rw.dtype(from) && rw.dtype(to) != DType::Undefined,
        _ => false,
    };
    if !alias || rw.is_graph_output(to) {
        return false;
    }
    if !rw.is(id, "Identity") {
        widen_softmax(rw, from, to);
    }
    let parameter = rw.graph.tensor(from).role == Role::Initializer && rw.dtype(from).is_float();
    let own = if rw.is(id, "Identity") && parameter { rw.copy_of(from, to) } else { from };
    rw.redirect(to, own);
    true
}

/// Two Casts in a row of a softmax's result, both to the dtype that it has in the file, are
/// `softmax(x, dtype=torch.float32).to(x.dtype)`.
fn widen_softmax(rw: &mut Rewriter<'_>, result: TensorId, cast: TensorId) {
    let Some(id) = rw.made_by(result, "Softmax") else { return };
    let Some(softmax) = rw.op::<Softmax>(id).copied() else { return };
    if rw.sole_reader(cast).is_some_and(|n| rw.is(n, "Cast")) {
        let input = rw.input(id, 0);
        rw.rewrite(id, Arc::new(Softmax { in_float32: true, ..softmax }), vec![input]);
    }
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    #[test]
    fn a_merged_parameter_is_one_for_each_user() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8]);
        let first = s.weight("first", &[8]);
        let second = s.push("Identity", &[first]);
        let y = s.push("Mul", &[x, first]);
        let y = s.push("Identity", &[y]);
        let y = s.push("Mul", &[y, second]);
        assert_eq!(s.recompose(y), ["Mul", "Mul"]);
        assert_eq!(s.inputs_of(1)[1], "Identity2");
        let stored = s.graph.tensors.iter().filter(|t| t.role == memfit_graph::Role::Initializer);
        assert_eq!(stored.count(), 2);
    }
}
