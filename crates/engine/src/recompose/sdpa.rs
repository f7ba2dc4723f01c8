//! `torch.nn.functional.scaled_dot_product_attention`.
//!
//! Both exporters decompose it with the square root of the scale on queries **and** on transposed keys, before the
//! product; attention that a model composes itself scales one of them or the scores, and the framework runs it as it
//! stands. Then come an added mask, Softmax, a guard against rows of NaN, Dropout without a training flag, and the
//! product with the values. Keys and values that the file repeats for grouped heads were grouped for the kernel where
//! it ran without a mask, since only then do models leave the repeating to it. The legacy exporter cannot write that
//! (torch/onnx, symbolic_opset14.py asserts `not enable_gqa`): where the file has no mask that the model made itself, the model
//! repeats by hand.

use super::Pass;
use super::mask::{self, Mask};
use super::rewriter::{Rewriter, build};
use memfit_graph::ops::scaled_dot_product::ScaledDotProductAttention;
use memfit_graph::ops::transpose::Transpose;
use memfit_graph::{Attribute, DType, NodeId, Shape, TensorId, Type, Value};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "scaled dot-product attention", run };

/// The pieces of one attention.
struct Attention {
    query: TensorId,
    key: Key,
    value: TensorId,
    mask: Option<TensorId>,
    dropout: bool,
    /// The product with the values.
    end: NodeId,
}

/// Where the keys come from; only their transpose need be in the file.
enum Key {
    /// This tensor, before its last two axes were swapped.
    Stored(TensorId),
    /// This tensor in another order, made right before that node.
    Permuted(NodeId, TensorId, Vec<usize>),
    /// This tensor in this shape, made right before that node.
    Reshaped(NodeId, TensorId, Shape),
}

fn run(rw: &mut Rewriter<'_>, softmax: NodeId) -> bool {
    let Some(found) = find(rw, softmax) else { return false };
    let mask = found.mask.map_or(Mask::None, |added| mask::resolve(rw, added));
    let Some(mut key) = made(rw, found.key) else { return false };
    let (mut value, mut is_grouped) = (found.value, false);
    let tensor = match mask {
        Mask::Tensor(mask) => Some(mask),
        Mask::None | Mask::Causal { .. } => {
            let of_model = matches!(mask, Mask::Causal { triangle: false })
                || (mask == Mask::None && found.mask.is_some());
            let by_hand = rw.is_legacy(softmax) && !of_model;
            let pair = grouped(rw, key).zip(grouped(rw, value)).filter(|_| !by_hand);
            if let Some((k, v)) = pair {
                (key, value, is_grouped) = (k, v, true);
            }
            None
        }
    };
    let op = ScaledDotProductAttention {
        is_causal: matches!(mask, Mask::Causal { .. }),
        dropout: found.dropout,
        grouped: is_grouped,
    };
    let mut inputs = vec![Some(found.query), Some(key), Some(value)];
    inputs.extend(tensor.map(Some));
    rw.rewrite(found.end, Arc::new(op), inputs);
    true
}

/// Whether this softmax is attention's own, where that is left in pieces.
pub(super) fn is_inside(rw: &Rewriter<'_>, softmax: NodeId) -> bool {
    find(rw, softmax).is_some()
}

fn find(rw: &Rewriter<'_>, softmax: NodeId) -> Option<Attention> {
    if !rw.is(softmax, "Softmax") {
        return None;
    }
    let (scores, mask) = scores(rw, rw.input(softmax, 0)?)?;
    let (left, right) = (rw.input(scores, 0)?, rw.input(scores, 1)?);
    let (query, key) = match (scaled(rw, left), scaled(rw, right)) {
        (Some((by_q, query)), Some((by_k, turned))) if same_factor(rw, by_q, by_k) => {
            (query, key(rw, scores, turned)?)
        }
        // An optimizer drops a scale of one; what is left to know it by is how the dynamo exporter swaps two axes.
        _ => (left, flattened_key(rw, right)?),
    };
    let (end, dropout) = product_with_values(rw, rw.output(softmax)?)?;
    Some(Attention { query, key, value: rw.input(end, 1)?, mask, dropout, end })
}

