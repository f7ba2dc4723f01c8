//! `torch.zeros_like`, `ones_like` and `full_like`, which exporters write as ConstantOfShape of a whole tensor's Shape.
//!
//! The result is of that tensor's dtype, which is half precision under autocast where a file says float32.
//! `torch.zeros(x.shape)` is written size by size (torch/onnx, symbolic_opset9.py, `zeros` and `zeros_like`).

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::NodeId;
use memfit_graph::ops::constant_of_shape::ConstantOfShape;
use memfit_graph::ops::shape::ShapeOf;
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "full like", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let like = || {
        let op = rw.op::<ConstantOfShape>(id)?;
        let shape = rw.made_by(rw.input(id, 0)?, "Shape")?;
        let whole = rw.op::<ShapeOf>(shape).is_some_and(|op| op.start == 0 && op.end.is_none());
        rw.input(shape, 0).filter(|x| whole && rw.dtype(*x) == op.dtype && op.dtype.is_float())
    };
    let Some(x) = like() else { return false };
    let op = Arc::clone(&rw.node(id).op);
    rw.rewrite(id, op, vec![None, Some(x)]);
    true
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{Attribute, Attributes};

    #[test]
    fn the_whole_shape_of_a_tensor_gives_its_dtype() {
        for (start, inputs) in [(0, 2), (1, 1)] {
            let mut s = Sketch::default();
            let x = s.input("x", &[2, 8]);
            let y = s.push("Relu", &[x]);
            let from = Attributes::from([("start", Attribute::Int(start))]);
            let sizes = s.push_with("Shape", from, &[y]);
            let zeros = s.push("ConstantOfShape", &[sizes]);
            let y = s.push("Add", &[y, zeros]);
            s.recompose(y);
            let node = s.graph.nodes.iter().find(|n| n.op.name() == "ConstantOfShape").unwrap();
            assert_eq!(node.inputs.len(), inputs);
            assert_eq!(node.inputs[0].is_none(), inputs == 2);
        }
    }

    #[test]
    fn a_column_of_ones_beside_a_tensor_has_its_dtype() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 4, 8]);
        let y = s.push("LeakyRelu", &[x]);
        let (start, end, axes) = (s.ints(&[0]), s.ints(&[1]), s.ints(&[2]));
        let column = s.push("Slice", &[y, start, end, axes]);
        let sizes = s.push("Shape", &[column]);
        let ones = s.push("ConstantOfShape", &[sizes]);
        let y = s.push_with("Concat", [("axis", Attribute::Int(-1))].into(), &[y, ones]);
        s.recompose(y);
        let node = s.graph.nodes.iter().find(|n| n.op.name() == "ConstantOfShape").unwrap();
        assert_eq!(node.inputs.len(), 2);
    }
}
