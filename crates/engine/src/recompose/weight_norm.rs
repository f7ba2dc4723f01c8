//! `torch._weight_norm`: `v / ||v|| * g`, which both exporters write as ReduceL2, Div and Mul of stored tensors
//! (torch/onnx, symbolic_opset9.py `_weight_norm`). The framework runs one kernel that keeps the norms alone.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::weight_norm::WeightNorm;
use memfit_graph::{NodeId, TensorId};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "weight norm", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    if !rw.is(id, "Mul") {
        return false;
    }
    let Some((direction, length)) = rw.operands(id, |t| normalized(rw, t)) else { return false };
    if !rw.is_stored(length) {
        return false;
    }
    rw.rewrite(id, Arc::new(WeightNorm), vec![Some(direction), Some(length)]);
    true
}

/// The stored tensor that `t` is divided by its own norm.
fn normalized(rw: &Rewriter<'_>, t: TensorId) -> Option<TensorId> {
    let div = rw.made_for_one(t, "Div")?;
    let direction = rw.input(div, 0).filter(|t| rw.is_stored(*t))?;
    let norm = rw.made_for_one(rw.input(div, 1)?, "ReduceL2")?;
    (rw.input(norm, 0) == Some(direction)).then_some(direction)
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    #[test]
    fn a_weight_over_its_own_norm() {
        for (activation, whole) in
            [(false, &["WeightNorm", "Add"][..]), (true, &["ReduceL2", "Div", "Mul", "Add"])]
        {
            let mut s = Sketch::default();
            let x = s.input("x", &[4, 8]);
            let (v, g) = (s.weight("v", &[4, 8]), s.weight("g", &[4, 1]));
            let v = if activation { x } else { v };
            let axes = s.ints(&[1]);
            let norm = s.push("ReduceL2", &[v, axes]);
            let y = s.push("Div", &[v, norm]);
            let y = s.push("Mul", &[y, g]);
            let y = s.push("Add", &[x, y]);
            assert_eq!(s.recompose(y), whole);
        }
    }
}
