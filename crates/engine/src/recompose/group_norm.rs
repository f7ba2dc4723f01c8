//! `torch.nn.functional.group_norm` before opset 21: Reshape to `[N, groups, …]`, InstanceNormalization with ones and
//! zeros, Reshape back, Mul by the weight and Add of the bias, both stretched to `[C, 1, 1]`. Where the first result has the
//! input's rank, an optimizer may leave out the second Reshape.

use super::Pass;
use super::rewriter::{Rewriter, build};
use memfit_graph::ops::group_norm::GroupNormalization;
use memfit_graph::{Attribute, NodeId, Role, Shape, TensorId, Type};

pub(super) const PASS: Pass = Pass { name: "group norm", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let Some((x, groups, mul, add)) = pieces(rw, id) else { return false };
    let Some(channels) = rw.shape(x).and_then(|s| s.dims().get(1)?.known()) else { return false };
    let parameter = |rw: &mut Rewriter<'_>, (node, data): (NodeId, TensorId)| {
        let stretched = rw.other(node, data)?;
        flat(rw, stretched, channels)
    };
    let (Some(weight), Some(bias)) = (parameter(rw, mul), parameter(rw, add)) else { return false };
    let own = rw.node(id).op.downcast::<GroupNormalization>();
    let epsilon = Attribute::Float(own.map_or(1e-5, |op| op.epsilon));
    let attributes = [("num_groups", Attribute::Int(groups)), ("epsilon", epsilon)];
    let Some(op) = build("GroupNormalization", attributes) else { return false };
    rw.rewrite(add.0, op, vec![Some(x), Some(weight), Some(bias)]);
    true
}

/// From the InstanceNormalization: the input, the groups, and the last two nodes with the data they read.
#[allow(clippy::type_complexity)]
fn pieces(rw: &Rewriter<'_>, id: NodeId) -> Option<(TensorId, i64, (NodeId, TensorId), (NodeId, TensorId))> {
    if !rw.is(id, "InstanceNormalization") {
        return None;
    }
    let split = rw.made_for_one(rw.input(id, 0)?, "Reshape")?;
    let x = rw.input(split, 0)?;
    let [scale, shift] = [1, 2].map(|i| rw.input(id, i).and_then(|t| rw.value(t)?.floats()));
    let groups = i64::try_from(scale.as_ref()?.len()).ok()?;
    let plain = scale?.iter().all(|s| *s == 1.0) && shift?.iter().all(|s| *s == 0.0);
    let normalized = rw.output(id)?;
    let back = rw.sole_reader(normalized).filter(|n| rw.is(*n, "Reshape"));
    let data = back.map_or(Some(normalized), |n| rw.output(n))?;
    if !plain || rw.rank(data) != rw.rank(x) {
        return None;
    }
    let mul = rw.sole_reader(data).filter(|n| rw.is(*n, "Mul"))?;
    let scaled = rw.output(mul)?;
    let add = rw.sole_reader(scaled).filter(|n| rw.is(*n, "Add"))?;
    Some((x, groups, (mul, data), (add, scaled)))
}

/// The parameter of one number a channel behind `[C, 1, 1]`: what was unsqueezed, or a folded copy in its old shape.
fn flat(rw: &mut Rewriter<'_>, stretched: TensorId, channels: u64) -> Option<TensorId> {
    if let Some(unsqueeze) = rw.made_by(stretched, "Unsqueeze") {
        return rw.input(unsqueeze, 0).filter(|t| rw.shape(*t) == Some(&Shape::from([channels])));
    }
    let elements = rw.shape(stretched)?.elements()?;
    let own = rw.is_stored(stretched) && elements == channels;
    let number = rw.value(stretched).is_some_and(|v| v.single().is_some());
    if !own && !number {
        return None;
    }
    let name = format!("{}.flat", rw.graph.tensor(stretched).name);
    let ty = Type::tensor(rw.dtype(stretched), Shape::from([channels]));
    // Without parameters of its own the exporter multiplies by a number.
    Some(rw.add_stored(name, ty, if own { Role::Initializer } else { Role::Constant }))
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{DType, Value};

    fn grouped(scale: f64) -> (Sketch, memfit_graph::TensorId) {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 4, 5, 6]);
        let (w, b) = (s.weight("w", &[4]), s.weight("b", &[4, 1, 1]));
        let (split, whole, axes) = (s.ints(&[0, 2, -1]), s.ints(&[2, 4, 5, 6]), s.ints(&[1, 2]));
        let ones = s.graph.add_constant("ones", Value::vector(DType::Float32, [scale, scale]));
        let zeros = s.graph.add_constant("zeros", Value::vector(DType::Float32, [0.0, 0.0]));
        let y = s.push("Reshape", &[x, split]);
        let y = s.push("InstanceNormalization", &[y, ones, zeros]);
        let y = s.push("Reshape", &[y, whole]);
        let w = s.push("Unsqueeze", &[w, axes]);
        let y = s.push("Mul", &[y, w]);
        let y = s.push("Add", &[y, b]);
        (s, y)
    }

    #[test]
    fn the_parameters_are_flat_again() {
        let (mut s, y) = grouped(1.0);
        assert_eq!(s.recompose(y), ["GroupNormalization"]);
        assert_eq!(s.inputs_of(0), ["x", "w", "b.flat"]);
    }

    #[test]
    fn a_group_a_channel_needs_no_second_reshape() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 2, 6]);
        let (w, b, split) = (s.weight("w", &[2, 1]), s.weight("b", &[2, 1]), s.ints(&[0, 2, -1]));
        let ones = s.graph.add_constant("ones", Value::vector(DType::Float32, [1.0, 1.0]));
        let zeros = s.graph.add_constant("zeros", Value::vector(DType::Float32, [0.0, 0.0]));
        let y = s.push("Reshape", &[x, split]);
        let y = s.push("InstanceNormalization", &[y, ones, zeros]);
        let y = s.push("Mul", &[y, w]);
        let y = s.push("Add", &[y, b]);
        assert_eq!(s.recompose(y), ["GroupNormalization"]);
    }

    #[test]
    fn an_instance_norm_with_a_scale_of_its_own_is_none() {
        let (mut s, y) = grouped(2.0);
        assert_eq!(s.recompose(y).len(), 6);
    }
}
