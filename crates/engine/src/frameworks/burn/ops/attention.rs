//! Attention, as `attention_fallback` of burn-backend composes it: what autodiff runs, since no fused kernel of Burn is
//! differentiated.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Binary, Compare, Kind, Prim, Slot, Unary};
use memfit_graph::ops::attention::Attention;
use memfit_graph::ops::scaled_dot_product::ScaledDotProductAttention;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["ScaledDotProductAttention"], rule: attention },
    Family { names: &["Attention"], rule: onnx_attention },
];

/// Keys or values with each head as often as the queries ask for it, which Burn's attention leaves to its caller.
fn repeated(l: &mut Lower<'_, '_>, x: Slot, heads: usize) -> Slot {
    let shape = l.shape(x);
    let at = shape.len() - 3;
    if shape[at] == heads {
        return x;
    }
    let with = |own: &[usize]| [&shape[..at], own, &shape[at + 1..]].concat();
    let apart = l.reshape(x, with(&[shape[at], 1]));
    let wide = l.expand(apart, with(&[shape[at], heads / shape[at]]));
    l.reshape(wide, with(&[heads]))
}

/// What of attention a file decides.
struct How {
    scale: f64,
    cap: Option<f64>,
    /// Where later keys are hidden: how many keys the first query sees beside its own.
    causal: Option<i64>,
    dropout: bool,
}

fn attention(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<ScaledDotProductAttention>().copied().unwrap_or_default();
    let (q, k, v) = (l.input(0)?, l.input(1)?, l.input(2)?);
    let mask = l.optional(3)?;
    let (queries, keys) = (l.shape(q), l.shape(k));
    let length = |shape: &[usize]| shape.iter().nth_back(1).map_or(0, |n| *n as i64);
    let how = How {
        scale: scale(&queries),
        cap: None,
        causal: op.is_causal.then(|| length(&keys) - length(&queries)),
        dropout: op.dropout,
    };
    let y = attend(l, [q, k, v], mask, &how)?;
    l.set(0, y);
    Ok(())
}

/// ONNX's own: heads may lie beside each other in the last axis, and a cache may come before keys and values.
fn onnx_attention(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Attention>().copied().ok_or("an unknown form")?;
    if op.flex || op.window || l.id(6).is_some() || l.wants(3) {
        return Err("scores that are rewritten, read, or hidden by window or length".into());
    }
    let heads = |l: &mut Lower<'_, '_>, i: usize, heads: Option<u64>| {
        let x = l.input(i)?;
        let shape = l.shape(x);
        let &[batch, length, size] = &shape[..] else { return Ok(x) };
        let heads = heads
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| *n > 0)
            .ok_or("heads that are not counted")?;
        let apart = l.reshape(x, vec![batch, length, heads, size / heads]);
        Ok::<Slot, Refusal>(l.swap(apart, 1, 2))
    };
    let is_flat = l.input_shape(0)?.len() == 3;
    let q = heads(l, 0, op.heads)?;
    let kv_heads = op.kv_heads.or(op.heads);
    let (mut k, mut v) = (heads(l, 1, kv_heads)?, heads(l, 2, kv_heads)?);
    let mut before = 0;
    if let (Some(old_k), Some(old_v)) = (l.optional(4)?, l.optional(5)?) {
        before = l.shape(old_k).get(2).copied().ok_or("a cache of another rank")? as i64;
        (k, v) = (l.cat(&[old_k, k], 2), l.cat(&[old_v, v], 2));
    }
    let mask = l.optional(3)?;
    let [scale_by, cap] = op.factors;
    let how = How {
        scale: scale_by.unwrap_or_else(|| scale(&l.shape(q))),
        cap,
        causal: op.causal.then_some(before),
        dropout: op.dropout,
    };
    let mut y = attend(l, [q, k, v], mask, &how)?;
    if is_flat {
        y = l.swap(y, 1, 2);
        y = l.output_shape(0).map(|shape| l.reshape(y, shape))?;
    }
    l.set(0, y);
    l.set(1, k);
    l.set(2, v);
    Ok(())
}

/// One over the root of a head's size.
fn scale(queries: &[usize]) -> f64 {
    (queries.last().copied().unwrap_or(1) as f64).sqrt().recip()
}

fn attend(
    l: &mut Lower<'_, '_>,
    [q, k, v]: [Slot; 3],
    mask: Option<Slot>,
    how: &How,
) -> Result<Slot, Refusal> {
    let rank = l.rank(q);
    if rank < 3 || l.rank(k) != rank || l.rank(v) != rank {
        return Err("queries, keys and values of different ranks".into());
    }
    let shape = l.shape(q);
    let (heads, kv_heads) = (shape[rank - 3], l.shape(k)[rank - 3]);
    if kv_heads == 0 || heads % kv_heads != 0 {
        return Err(format!("{heads} query heads over {kv_heads} key heads"));
    }
    let (k, v) = (repeated(l, k, heads), repeated(l, v, heads));
    let transposed = l.swap(k, rank - 2, rank - 1);
    let scores = l.matmul(q, transposed)?;
    let mut scores = l.scalar(Binary::Mul, scores, how.scale);
    if let Some(cap) = how.cap {
        scores = l.scalar(Binary::Div, scores, cap);
        scores = l.unary(Unary::Tanh, scores);
        scores = l.scalar(Binary::Mul, scores, cap);
    }
    let full = l.shape(scores);
    if let Some(mask) = mask.filter(|mask| l.kind(*mask) == Kind::Bool) {
        // True keeps in PyTorch and hides in Burn.
        let hidden = l.like(Prim::Not, &[mask]);
        let hidden = l.expand(hidden, full.clone());
        scores = l.like(Prim::MaskFill(f64::from(f32::NEG_INFINITY)), &[scores, hidden]);
    }
    if let Some(before) = how.causal {
        let hidden = super::mask::causal(l, &full, before)?;
        scores = l.like(Prim::MaskFill(f64::from(f32::NEG_INFINITY)), &[scores, hidden]);
    }
    if let Some(bias) = mask.filter(|mask| l.kind(*mask).is_float()) {
        scores = l.binary(Binary::Add, scores, bias)?;
    }
    let scores = l.precise(scores);
    let [lowest, smallest] = l.float(scores).bounds();
    let last = rank - 1;
    let max = l.reduce(Prim::MaxDim(last), scores, last);
    let low = l.compare_scalar(Compare::Lower, max, lowest);
    let max = l.like(Prim::MaskFill(lowest), &[max, low]);
    let shifted = l.binary(Binary::Sub, scores, max)?;
    let exp = l.unary(Unary::Exp, shifted);
    let sum = l.reduce(Prim::SumDim(last), exp, last);
    let low = l.compare_scalar(Compare::Lower, sum, smallest);
    let sum = l.like(Prim::MaskFill(smallest), &[sum, low]);
    let mut weights = l.binary(Binary::Div, exp, sum)?;
    if how.dropout {
        weights = super::dropout::drop(l, weights, super::dropout::RATIO)?;
    }
    l.matmul(weights, v)
}
