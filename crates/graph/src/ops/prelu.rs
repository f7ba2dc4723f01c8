//! PRelu. ONNX 1, 6, 7, 9, 16; Keras `PReLU`.
//!
//! `_prelu_kernel` keeps the input and the slope, and its backward makes the slope's gradient at the input's size before summing it
//! (derivatives.yaml). On autocast's lower-precision list. The slope broadcasts one way: to the input.

use crate::kernels::TfLowering;
use crate::{Autocast, Call, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved};
use std::sync::Arc;

/// `x` where it is positive, `slope * x` elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct PRelu;

/// How PRelu is found.
pub const SPECS: &[OpSpec] =
    &[OpSpec { domain: "", name: "PRelu", since: &[1, 6, 7, 9, 16], build: |_, _| Ok(Arc::new(PRelu)) }];

impl Op for PRelu {
    fn name(&self) -> &str {
        "PRelu"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        cx.set(0, cx.dtype(0), cx.shape(0).cloned());
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        // relu(x) - alpha * relu(-x), as Keras composes it.
        let (x, alpha) = (l.input(0), l.input(1));
        let positive = l.unary("Relu", x);
        let negative = l.unary("Neg", x);
        let rest = l.unary("Relu", negative);
        let slope = l.unary("Neg", alpha);
        let scaled = l.binary("Mul", slope, rest);
        let y = l.binary("AddV2", positive, scaled);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call = Call::new("_prelu_kernel")
            .autocast(Autocast::Lower)
            .input(Operand::Input(0), Grad::Pointwise)
            .input(Operand::Input(1), Grad::Pointwise)
            .output(l.out_shape(0), OutDtype::Promoted, Place::Pointwise)
            .saves([Saved::Input(0), Saved::Input(1)]);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attributes;
    use crate::ops::testing::{calls, float};

    #[test]
    fn input_and_slope_are_kept() {
        let call =
            calls("PRelu", 16, Attributes::default(), &[float(&[2, 3, 4]), float(&[3, 1])], 1).remove(0);
        assert_eq!(call.saved[..], [Saved::Input(0), Saved::Input(1)]);
        assert_eq!(call.outputs[0].shape[..], [2, 3, 4]);
    }
}
