//! RMS norm that a model composes in Python.
//!
//! Pow(2), ReduceMean, Add, Sqrt, then Div or Reciprocal (the exporters' `rsqrt`), and a Mul with the input. The framework
//! runs these pieces, so nothing is saved by joining them, except what a float32 export hides: models compute the
//! statistics in float32 whatever their precision. The legacy exporter still shows the casts, which change nothing there:
//!
//! - none: the model casts nothing, and runs as it stands;
//! - before the weight (Llama): the result is cast back, then multiplied;
//! - after the weight (OLMo 2), or a weight with one added to it (Gemma): all of it is float32;
//! - only before the square (T5, which casts back where its weight is half): what is multiplied is the input as it was.
//!
//! The dynamo exporter shows none of them; there a norm is taken to be as in Llama, or in Gemma. But it breaks `F.rms_norm` into
//! the same pieces, which runs as one kernel: PyTorch counts the axes of its mean from the front (aten/src/ATen/native/layer_norm.cpp,
//! `rms_norm_composite`, 2.15), where a model writes -1, and multiplies by the weight last.

use super::Pass;
use super::rewriter::{Rewriter, build};
use memfit_graph::ops::composed_rms_norm::ComposedRmsNorm;
use memfit_graph::{Attribute, NodeId, Role, Shape, TensorId, Type};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "composed RMS norm", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    if !rw.is(id, "Mul") {
        return false;
    }
    let Some((squared, x)) = rw.operands(id, |t| squared(rw, t)) else { return false };
    let before_cast =
        |t: TensorId| rw.producer(t).filter(|n| rw.is_empty_cast(*n)).and_then(|n| rw.input(n, 0));
    let source = before_cast(squared).unwrap_or(squared);
    let is_cast = source != squared;
    if source != before_cast(x).unwrap_or(x) || (rw.is_legacy(id) && !is_cast) {
        return false;
    }
    if let Some((axis, epsilon)) = kernel(rw, id) {
        return fuse(rw, id, source, axis, epsilon);
    }
    let next = rw.output(id).and_then(|y| rw.sole_reader(y));
    let product = next.filter(|n| rw.is(*n, "Mul")).and_then(|n| Some((n, rw.other(n, rw.output(id)?)?)));
    let closes = |n: NodeId| {
        let reader = rw.output(n).and_then(|y| rw.sole_reader(y));
        reader.is_some_and(|reader| rw.is_empty_cast(reader))
    };
    let is_offset = |weight: TensorId| {
        let add = rw.made_for_one(weight, "Add");
        // The dynamo exporter folds the sum.
        (rw.is_stored(weight) && rw.is_named_after(weight, "add"))
            || add.is_some_and(|add| rw.times(add, 1.0).is_some())
    };
    let (at, weight) = match product {
        Some((n, weight)) if is_offset(weight) || (is_cast && closes(n)) => (n, Some(weight)),
        _ => (id, None),
    };
    let squares_apart = is_cast && weight.is_none() && product.is_some() && !closes(id);
    let mut inputs = vec![Some(source)];
    inputs.extend(weight.map(Some));
    rw.rewrite(at, Arc::new(ComposedRmsNorm { squares_apart }), inputs);
    // The tracer lets every later use of the same tensor read the cast.
    if is_cast {
        rw.redirect(squared, source);
    }
    true
}

/// The first axis and the epsilon of a norm whose pieces are those of `F.rms_norm`.
fn kernel(rw: &Rewriter<'_>, id: NodeId) -> Option<(usize, f64)> {
    let [x, root] = [0, 1].map(|i| rw.input(id, i));
    let pieces = pieces(rw, root?)?;
    let rank = rw.rank(x?)?;
    let axes = rw.value(rw.input(pieces.mean, 1)?)?.ints()?;
    let first = usize::try_from(*axes.iter().min()?).ok()?;
    let trailing = axes.len() == rank.checked_sub(first)?;
    (trailing && !rw.is_legacy(id)).then_some((first, pieces.epsilon))
}

/// The kernel in the place of its pieces.
fn fuse(rw: &mut Rewriter<'_>, id: NodeId, x: TensorId, axis: usize, epsilon: f64) -> bool {
    let normalized: Option<Shape> = rw.shape(x).map(|s| s.dims()[axis..].iter().cloned().collect());
    let Some(shape) = normalized else { return false };
    let scaled = rw.output(id).and_then(|y| {
        let mul = rw.sole_reader(y).filter(|n| rw.is(*n, "Mul") && rw.input(*n, 0) == Some(y))?;
        let weight = rw.input(mul, 1).filter(|w| rw.is_stored(*w) && rw.shape(*w) == Some(&shape))?;
        Some((mul, weight))
    });
    let axis = Attribute::Int(i64::try_from(axis).unwrap_or(-1));
    let attributes = [("axis", axis), ("epsilon", Attribute::Float(epsilon))];
    let Some(op) = build("RMSNormalization", attributes) else { return false };
    let (end, weight) = scaled.unwrap_or_else(|| {
        let (name, ty) = (format!("{}.ones", rw.node(id).name), Type::tensor(rw.dtype(x), shape));
        (id, rw.add_stored(name, ty, Role::Constant))
    });
    rw.rewrite(end, op, vec![Some(x), Some(weight)]);
    true
}

