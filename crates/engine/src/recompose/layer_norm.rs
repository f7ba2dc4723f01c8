//! `torch.nn.functional.layer_norm` before opset 17: ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div, Mul, Add.
//!
//! Only over trailing axes and with the parameters as second operands, as the exporter writes it. A norm that a model
//! composes itself (over the channel axis, or `weight * x`) runs in pieces in the framework too.

use super::Pass;
use super::rewriter::{Rewriter, build};
use memfit_graph::{Attribute, Dim, NodeId, Role, TensorId, Type};

pub(super) const PASS: Pass = Pass { name: "layer norm", run };

fn run(rw: &mut Rewriter<'_>, div: NodeId) -> bool {
    let Some((x, axis, epsilon)) = normalized(rw, div).filter(|_| !weight_first(rw, div)) else {
        return false;
    };
    let affine = |end: NodeId, op: &str| {
        let t = rw.output(end)?;
        let next = rw.sole_reader(t).filter(|n| rw.is(*n, op) && rw.input(*n, 0) == Some(t))?;
        let parameter = rw.input(next, 1).filter(|p| fits(rw, *p, x, axis))?;
        Some((next, parameter))
    };
    let scaled = affine(div, "Mul");
    let shifted = scaled.and_then(|(mul, _)| affine(mul, "Add"));
    let end = shifted.or(scaled).map_or(div, |(end, _)| end);
    let mut inputs = vec![Some(x)];
    if let Some((_, weight)) = scaled {
        inputs.extend([Some(weight), shifted.map(|(_, bias)| bias)]);
    } else {
        let ones = rw.shape(x).map(|s| s.dims()[axis..].iter().cloned().collect());
        let Some(shape) = ones else { return false };
        let (name, ty) = (format!("{}.ones", rw.node(div).name), Type::tensor(rw.dtype(x), shape));
        inputs.push(Some(rw.add_stored(name, ty, Role::Constant)));
    }
    let axis = Attribute::Int(i64::try_from(axis).unwrap_or(-1));
    let attributes = [("axis", axis), ("epsilon", Attribute::Float(epsilon))];
    let Some(op) = build("LayerNormalization", attributes) else { return false };
    rw.rewrite(end, op, inputs);
    true
}

/// Whether a parameter times the result follows, in this order, which no exporter writes.
fn weight_first(rw: &Rewriter<'_>, div: NodeId) -> bool {
    let next = rw.output(div).and_then(|t| rw.sole_reader(t)).filter(|n| rw.is(*n, "Mul"));
    next.and_then(|n| rw.input(n, 0)).is_some_and(|first| rw.is_stored(first))
}

/// `(x - mean(x)) / sqrt(mean((x - mean(x))²) + ε)`: gives x, the first of the trailing axes and ε.
fn normalized(rw: &Rewriter<'_>, div: NodeId) -> Option<(TensorId, usize, f64)> {
    if !rw.is(div, "Div") {
        return None;
    }
    let centred = rw.input(div, 0)?;
    let sub = rw.made_by(centred, "Sub")?;
    let x = rw.input(sub, 0)?;
    let mean = rw.made_for_one(rw.input(sub, 1)?, "ReduceMean").filter(|n| rw.input(*n, 0) == Some(x))?;
    let sqrt = rw.made_for_one(rw.input(div, 1)?, "Sqrt")?;
    let add = rw.made_for_one(rw.input(sqrt, 0)?, "Add")?;
    let (epsilon, variance) = rw.operands(add, |t| rw.scalar(t))?;
    let variance = rw.made_for_one(variance, "ReduceMean")?;
    let pow = rw.made_for_one(rw.input(variance, 0)?, "Pow")?;
    if rw.input(pow, 0) != Some(centred) || !rw.is_scalar(rw.input(pow, 1)?, 2.0) {
        return None;
    }
    let axis = trailing_axes(rw, x, rw.output(mean)?)?;
    (trailing_axes(rw, x, rw.output(variance)?)? == axis).then_some((x, axis, epsilon))
}

/// The first of the axes that a reduction with kept dims took from `x`, if they are the last ones.
fn trailing_axes(rw: &Rewriter<'_>, x: TensorId, mean: TensorId) -> Option<usize> {
    let (x, mean) = (rw.shape(x)?, rw.shape(mean)?);
    if x.rank() != mean.rank() {
        return None;
    }
    let axis = (0..x.rank()).find(|i| x[*i] != mean[*i])?;
    mean.dims()[axis..].iter().all(|d| *d == Dim::Known(1)).then_some(axis)
}

/// Whether `parameter` has the normalized dims.
fn fits(rw: &Rewriter<'_>, parameter: TensorId, x: TensorId, axis: usize) -> bool {
    let (Some(parameter), Some(x)) = (rw.shape(parameter), rw.shape(x)) else { return false };
    parameter.dims() == &x.dims()[axis..]
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::TensorId;

    fn norm(s: &mut Sketch, x: TensorId, axis: i64) -> TensorId {
        let axes = s.ints(&[axis]);
        let mean = s.push("ReduceMean", &[x, axes]);
        let centred = s.push("Sub", &[x, mean]);
        let (two, epsilon) = (s.scalar(2.0), s.scalar(1e-5));
        let y = s.push("Pow", &[centred, two]);
        let y = s.push("ReduceMean", &[y, axes]);
        let y = s.push("Add", &[y, epsilon]);
        let y = s.push("Sqrt", &[y]);
        s.push("Div", &[centred, y])
    }

    #[test]
    fn over_the_last_axis_with_its_parameters() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 5, 8]);
        let (w, b) = (s.weight("w", &[8]), s.weight("b", &[8]));
        let y = norm(&mut s, x, -1);
        let y = s.push("Mul", &[y, w]);
        let y = s.push("Add", &[y, b]);
        assert_eq!(s.recompose(y), ["LayerNormalization"]);
        assert_eq!(s.inputs_of(0), ["x", "w", "b"]);
    }

    #[test]
    fn a_norm_over_channels_and_a_composed_one_stay_in_pieces() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 5, 8]);
        let y = norm(&mut s, x, 1);
        // One more: the difference from the mean is made twice.
        assert_eq!(s.recompose(y).len(), 8);
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 5, 8]);
        let (w, y) = (s.weight("w", &[8]), norm(&mut s, x, -1));
        let y = s.push("Mul", &[w, y]);
        assert_eq!(s.recompose(y).len(), 9);
    }
}
