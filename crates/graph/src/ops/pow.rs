//! Pow. ONNX 1, 7, 12, 13, 15; Keras `keras.ops.power`, `square`.
//!
//! A power with a number for exponent keeps its input (derivatives.yaml, `pow.Tensor_Scalar`; backward makes `self.pow(n - 1)` and
//! its multiple); one with a number for base keeps the exponent and the result; one of two tensors keeps both and the result.
//! On autocast's fp32 list.

use super::{fold, legacy};
use crate::kernels::TfLowering;
use crate::{
    Autocast, Call, DType, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved,
};
use std::sync::Arc;

/// `base ^ exponent`, in the base's dtype.
#[derive(Clone, Copy, Debug)]
pub struct Pow;

/// How Pow is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Pow",
    since: &[1, 7, 12, 13, 15],
    build: |a, version| legacy::wrap(Arc::new(Pow), None, a, version),
}];

fn power(base: &Num, exponent: &Num, dtype: DType) -> Num {
    let folded = match (base, exponent) {
        (_, Num::Int(1)) => Some(base.clone()),
        (Num::Dim(_), n) if n.as_i64() == Some(1) => Some(base.clone()),
        (Num::Dim(d), n) if n.as_i64() == Some(2) => d.mul(d).map(Num::from),
        (Num::Int(b), Num::Int(e)) if dtype.is_integer() => {
            u32::try_from(*e).ok().and_then(|e| b.checked_pow(e)).map(Num::Int)
        }
        _ => base.as_f64().zip(exponent.as_f64()).map(|(b, e)| b.powf(e)).and_then(|x| {
            // An integer base with a float exponent: the result is truncated to an integer.
            let whole = dtype.is_integer() && x.abs() < 9.0e15;
            if whole {
                Some(Num::Int(x.trunc() as i64))
            } else {
                (!dtype.is_integer()).then_some(Num::Float(x))
            }
        }),
    };
    folded.unwrap_or(Num::Unknown)
}

/// Whether input `i` of the node is a number to PyTorch: one element that nothing trains.
fn is_number(l: &Lowering<'_>, i: usize) -> bool {
    l.state(i).is_some_and(|s| !s.requires_grad && s.is_initializer && s.shape.iter().all(|d| *d == 1))
        || l.value(i).is_some_and(|v| v.single().is_some())
}

impl Op for Pow {
    fn name(&self) -> &str {
        "Pow"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        super::infer_broadcast(cx, None)?;
        let dtype = cx.dtype(0);
        if let (Some(a), Some(b)) = (cx.value(0), cx.value(1))
            && let Some(value) = fold::binary(a, b, dtype, |a, b| power(a, b, dtype))
        {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.input(0);
        let square = l.value(1).and_then(|v| v.single()?.as_f64()) == Some(2.0);
        let y = match (l.is_constant(0), l.is_constant(1)) {
            // Grappler makes a square of it (ConvertPowStage).
            (false, true) if square => l.unary("Square", x),
            (false, true) => l.unary("Pow", x),
            (true, false) => {
                let exponent = l.input(1);
                l.unary("Exp", exponent)
            }
            _ => {
                let exponent = l.input(1);
                l.binary("Pow", x, exponent)
            }
        };
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let shape = l.out_shape(0);
        let scratch = |call: Call, n: usize| {
            (0..n).fold(call, |call, _| call.backward_scratch(shape, OutDtype::Promoted))
        };
        let pow =
            Call::new("pow").autocast(Autocast::Fp32).output(shape, OutDtype::Promoted, Place::Pointwise);
        if is_number(l, 1) {
            let pow = pow.input(Operand::Input(0), Grad::Pointwise).saves([Saved::Input(0)]);
            // grad * (exponent * self.pow(exponent - 1))
            return l.finish(scratch(pow, 2));
        }
        if is_number(l, 0) {
            let pow =
                pow.input(Operand::Input(1), Grad::Pointwise).saves([Saved::Input(0), Saved::Output(0)]);
            // grad * (result * log(self))
            return l.finish(scratch(pow, 1));
        }
        let pow = pow
            .input(Operand::Input(0), Grad::Pointwise)
            .input(Operand::Input(1), Grad::Pointwise)
            .saves([Saved::Input(0), Saved::Input(1), Saved::Output(0)])
            .backward_scratch(shape, OutDtype::Is(DType::Bool));
        // pow_backward_self: where(exponent == 0, 0, grad * (exponent * self.pow(exponent - 1)))
        l.finish(scratch(pow, 4));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{In, calls, float, folded, int, ints};
    use crate::{Attributes, Value};

    #[test]
    fn integers_and_sizes_fold() {
        let none = Attributes::default;
        assert_eq!(folded("Pow", none(), &[ints(&[2, -3]), int(3)]), Some(vec![8, -27]));
        assert_eq!(folded("Pow", none(), &[ints(&[10]), int(40)]), None);
        let half = In::Value(Value::scalar(DType::Float32, 0.5));
        assert_eq!(folded("Pow", none(), &[ints(&[49, 50]), half]), Some(vec![7, 7]));
        let batch = Num::Dim(crate::Dim::symbol("batch"));
        assert_eq!(power(&batch, &Num::Int(2), DType::Int64).as_dim().unwrap().to_string(), "batch*batch");
    }

    #[test]
    fn a_number_for_exponent_is_not_an_input() {
        let two = In::Value(Value::scalar(DType::Float32, 2.0));
        let square = calls("Pow", 15, Attributes::default(), &[float(&[2, 3]), two], 1).remove(0);
        assert_eq!((square.inputs.len(), &square.saved[..]), (1, &[Saved::Input(0)][..]));
        let general = calls("Pow", 15, Attributes::default(), &[float(&[2, 3]), float(&[3])], 1).remove(0);
        assert_eq!(general.saved.len(), 3);
    }
}
