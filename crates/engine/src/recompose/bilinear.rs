//! `torch.nn.functional.bilinear`, which the dynamo exporter writes as two products.
//!
//! The first makes a matrix for each row, `a · W` with all outputs side by side, and the second multiplies it with `b`
//! (onnxscript 0.7.2, torch_lib/ops/core.py, `aten_bilinear`). The framework never holds those matrices.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::bilinear::Bilinear;
use memfit_graph::{NodeId, TensorId};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "bilinear", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let Some(inputs) = operands(rw, id) else { return false };
    rw.rewrite(id, Arc::new(Bilinear), inputs.map(Some).into());
    true
}

/// Both inputs and the weight of what a Squeeze gives.
fn operands(rw: &Rewriter<'_>, id: NodeId) -> Option<[TensorId; 3]> {
    let second = rw.made_for_one(rw.input(id, 0).filter(|_| rw.is(id, "Squeeze"))?, "MatMul")?;
    let rows = rw.made_for_one(rw.input(second, 0)?, "Reshape")?;
    let column = rw.made_for_one(rw.input(second, 1)?, "Unsqueeze")?;
    let first = rw.made_for_one(rw.input(rows, 0)?, "MatMul")?;
    // `[inputs, outputs, inputs]`, turned from how the module keeps it by the exporter or in the file.
    let weight =
        rw.input(rw.made_by(rw.input(first, 1)?, "Reshape")?, 0).filter(|t| rw.rank(*t) == Some(3))?;
    let turned = || rw.made_by(weight, "Transpose").and_then(|n| rw.input(n, 0));
    let is_weight = rw.is_stored(weight) || turned().is_some_and(|t| rw.is_stored(t));
    is_weight.then_some([rw.input(first, 0)?, rw.input(column, 0)?, weight])
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    #[test]
    fn two_products_with_a_stored_weight_are_one() {
        for (stored, count) in [(true, 1), (false, 6)] {
            let mut s = Sketch::default();
            let (a, b) = (s.input("a", &[8, 6]), s.input("b", &[8, 5]));
            let w = if stored { s.weight("w", &[6, 3, 5]) } else { s.input("w", &[6, 3, 5]) };
            let (flat, apart, last) = (s.ints(&[6, 15]), s.ints(&[8, 3, 5]), s.ints(&[-1]));
            let w = s.push("Reshape", &[w, flat]);
            let rows = s.push("MatMul", &[a, w]);
            let rows = s.push("Reshape", &[rows, apart]);
            let column = s.push("Unsqueeze", &[b, last]);
            let y = s.push("MatMul", &[rows, column]);
            let y = s.push("Squeeze", &[y, last]);
            assert_eq!(s.recompose(y).len(), count);
        }
    }
}
