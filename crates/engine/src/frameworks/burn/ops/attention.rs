//! Attention, as `attention_fallback` of burn-backend composes it: what autodiff runs, since no fused kernel of Burn is
//! differentiated.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Binary, Compare, Kind, Prim, Slot, Unary};
use memfit_graph::ops::scaled_dot_product::ScaledDotProductAttention;

pub(super) const FAMILIES: &[Family] = &[Family { names: &["ScaledDotProductAttention"], rule: attention }];

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

fn attention(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<ScaledDotProductAttention>().copied().unwrap_or_default();
    let (q, k, v) = (l.input(0)?, l.input(1)?, l.input(2)?);
    let mask = l.optional(3)?;
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
    let mut scores = l.scalar(Binary::Mul, scores, (shape[rank - 1] as f64).sqrt().recip());
    let full = l.shape(scores);
    if let Some(mask) = mask.filter(|mask| l.kind(*mask) == Kind::Bool) {
        // True keeps in PyTorch and hides in Burn.
        let hidden = l.like(Prim::Not, &[mask]);
        let hidden = l.expand(hidden, full.clone());
        scores = l.like(Prim::MaskFill(f64::from(f32::NEG_INFINITY)), &[scores, hidden]);
    }
    if op.is_causal {
        let hidden = super::mask::causal(l, &full)?;
        scores = l.like(Prim::MaskFill(f64::from(f32::NEG_INFINITY)), &[scores, hidden]);
    }
    if let Some(bias) = mask.filter(|mask| l.kind(*mask) == Kind::Float) {
        scores = l.binary(Binary::Add, scores, bias)?;
    }
    let last = rank - 1;
    let max = l.reduce(Prim::MaxDim(last), scores, last);
    let low = l.compare_scalar(Compare::Lower, max, f64::from(f32::MIN));
    let max = l.like(Prim::MaskFill(f64::from(f32::MIN)), &[max, low]);
    let shifted = l.binary(Binary::Sub, scores, max)?;
    let exp = l.unary(Unary::Exp, shifted);
    let sum = l.reduce(Prim::SumDim(last), exp, last);
    let low = l.compare_scalar(Compare::Lower, sum, f64::from(f32::MIN_POSITIVE));
    let sum = l.like(Prim::MaskFill(f64::from(f32::MIN_POSITIVE)), &[sum, low]);
    let mut weights = l.binary(Binary::Div, exp, sum)?;
    if op.dropout {
        weights = super::dropout::drop(l, weights, super::dropout::RATIO)?;
    }
    let y = l.matmul(weights, v)?;
    l.set(0, y);
    Ok(())
}
