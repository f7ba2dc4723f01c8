//! Dropout, as burn-nn's `Dropout` runs it: the mask is a float tensor, and the product keeps both. And what else is drawn at random.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Binary, Kind, Prim, Slot};
use memfit_graph::ops::dropout::Dropout;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["Dropout"], rule: dropout },
    Family { names: &["RandomUniform", "RandomUniformLike"], rule: uniform },
];

/// Where the file does not say the ratio: it changes values only.
pub(super) const RATIO: f64 = 0.1;

pub(super) fn drop(l: &mut Lower<'_, '_>, x: Slot, ratio: f64) -> Result<Slot, Refusal> {
    if !l.model.training || ratio == 0.0 {
        return Ok(x);
    }
    let kept = 1.0 - ratio;
    let (kind, shape) = (l.kind(x), l.shape(x));
    let mask = l.call(Prim::Bernoulli(kept), &[], kind, shape);
    let y = l.binary(Binary::Mul, x, mask)?;
    Ok(l.scalar(Binary::Mul, y, kept.recip()))
}

/// What stochastic depth draws.
fn uniform(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let shape = l.output_shape(0)?;
    let y = l.call(Prim::Uniform, &[], Kind::FLOAT, shape);
    l.set(0, y);
    Ok(())
}

fn dropout(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    let op = l.node.op.downcast::<Dropout>().copied();
    let ratio = l.number(1).or(op.and_then(|op| op.ratio)).unwrap_or(0.5);
    let y = if op.is_some_and(|op| op.is_test) { x } else { drop(l, x, ratio)? };
    l.set(0, y);
    Ok(())
}
