//! `torch.nn.functional.linear`: MatMul with a matrix on the right, and the Add of a bias after it.
//!
//! The TorchScript exporter writes Transpose(weight), MatMul, Add(bias, ·) and folds the transpose of a model in
//! inference into a copy `[in, out]`; the dynamo exporter writes the same with the bias second. The framework runs one
//! `addmm`, so the product without its bias never exists.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::linear::Linear;
use memfit_graph::{NodeId, TensorId};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "linear", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    if !rw.is(id, "MatMul") {
        return false;
    }
    let (Some(x), Some(product)) = (rw.input(id, 0), rw.output(id)) else { return false };
    let Some((weight, out_first)) = weight(rw, id) else { return false };
    // A stored table goes through a layer too; a product of two tables and activations is none.
    if rw.rank(x).is_none_or(|r| r < 2) || (rw.is_stored(x) && !rw.is_stored(weight)) {
        return false;
    }
    let out = rw.shape(weight).map(|s| if out_first { s[0].clone() } else { s[1].clone() });
    let is_bias = |t: TensorId| match rw.shape(t) {
        Some(shape) => shape.rank() == 1 && Some(&shape[0]) == out.as_ref(),
        None => false,
    };
    let add = rw.sole_reader(product).filter(|add| rw.is(*add, "Add"));
    let biased = add.and_then(|add| Some((add, rw.other(add, product).filter(|b| is_bias(*b))?)));
    let (at, bias) = match biased {
        Some((add, bias)) => (add, Some(bias)),
        None => (id, None),
    };
    let mut inputs = vec![Some(x), Some(weight)];
    inputs.extend(bias.map(Some));
    rw.rewrite(at, Arc::new(Linear { out_first }), inputs);
    true
}

/// The matrix on the right: stored, or the transpose of one; and whether its first axis is the output's.
fn weight(rw: &Rewriter<'_>, id: NodeId) -> Option<(TensorId, bool)> {
    let right = rw.input(id, 1).filter(|t| rw.rank(*t) == Some(2))?;
    if rw.is_stored(right) {
        return Some((right, false));
    }
    rw.made_by(right, "Transpose").and_then(|t| rw.input(t, 0)).map(|weight| (weight, true))
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    #[test]
    fn a_product_with_a_stored_matrix_and_its_bias() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 5, 8]);
        let (w, b) = (s.weight("w", &[16, 8]), s.weight("b", &[16]));
        let t = s.push("Transpose", &[w]);
        let y = s.push("MatMul", &[x, t]);
        let y = s.push("Add", &[b, y]);
        assert_eq!(s.recompose(y), ["Linear"]);
        assert_eq!(s.inputs_of(0), ["x", "w", "b"]);
    }

    #[test]
    fn a_residual_is_no_bias_and_two_activations_are_no_layer() {
        let mut s = Sketch::default();
        let x = s.input("x", &[16, 16]);
        let w = s.weight("w", &[16, 16]);
        let y = s.push("MatMul", &[x, w]);
        let y = s.push("Add", &[y, x]);
        let y = s.push("MatMul", &[y, x]);
        assert_eq!(s.recompose(y), ["Linear", "Add", "MatMul"]);
    }
}
