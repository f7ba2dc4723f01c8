//! TopK. Burn's own has no gradient (burn-autodiff 0.21, `float_topk`): places in order, of which the first pick the elements.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Kind, Prim};
use memfit_graph::ops::top_k::TopK;

pub(super) const FAMILIES: &[Family] = &[Family { names: &["TopK"], rule: largest }];

fn largest(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<TopK>().cloned().ok_or("an unknown form")?;
    let x = l.input(0)?;
    if !l.kind(x).is_float() {
        return Err("other than floats".into());
    }
    let axis = l.axis(op.axis, l.rank(x))?;
    let (shape, picked) = (l.shape(x), l.output_shape(0)?);
    let count = picked.get(axis).copied().ok_or("an output without that axis")?;
    let all = l.call(Prim::ArgSort { axis, descending: op.largest }, &[x], Kind::Int, shape);
    let at = l.narrow(all, axis, 0, count);
    if l.wants(0) {
        let y = l.call(Prim::Gather(axis), &[x, at], Kind::FLOAT, picked);
        l.set(0, y);
    }
    l.set(1, at);
    Ok(())
}
