//! `torch.index_add`, which the legacy exporter writes as a scatter into zeros that is added to the tensor (torch/onnx,
//! symbolic_opset9.py `index_add`). It stretches the slices to the tensor's other axes, which nothing else does, and the indices to
//! the slices.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::index_add::IndexAdd;
use memfit_graph::ops::scatter::{Places, Scatter};
use memfit_graph::{NodeId, TensorId};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "index add", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    if !rw.is(id, "Add") {
        return false;
    }
    let Some((scatter, to)) = rw.operands(id, |t| rw.made_for_one(t, "ScatterElements")) else {
        return false;
    };
    let Some([index, source]) = added(rw, scatter, to) else { return false };
    rw.rewrite(id, Arc::new(IndexAdd), vec![Some(to), Some(index), Some(source)]);
    true
}

/// The list of indices and the slices that are scattered into zeros of the shape of `to`.
fn added(rw: &Rewriter<'_>, scatter: NodeId, to: TensorId) -> Option<[TensorId; 2]> {
    let op = rw.op::<Scatter>(scatter)?;
    if op.reduction != "none" || !matches!(op.places, Places::Elements(_)) {
        return None;
    }
    let shape_of = |t: TensorId| rw.input(rw.made_by(t, "Shape")?, 0);
    let zeros = rw.made_by(rw.input(scatter, 0)?, "ConstantOfShape")?;
    if shape_of(rw.input(zeros, 0)?)? != to {
        return None;
    }
    let stretched = rw.input(scatter, 2)?;
    let slices = rw.made_by(stretched, "Expand")?;
    let of_one = rw.made_by(shape_of(rw.input(slices, 1)?)?, "Slice")?;
    if rw.input(of_one, 0) != Some(to) {
        return None;
    }
    let indices = rw.made_by(rw.input(scatter, 1)?, "Expand")?;
    if shape_of(rw.input(indices, 1)?)? != stretched {
        return None;
    }
    let mut index = rw.input(indices, 0)?;
    while let Some(unsqueeze) = rw.made_by(index, "Unsqueeze") {
        index = rw.input(unsqueeze, 0)?;
    }
    Some([index, rw.input(slices, 0)?])
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{DType, Role, Shape, Type};

    #[test]
    fn slices_that_are_stretched_to_what_they_are_added_to() {
        for (stretches, expected) in [(true, true), (false, false)] {
            let mut s = Sketch::default();
            let (x, source) = (s.input("x", &[9, 8]), s.input("source", &[5, 8]));
            let ty = Type::tensor(DType::Int64, Shape::from([5]));
            let index = s.graph.add_tensor("index", ty, Role::Input);
            s.graph.inputs.push(index);
            let (starts, ends, axes) = (s.ints(&[0, 0]), s.ints(&[1, i64::MAX]), s.ints(&[0, 1]));
            let one = s.push("Slice", &[x, starts, ends, axes]);
            let sizes = s.push("Shape", &[one]);
            let slices = if stretches { s.push("Expand", &[source, sizes]) } else { source };
            let axis = s.ints(&[1]);
            let column = s.push("Unsqueeze", &[index, axis]);
            let sizes = s.push("Shape", &[slices]);
            let indices = s.push("Expand", &[column, sizes]);
            let sizes = s.push("Shape", &[x]);
            let zeros = s.push("ConstantOfShape", &[sizes]);
            let scattered = s.push("ScatterElements", &[zeros, indices, slices]);
            let y = s.push("Add", &[x, scattered]);
            let found = s.recompose(y) == ["IndexAdd"];
            assert_eq!(found, expected);
            if expected {
                assert_eq!(s.inputs_of(0), ["x", "index", "source"]);
            }
        }
    }
}
