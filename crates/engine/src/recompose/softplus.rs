//! `torch.nn.functional.softplus`, which the dynamo exporter writes as a choice between `x` and Softplus of it.
//!
//! `Where(x > threshold, x, Softplus(x))` (onnxscript 0.7.2, torch_lib/ops/nn.py, `aten_softplus`). The framework runs one
//! kernel, which keeps `x` alone (derivatives.yaml: `softplus`); the choice would keep a truth value for each element.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::NodeId;

pub(super) const PASS: Pass = Pass { name: "softplus", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let softplus = || {
        let [condition, x, other] = [0, 1, 2].map(|i| rw.input(id, i));
        let softplus = rw.made_for_one(other?, "Softplus")?;
        let greater = rw.made_by(condition?, "Greater")?;
        let compared = rw.input(greater, 1).and_then(|t| rw.scalar(t)).is_some();
        let same = [softplus, greater].iter().all(|n| rw.input(*n, 0) == x);
        (compared && same).then(|| (rw.node(softplus).op.clone(), x))
    };
    let Some((op, x)) = rw.is(id, "Where").then(softplus).flatten() else { return false };
    rw.rewrite(id, op, vec![x]);
    true
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    #[test]
    fn a_choice_between_a_tensor_and_its_softplus() {
        for other in [false, true] {
            let mut s = Sketch::default();
            let [x, y] = ["x", "y"].map(|name| s.input(name, &[2, 8]));
            let soft = s.push("Softplus", &[if other { y } else { x }]);
            let threshold = s.scalar(20.0);
            let large = s.push("Greater", &[x, threshold]);
            let chosen = s.push("Where", &[large, x, soft]);
            assert_eq!(s.recompose(chosen).len(), if other { 3 } else { 1 });
        }
    }
}