/// `t` as a factor times something.
fn scaled(rw: &Rewriter<'_>, t: TensorId) -> Option<(TensorId, TensorId)> {
    rw.operands(rw.made_for_one(t, "Mul")?, |t| is_factor(rw, t))
}

/// The product of queries and keys behind the softmax, and what is added to it.
fn scores(rw: &Rewriter<'_>, t: TensorId) -> Option<(NodeId, Option<TensorId>)> {
    if let Some(product) = rw.made_for_one(t, "MatMul") {
        return Some((product, None));
    }
    let add = rw.made_for_one(t, "Add")?;
    let (product, mask) = rw.operands(add, |t| rw.made_for_one(t, "MatMul"))?;
    Some((product, Some(mask)))
}

/// Whether `t` is one number.
fn is_factor(rw: &Rewriter<'_>, t: TensorId) -> Option<TensorId> {
    rw.shape(t).and_then(Shape::elements).filter(|n| *n == 1).map(|_| t)
}

/// Whether two factors are the same number: folded alike, one tensor, or roots of one tensor.
fn same_factor(rw: &Rewriter<'_>, a: TensorId, b: TensorId) -> bool {
    let root = |t: TensorId| rw.made_by(t, "Sqrt").and_then(|n| rw.input(n, 0));
    match (rw.scalar(a), rw.scalar(b)) {
        (Some(x), Some(y)) => (x - y).abs() <= 1e-6 * x.abs(),
        _ => a == b || root(a).zip(root(b)).is_some_and(|(x, y)| x == y),
    }
}

/// From the probabilities to the product with the values, and whether some are dropped.
fn product_with_values(rw: &Rewriter<'_>, probabilities: TensorId) -> Option<(NodeId, bool)> {
    let mut t = guarded(rw, probabilities).unwrap_or(probabilities);
    let mut dropout = false;
    let mut reader = rw.sole_reader(t)?;
    if rw.is(reader, "Dropout") {
        let ratio = rw.input(reader, 1).and_then(|r| rw.scalar(r)).unwrap_or(0.5);
        dropout = ratio > 0.0;
        t = rw.output(reader)?;
        reader = rw.sole_reader(t)?;
    }
    (rw.is(reader, "MatMul") && rw.input(reader, 0) == Some(t)).then_some((reader, dropout))
}

/// `where(isnan(p), 0, p)`: gives its result.
fn guarded(rw: &Rewriter<'_>, p: TensorId) -> Option<TensorId> {
    let is_nan = rw.readers(p).find(|n| rw.is(*n, "IsNaN"))?;
    let hit = rw.output(is_nan)?;
    let choice = rw.sole_reader(hit).filter(|n| rw.is(*n, "Where") && rw.input(*n, 2) == Some(p))?;
    (rw.use_count(p) == 2).then(|| rw.output(choice)).flatten()
}

/// The keys behind their transpose, for the product `scores`.
fn key(rw: &Rewriter<'_>, scores: NodeId, turned: TensorId) -> Option<Key> {
    if let Some(key) = flattened_key(rw, turned) {
        return Some(key);
    }
    let rank = rw.rank(turned)?;
    let (at, source, mut perm) = match rw.made_by(turned, "Transpose") {
        Some(at) => (at, rw.input(at, 0)?, rw.op::<Transpose>(at)?.permutation(rank).ok()?),
        // A model that passed transposed keys: the exporter let both transposes cancel.
        None => (scores, turned, (0..rank).collect()),
    };
    perm.swap(rank.checked_sub(2)?, rank - 1);
    let same = perm.iter().enumerate().all(|(i, p)| i == *p);
    Some(if same { Key::Stored(source) } else { Key::Permuted(at, source, perm) })
}

