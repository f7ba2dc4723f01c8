//! Expand. ONNX 8, 13.
//!
//! Autograd keeps nothing: `aten::expand` is a view with stride zero; its gradient is summed (derivatives.yaml: `sum_to`).

use super::{fold, rebatch};
use crate::kernels::TfLowering;
use crate::{
    Call, Dim, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Shape, View,
};
use std::sync::Arc;

/// Repeats axes of one element up to the shape in input 1, which is broadcast with the input's own.
#[derive(Clone, Copy, Debug)]
pub struct Expand;

/// How Expand is found.
pub const SPECS: &[OpSpec] =
    &[OpSpec { domain: "", name: "Expand", since: &[8, 13], build: |_, _| Ok(Arc::new(Expand)) }];

impl Expand {
    /// The target as numbers. While a fixed batch is being replaced, a baked target repeats no axis that it left whole
    /// in the file as exported, and its leading dim follows the batch where it was that.
    fn target(cx: &Infer<'_>) -> Option<Vec<Num>> {
        let mut target = cx.value(1)?.data.clone();
        if cx.value(1) != cx.value_before(1) {
            return Some(target);
        }
        if let Some(new) = target.first().and_then(|n| rebatch::leading_size(cx, &n.as_dim()?, target.len()))
        {
            target[0] = new.into();
        }
        if let (Some((old_in, old_out)), Some(new_in)) = (cx.before(0, 0), cx.shape(0))
            && old_in.rank() == new_in.rank()
        {
            let of_input = old_in.dims().iter().zip(new_in.dims()).rev();
            for ((n, (old, new)), out) in
                target.iter_mut().rev().zip(of_input).zip(old_out.dims().iter().rev())
            {
                if old != new && old == out {
                    *n = Num::Int(1);
                }
            }
        }
        Some(target)
    }
}

impl Op for Expand {
    fn name(&self) -> &str {
        "Expand"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let Some(x) = cx.shape(0) else {
            cx.set(0, cx.dtype(0), None);
            return Ok(());
        };
        let target = Expand::target(cx).or_else(|| {
            let rank = cx.shape(1).filter(|s| s.rank() == 1)?[0].known().filter(|r| *r <= 64)?;
            Some(vec![Num::Unknown; usize::try_from(rank).ok()?])
        });
        let Some(target) = target else {
            cx.set(0, cx.dtype(0), None);
            return Ok(());
        };
        if let Some(n) = target.iter().filter_map(Num::as_i64).find(|n| *n < 0) {
            return Err(OpError::input(1, "sizes that are not negative", n));
        }
        let dims = target.iter().enumerate().map(|(k, n)| {
            let own = (k + x.rank()).checked_sub(target.len()).and_then(|k| x[k].known());
            match (n.as_dim(), own) {
                (Some(dim), _) => dim,
                // Whatever the target says, an axis of several elements stays as it is.
                (None, Some(own)) if own > 1 => Dim::Known(own),
                (None, _) => cx.fresh_dim(&format!("dim{k}"), None),
            }
        });
        let target: Shape = dims.collect();
        let shape = rebatch::broadcast(cx, x, &target).ok_or_else(|| {
            OpError::mismatch("a shape that broadcasts with the target", format!("{x} and {target}"))
        })?;
        let folded = cx.value(0).zip(shape.known()).and_then(|(v, shape)| fold::expanded(v, &shape));
        cx.set(0, cx.dtype(0), Some(shape));
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, shape) = (l.raw(0), l.out_shape(0));
        let y = l.broadcast_to(x, shape);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call = Call::new("expand").input(Operand::Input(0), Grad::Unview);
        l.finish(call.output(l.out_shape(0), OutDtype::Like(0), Place::View(0, View::Expand)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{float, folded, int, ints, rebatched, shape, symbolic};
    use crate::Attributes;

    #[test]
    fn both_shapes_broadcast() {
        let expand = |x, t: &[i64]| shape("Expand", 13, Attributes::default(), &[x, ints(t)]);
        assert_eq!(expand(float(&[3, 1]), &[2, 1, 6]).unwrap(), "2x3x6");
        assert_eq!(expand(float(&[3, 4]), &[1]).unwrap(), "3x4");
        assert_eq!(expand(symbolic(&["batch", "1"]), &[1, 5]).unwrap(), "batchx5");
        assert!(expand(float(&[3]), &[4]).is_err());
        assert!(expand(float(&[3]), &[-1]).is_err());
        assert_eq!(folded("Expand", Attributes::default(), &[int(7), ints(&[3])]).unwrap(), [7, 7, 7]);
    }

    #[test]
    fn a_baked_batch_is_replaced() {
        let expand = |x, t: &[i64]| rebatched("Expand", Attributes::default(), &[x, ints(t)], 8).unwrap();
        assert_eq!(expand(float(&[1, 12, 1, 64]), &[1, 12, 4, 64]), "8x12x4x64");
        assert_eq!(expand(float(&[2, 12, 1, 64]), &[2, 12, 4, 64]), "8x12x4x64");
    }
}
