//! `torch.nn.functional.scaled_dot_product_attention`.
//!
//! Both exporters decompose it with the square root of the scale on queries **and** on transposed keys, before the
//! product; attention that a model composes itself scales one of them or the scores, and the framework runs it as it
//! stands. Then come an added mask, Softmax, a guard against rows of NaN, Dropout without a training flag, and the
//! product with the values. Keys and values that the file repeats for grouped heads were grouped for the kernel where
//! it ran without a mask, since only then do models leave the repeating to it.

use super::Pass;
use super::mask::{self, Mask};
use super::rewriter::{Rewriter, build};
use memfit_graph::ops::scaled_dot_product::ScaledDotProductAttention;
use memfit_graph::ops::transpose::Transpose;
use memfit_graph::{Attribute, NodeId, Shape, TensorId, Type};
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

/// Where the keys come from.
enum Key {
    /// This tensor, before its last two axes were swapped.
    Stored(TensorId),
    /// The input of this Transpose in another order, which none in the file has.
    Permuted(NodeId, Vec<usize>),
}

fn run(rw: &mut Rewriter<'_>, softmax: NodeId) -> bool {
    let Some(found) = find(rw, softmax) else { return false };
    let mask = found.mask.map_or(Mask::None, |added| mask::resolve(rw, added));
    let mut key = match found.key {
        Key::Stored(key) => key,
        Key::Permuted(at, perm) => {
            let Some(key) = permuted(rw, at, &perm) else { return false };
            key
        }
    };
    let mut value = found.value;
    let tensor = match mask {
        Mask::Tensor(mask) => Some(mask),
        Mask::None | Mask::Causal => {
            if let (Some(k), Some(v)) = (grouped(rw, key), grouped(rw, value)) {
                (key, value) = (k, v);
            }
            None
        }
    };
    let op = ScaledDotProductAttention { is_causal: matches!(mask, Mask::Causal), dropout: found.dropout };
    let mut inputs = vec![Some(found.query), Some(key), Some(value)];
    inputs.extend(tensor.map(Some));
    rw.rewrite(found.end, Arc::new(op), inputs);
    true
}

fn find(rw: &Rewriter<'_>, softmax: NodeId) -> Option<Attention> {
    if !rw.is(softmax, "Softmax") {
        return None;
    }
    let (scores, mask) = scores(rw, rw.input(softmax, 0)?)?;
    let (q, k) =
        (rw.made_for_one(rw.input(scores, 0)?, "Mul")?, rw.made_for_one(rw.input(scores, 1)?, "Mul")?);
    let (by_q, query) = rw.operands(q, |t| is_factor(rw, t))?;
    let (by_k, turned) = rw.operands(k, |t| is_factor(rw, t))?;
    if !same_factor(rw, by_q, by_k) {
        return None;
    }
    let (end, dropout) = product_with_values(rw, rw.output(softmax)?)?;
    Some(Attention { query, key: key(rw, turned)?, value: rw.input(end, 1)?, mask, dropout, end })
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

/// The keys behind their transpose.
fn key(rw: &Rewriter<'_>, turned: TensorId) -> Option<Key> {
    if let Some(transpose) = rw.made_by(turned, "Transpose") {
        let source = rw.input(transpose, 0)?;
        let rank = rw.rank(source)?;
        let mut perm = rw.op::<Transpose>(transpose)?.permutation(rank).ok()?;
        perm.swap(rank.checked_sub(2)?, rank - 1);
        let same = perm.iter().enumerate().all(|(i, p)| i == *p);
        return Some(if same { Key::Stored(source) } else { Key::Permuted(transpose, perm) });
    }
    // Reshape to three axes, swap the last two, Reshape to all axes again.
    let whole = rw.made_by(turned, "Reshape")?;
    let transpose = rw.made_by(rw.input(whole, 0)?, "Transpose")?;
    let flat = rw.made_by(rw.input(transpose, 0)?, "Reshape")?;
    let source = rw.input(flat, 0)?;
    let perm = rw.op::<Transpose>(transpose)?.permutation(3).ok()?;
    (perm == [0, 2, 1] && rw.rank(source) == rw.rank(turned)).then_some(Key::Stored(source))
}

/// A new Transpose of `at`'s input.
fn permuted(rw: &mut Rewriter<'_>, at: NodeId, perm: &[usize]) -> Option<TensorId> {
    let source = rw.input(at, 0)?;
    let shape: Shape =
        perm.iter().map(|p| rw.shape(source)?.dims().get(*p).cloned()).collect::<Option<_>>()?;
    let ty = Type::tensor(rw.dtype(source), shape);
    let axes = perm.iter().map(|p| i64::try_from(*p).ok()).collect::<Option<_>>()?;
    let op = build("Transpose", [("perm", Attribute::Ints(axes))])?;
    Some(rw.insert_before(at, op, vec![Some(source)], ty))
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
        let y = s.push("MatMul", &[p, v]);
        let names = s.recompose(y);
        assert_eq!(names, ["Transpose", "Transpose", "Transpose", "ScaledDotProductAttention"]);
        let op: &super::ScaledDotProductAttention = s.graph.nodes[3].op.downcast().unwrap();
        assert!(!op.is_causal);
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