/// The keys behind the dynamo exporter's transpose: Reshape to three axes, swap the last two, Reshape to all again.
/// The first Reshape is missing where an optimizer merged it with one before.
fn flattened_key(rw: &Rewriter<'_>, turned: TensorId) -> Option<Key> {
    let whole = rw.made_by(turned, "Reshape")?;
    let transpose = rw.made_by(rw.input(whole, 0)?, "Transpose")?;
    let flat = rw.input(transpose, 0)?;
    if rw.rank(flat) != Some(3) || rw.op::<Transpose>(transpose)?.permutation(3).ok()? != [0, 2, 1] {
        return None;
    }
    let source = rw.made_by(flat, "Reshape").and_then(|n| rw.input(n, 0));
    if let Some(source) = source.filter(|t| rw.rank(*t) == rw.rank(turned)) {
        return Some(Key::Stored(source));
    }
    let mut shape = rw.shape(turned)?.clone();
    let rank = shape.rank();
    shape.dims_mut().swap(rank.checked_sub(2)?, rank - 1);
    Some(Key::Reshaped(transpose, flat, shape))
}

/// The keys as a tensor, made where the file has only their transpose.
fn made(rw: &mut Rewriter<'_>, key: Key) -> Option<TensorId> {
    match key {
        Key::Stored(key) => Some(key),
        Key::Permuted(at, source, perm) => {
            let dims = perm.iter().map(|p| rw.shape(source)?.dims().get(*p).cloned());
            let ty = Type::tensor(rw.dtype(source), dims.collect::<Option<Shape>>()?);
            let axes = perm.iter().map(|p| i64::try_from(*p).ok()).collect::<Option<_>>()?;
            let op = build("Transpose", [("perm", Attribute::Ints(axes))])?;
            Some(rw.insert_before(at, op, vec![Some(source)], ty))
        }
        Key::Reshaped(at, source, shape) => {
            let sizes: Vec<i64> = shape
                .dims()
                .iter()
                .map(|d| d.known().and_then(|n| i64::try_from(n).ok()).unwrap_or(-1))
                .collect();
            let target = rw.add_value(Value::vector(DType::Int64, sizes));
            let ty = Type::tensor(rw.dtype(source), shape);
            Some(rw.insert_before(at, build("Reshape", [])?, vec![Some(source), Some(target)], ty))
        }
    }
}

