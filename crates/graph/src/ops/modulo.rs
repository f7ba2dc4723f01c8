//! Mod. ONNX 10, 13, 28; Keras `keras.ops.mod`.
//!
//! Without `fmod` the result has the divisor's sign (`remainder`), with it the dividend's. The dividend's gradient is the incoming
//! one; the divisor's, `-grad * self.div(other, rounding_mode)`, keeps both (derivatives.yaml, `fmod.Tensor`, `remainder.Tensor`).

use super::fold;
use crate::{Call, DType, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved};
use std::sync::Arc;

/// The remainder of a division.
#[derive(Clone, Copy, Debug)]
pub struct Mod {
    /// Whether the result has the dividend's sign, as C's `fmod`.
    pub fmod: bool,
}

/// How Mod is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Mod",
    since: &[10, 13, 28],
    build: |a, _| Ok(Arc::new(Mod { fmod: a.flag("fmod")? })),
}];

impl Mod {
    fn fold(self, a: &Num, b: &Num, dtype: DType) -> Num {
        let folded = match (a, b) {
            // `batch * 12 % 4` is zero whatever the batch is.
            (Num::Dim(a), b) => b.as_dim().and_then(|b| a.div_exact(&b)).map(|_| Num::Int(0)),
            (Num::Int(a), Num::Int(b)) if dtype.is_integer() => {
                let remainder = a.checked_rem(*b);
                let floored = |r: i64| if r != 0 && (r < 0) != (*b < 0) { r + b } else { r };
                remainder.map(|r| Num::Int(if self.fmod { r } else { floored(r) }))
            }
            _ => a.as_f64().zip(b.as_f64()).map(|(a, b)| {
                let r = a % b;
                let floored = r != 0.0 && (r < 0.0) != (b < 0.0) && !self.fmod;
                Num::Float(if floored { r + b } else { r })
            }),
        };
        folded.unwrap_or(Num::Unknown)
    }
}

impl Op for Mod {
    fn name(&self) -> &str {
        "Mod"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        super::infer_broadcast(cx, None)?;
        let dtype = cx.dtype(0);
        if let (Some(a), Some(b)) = (cx.value(0), cx.value(1))
            && let Some(value) = fold::binary(a, b, dtype, |a, b| self.fold(a, b, dtype))
        {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let shape = l.out_shape(0);
        let mut call = Call::new(if self.fmod { "fmod" } else { "remainder" })
            .input(Operand::Input(0), Grad::Pass)
            .input(Operand::Input(1), Grad::Pointwise)
            .output(shape, OutDtype::Promoted, Place::Pointwise)
            .saves([Saved::InputFor { input: 0, needed_by: 1 }, Saved::InputFor { input: 1, needed_by: 1 }]);
        if l.state(1).is_some_and(|s| s.requires_grad) {
            call =
                call.backward_scratch(shape, OutDtype::Promoted).backward_scratch(shape, OutDtype::Promoted);
        }
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{folded, ints};
    use crate::{Attribute, Attributes, Dim};

    #[test]
    fn the_sign_is_the_divisors_or_the_dividends() {
        let inputs = [ints(&[-4, 7, 5, 4]), ints(&[2, -3, 8, 3])];
        let fmod = Attributes::from([("fmod", Attribute::Int(1))]);
        assert_eq!(folded("Mod", Attributes::default(), &inputs), Some(vec![0, -2, 5, 1]));
        assert_eq!(folded("Mod", fmod, &inputs), Some(vec![0, 1, 5, 1]));
        assert_eq!(folded("Mod", Attributes::default(), &[ints(&[1]), ints(&[0])]), None);
        assert_eq!(folded("Mod", Attributes::default(), &[ints(&[i64::MIN]), ints(&[-1])]), None);
    }

    #[test]
    fn a_multiple_leaves_nothing() {
        let size = Num::Dim(Dim::symbol("batch").mul(&Dim::Known(12)).unwrap());
        let op = Mod { fmod: false };
        assert_eq!(op.fold(&size, &Num::Int(4), DType::Int64), Num::Int(0));
        assert_eq!(op.fold(&size, &Num::Int(5), DType::Int64), Num::Unknown);
    }
}
