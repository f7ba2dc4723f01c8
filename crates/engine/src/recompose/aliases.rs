//! Nodes that hand their input on: Identity, and a Cast to the dtype that the tensor already has.
//!
//! PyTorch runs nothing for `x.to(x.dtype)`; the exporters write a Cast. An Identity of an initializer is different:
//! the TorchScript exporter merges equal-valued initializers of a fresh model and writes one Identity for each further
//! user, so that every one of them stands for a parameter of its own. Where it folded a weight for each call of one module
//! (`/encoder/fc/MatMul`, `/encoder_1/fc/MatMul`), they are one parameter again.

use super::Pass;
use super::parameters::is_exporters;
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
    let is_own = rw.is(id, "Identity") && parameter && !is_called_again(rw, from, to);
    let own = if is_own {
        let name = rw.graph.tensor(to).name.to_string();
        rw.graph.tensors[to.index()].name = format!("{name}.merged").into();
        rw.copy(from, name)
    } else {
        from
    };
    rw.redirect(to, own);
    true
}

/// Whether both are a folded weight of one module, which the exporter numbers where it is called again.
fn is_called_again(rw: &Rewriter<'_>, from: TensorId, to: TensorId) -> bool {
    fn module(scope: &str) -> impl Iterator<Item = &str> {
        let unnumbered = |part: &'_ str| part.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        scope.split('.').map(move |part| part[..unnumbered(part)].strip_suffix('_').unwrap_or(part))
    }
    let scope = |n: NodeId| &*rw.node(n).scope;
    is_exporters(&rw.graph.tensor(from).name)
        && rw.readers(to).any(|again| rw.readers(from).any(|n| module(scope(n)).eq(module(scope(again)))))
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

    #[test]
    fn a_folded_weight_of_a_module_that_is_called_again_is_one() {
        for (name, scopes, expected) in [
            ("onnx::MatMul_3", ["fc", "fc_1"], 1),
            ("onnx::MatMul_3", ["enc.0", "enc_2.0"], 1),
            ("onnx::MatMul_3", ["a", "b"], 2),
            ("fc.weight", ["fc", "fc_1"], 2),
        ] {
            let mut s = Sketch::default();
            let x = s.input("x", &[2, 8]);
            let first = s.weight(name, &[8, 8]);
            let second = s.push("Identity", &[first]);
            let y = s.push("MatMul", &[x, first]);
            let y = s.push("MatMul", &[y, second]);
            for (node, scope) in s.graph.nodes.iter_mut().skip(1).zip(scopes) {
                node.scope = scope.into();
            }
            s.recompose(y);
            let stored = s.graph.tensors.iter().filter(|t| t.role == memfit_graph::Role::Initializer);
            assert_eq!(stored.count(), expected, "{name} {scopes:?}");
        }
    }
}
