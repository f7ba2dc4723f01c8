//! Softsign. ONNX 1, 22; Keras `activation="softsign"`.
//!
//! `F.softsign` is `input / (1 + input.abs())` (torch/nn/functional.py, 2.15): three calls, of which `abs` keeps the input
//! and `div` its dividend and its divisor.

use crate::kernels::TfLowering;
use crate::{Call, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved};
use std::sync::Arc;

/// `x / (1 + |x|)`.
#[derive(Clone, Copy, Debug)]
pub struct Softsign;

/// How Softsign is found.
pub const SPECS: &[OpSpec] =
    &[OpSpec { domain: "", name: "Softsign", since: &[1, 22], build: |_, _| Ok(Arc::new(Softsign)) }];

impl Op for Softsign {
    fn name(&self) -> &str {
        "Softsign"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.set(0, cx.dtype(0), cx.shape(0).cloned());
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.input(0);
        let y = l.unary("Softsign", x);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let shape = l.out_shape(0);
        let pointwise = |name| Call::new(name).output(shape, OutDtype::Promoted, Place::Pointwise);
        let abs = l.call(
            pointwise("abs")
                .input(Operand::Input(0), Grad::Pointwise)
                .saves([Saved::Input(0)])
                .backward_scratch(shape, OutDtype::Promoted),
        );
        let plus_one = l.call(pointwise("add").input(abs, Grad::Pass));
        // div_tensor_other_backward: -grad * ((self / other) / other)
        l.finish(
            pointwise("div")
                .input(Operand::Input(0), Grad::Pointwise)
                .input(plus_one, Grad::Pointwise)
                .saves([Saved::Input(0), Saved::Input(1)])
                .backward_scratch(shape, OutDtype::Promoted)
                .backward_scratch(shape, OutDtype::Promoted)
                .backward_scratch(shape, OutDtype::Promoted),
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::Attributes;
    use crate::ops::testing::{calls, float};

    #[test]
    fn the_divisor_is_kept_too() {
        let calls = calls("Softsign", 22, Attributes::default(), &[float(&[4])], 1);
        assert_eq!(calls.iter().map(|c| c.function).collect::<Vec<_>>(), ["abs", "add", "div"]);
        assert_eq!(calls[2].saved.len(), 2);
    }
}