/// What the reciprocal root mean square of a tensor is made of.
struct Pieces {
    squared: TensorId,
    mean: NodeId,
    epsilon: f64,
}

/// What `t` is the reciprocal root mean square of.
fn squared(rw: &Rewriter<'_>, t: TensorId) -> Option<TensorId> {
    pieces(rw, t).map(|pieces| pieces.squared)
}

fn pieces(rw: &Rewriter<'_>, t: TensorId) -> Option<Pieces> {
    let root = match rw.made_for_one(t, "Reciprocal") {
        Some(reciprocal) => rw.input(reciprocal, 0)?,
        None => {
            let div = rw.made_for_one(t, "Div")?;
            if !rw.is_scalar(rw.input(div, 0)?, 1.0) {
                return None;
            }
            rw.input(div, 1)?
        }
    };
    let sqrt = rw.made_for_one(root, "Sqrt")?;
    let add = rw.made_for_one(rw.input(sqrt, 0)?, "Add")?;
    let (mean, epsilon) = rw.operands(add, |t| rw.made_for_one(t, "ReduceMean"))?;
    let pow = rw.made_for_one(rw.input(mean, 0)?, "Pow")?;
    let squared = rw.input(pow, 0).filter(|_| rw.input(pow, 1).is_some_and(|two| rw.is_scalar(two, 2.0)))?;
    Some(Pieces { squared, mean, epsilon: rw.scalar(epsilon).unwrap_or(1e-6) })
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::TensorId;
    use memfit_graph::ops::composed_rms_norm::ComposedRmsNorm;

    /// `x * rsqrt(mean(of^2) + eps)`.
    fn norm(s: &mut Sketch, x: TensorId, of: TensorId) -> TensorId {
        norm_over(s, x, of, -1)
    }

    fn norm_over(s: &mut Sketch, x: TensorId, of: TensorId, axis: i64) -> TensorId {
        let (two, eps, axes) = (s.scalar(2.0), s.scalar(1e-6), s.ints(&[axis]));
        let p = s.push("Pow", &[of, two]);
        let m = s.push("ReduceMean", &[p, axes]);
        let a = s.push("Add", &[m, eps]);
        let r = s.push("Sqrt", &[a]);
        let r = s.push("Reciprocal", &[r]);
        s.push("Mul", &[x, r])
    }

    #[test]
    fn axes_counted_from_the_front_are_the_kernels() {
        for (axis, weight_first, expected) in [
            (1, false, &["RMSNormalization"][..]),
            (1, true, &["RMSNormalization", "Mul"]),
            (-1, false, &["ComposedRmsNorm", "Mul"]),
        ] {
            let mut s = Sketch::default();
            let (x, w) = (s.input("x", &[2, 8]), s.weight("w", &[8]));
            let y = norm_over(&mut s, x, x, axis);
            let y = if weight_first { s.push("Mul", &[w, y]) } else { s.push("Mul", &[y, w]) };
            assert_eq!(s.recompose(y), expected);
        }
    }

    fn names(mut s: Sketch, y: TensorId, legacy: bool) -> (Vec<String>, Sketch) {
        if legacy {
            s.graph.nodes.iter_mut().for_each(|n| n.name = format!("/{}", n.name).into());
        }
        let names = s.recompose(y).into_iter().map(str::to_owned).collect();
        (names, s)
    }

    #[test]
    fn the_square_of_another_tensor_is_no_norm() {
        for (of_input, found) in [(true, true), (false, false)] {
            let mut s = Sketch::default();
            let (x, z, w) = (s.input("x", &[2, 8]), s.input("z", &[2, 8]), s.weight("w", &[8]));
            let y = norm(&mut s, x, if of_input { x } else { z });
            let y = s.push("Mul", &[w, y]);
            let (names, _) = names(s, y, false);
            assert_eq!(names.contains(&"ComposedRmsNorm".to_owned()), found, "{names:?}");
        }
    }

    #[test]
    fn the_legacy_exporter_shows_what_is_float32() {
        // Nothing, before the weight, after it, before the square alone.
        let mut s = Sketch::default();
        let (x, w) = (s.input("x", &[2, 8]), s.weight("w", &[8]));
        let y = norm(&mut s, x, x);
        let y = s.push("Mul", &[w, y]);
        assert!(!names(s, y, true).0.contains(&"ComposedRmsNorm".to_owned()));
        for (before, after, left, apart) in
            [(true, false, 2, false), (false, true, 1, false), (false, false, 2, true)]
        {
            let mut s = Sketch::default();
            let (x, w) = (s.input("x", &[2, 8]), s.weight("w", &[8]));
            let c = s.cast(x);
            let mut y = norm(&mut s, c, c);
            if before {
                y = s.cast(y);
            }
            y = s.push("Mul", &[w, y]);
            if after {
                y = s.cast(y);
            }
            let y = s.push("Relu", &[y]);
            let (found, s) = names(s, y, true);
            assert_eq!(found.len(), left + 1, "{found:?}");
            let op: &ComposedRmsNorm = s.graph.nodes[0].op.downcast().unwrap();
            assert_eq!((op.squares_apart, s.inputs_of(0).len()), (apart, if left == 1 { 2 } else { 1 }));
        }
    }
}