/// Keys or values behind Unsqueeze, Expand and Reshape that repeat each head.
fn grouped(rw: &Rewriter<'_>, t: TensorId) -> Option<TensorId> {
    let merge = rw.made_by(t, "Reshape")?;
    let repeat = rw.made_by(rw.input(merge, 0)?, "Expand")?;
    let unsqueeze = rw.made_by(rw.input(repeat, 0)?, "Unsqueeze")?;
    let source = rw.input(unsqueeze, 0)?;
    let inserted = rw.input(repeat, 0).and_then(|t| rw.shape(t))?;
    let (heads, groups) = (rw.shape(t)?, rw.shape(source)?);
    let repeats = inserted.rank() == 5 && inserted[2].known() == Some(1) && inserted[1] == groups[1];
    (repeats && heads.rank() == 4 && groups.rank() == 4 && heads[1] != groups[1]).then_some(source)
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{Attribute, Attributes, TensorId};

    fn transpose(s: &mut Sketch, x: TensorId, perm: &[i64]) -> TensorId {
        s.push_with("Transpose", Attributes::from([("perm", Attribute::Ints(perm.to_vec()))]), &[x])
    }

    /// Scores as the exporters scale them, or with all of the scale on the queries.
    fn scores(s: &mut Sketch, q: TensorId, turned: TensorId, on_both: bool) -> TensorId {
        let c = s.scalar(0.42);
        let q = s.push("Mul", &[q, c]);
        let k = if on_both { s.push("Mul", &[turned, c]) } else { turned };
        s.push("MatMul", &[q, k])
    }

    #[test]
    fn scaled_on_both_sides_with_a_fused_transpose() {
        let mut s = Sketch::default();
        let [q, k, v] = ["q", "k", "v"].map(|name| s.input(name, &[2, 10, 4, 8]));
        let q = transpose(&mut s, q, &[0, 2, 1, 3]);
        let turned = transpose(&mut s, k, &[0, 2, 3, 1]);
        let v = transpose(&mut s, v, &[0, 2, 1, 3]);
        let p = scores(&mut s, q, turned, true);
        let p = s.push("Softmax", &[p]);
        let nan = s.push("IsNaN", &[p]);
        let zero = s.scalar(0.0);
        let p = s.push("Where", &[nan, zero, p]);
        let ratio = s.scalar(0.1);
        let p = s.push("Dropout", &[p, ratio]);
        let y = s.push("MatMul", &[p, v]);
        let names = s.recompose(y);
        assert_eq!(names, ["Transpose", "Transpose", "Transpose", "ScaledDotProductAttention"]);
        let op: &super::ScaledDotProductAttention = s.graph.nodes[3].op.downcast().unwrap();
        assert!(op.dropout && !op.is_causal);
    }

    #[test]
    fn attention_that_scales_one_side_stays_in_pieces() {
        let mut s = Sketch::default();
        let [q, k, v] = ["q", "k", "v"].map(|name| s.input(name, &[2, 4, 10, 8]));
        let turned = transpose(&mut s, k, &[0, 1, 3, 2]);
        let p = scores(&mut s, q, turned, false);
        let p = s.push("Softmax", &[p]);
        let y = s.push("MatMul", &[p, v]);
        assert_eq!(s.recompose(y).len(), 5);
    }

    #[test]
    fn the_dynamo_exporters_transpose_is_enough_without_a_scale() {
        let mut s = Sketch::default();
        let [q, k, v] = ["q", "k", "v"].map(|name| s.input(name, &[2, 4, 10, 8]));
        let (flat, whole) = (s.ints(&[8, 10, 8]), s.ints(&[2, 4, 8, 10]));
        let t = s.push("Reshape", &[k, flat]);
        let t = transpose(&mut s, t, &[0, 2, 1]);
        let t = s.push("Reshape", &[t, whole]);
        let p = s.push("MatMul", &[q, t]);
        let p = s.push("Softmax", &[p]);
        let y = s.push("MatMul", &[p, v]);
        assert_eq!(s.recompose(y), ["ScaledDotProductAttention"]);
        assert_eq!(s.inputs_of(0), ["q", "k", "v"]);
    }

    #[test]
    fn repeated_heads_are_grouped_where_there_is_no_mask() {
        for masked in [false, true] {
            let mut s = Sketch::default();
            let q = s.input("q", &[2, 4, 10, 8]);
            let [k, v] = ["k", "v"].map(|name| {
                let t = s.input(name, &[2, 2, 10, 8]);
                let (axis, wide, merged) = (s.ints(&[2]), s.ints(&[2, 2, 2, 10, 8]), s.ints(&[2, 4, 10, 8]));
                let t = s.push("Unsqueeze", &[t, axis]);
                let t = s.push("Expand", &[t, wide]);
                s.push("Reshape", &[t, merged])
            });
            let turned = transpose(&mut s, k, &[0, 1, 3, 2]);
            let mut p = scores(&mut s, q, turned, true);
            if masked {
                let mask = s.input("mask", &[2, 1, 10, 10]);
                p = s.push("Add", &[p, mask]);
            }
            let p = s.push("Softmax", &[p]);
            let y = s.push("MatMul", &[p, v]);
            let expected = if masked { 7 } else { 1 };
            assert_eq!(s.recompose(y).len(), expected);
        }
    }
}
