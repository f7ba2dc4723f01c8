//! HardSigmoid. ONNX 1, 6, 22; Keras `activation="hard_sigmoid"`.
//!
//! PyTorch's kernel is the case of `alpha` 1/6 and `beta` 1/2 and keeps its **input** (derivatives.yaml:
//! `hardsigmoid_backward(grad, self)`; in place a clone of it). Other slopes are written `torch.clamp(alpha * x + beta, 0, 1)`,
//! whose clamp keeps its own input.

use super::clip;
use crate::kernels::TfLowering;
use crate::{Call, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved};
use std::sync::Arc;

/// `max(0, min(1, alpha * x + beta))`.
#[derive(Clone, Copy, Debug)]
pub struct HardSigmoid {
    /// The slope.
    pub alpha: f64,
    /// The value at zero.
    pub beta: f64,
}

/// How HardSigmoid is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "HardSigmoid",
    since: &[1, 6, 22],
    build: |a, _| {
        let (alpha, beta) = (a.float("alpha")?.unwrap_or(0.2), a.float("beta")?.unwrap_or(0.5));
        Ok(Arc::new(HardSigmoid { alpha, beta }))
    },
}];

impl HardSigmoid {
    fn is_torch(self) -> bool {
        (self.alpha - 1.0 / 6.0).abs() < 1e-4 && (self.beta - 0.5).abs() < 1e-4
    }
}

impl Op for HardSigmoid {
    fn name(&self) -> &str {
        "HardSigmoid"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.set(0, cx.dtype(0), cx.shape(0).cloned());
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.input(0);
        let y = l.activation("hard_sigmoid", x);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let shape = l.out_shape(0);
        let pointwise = |name| Call::new(name).output(shape, OutDtype::Promoted, Place::Pointwise);
        if self.is_torch() {
            let call =
                pointwise("hardsigmoid").input(Operand::Input(0), Grad::Pointwise).saves([Saved::Input(0)]);
            return l.finish(call);
        }
        let scaled = l.call(pointwise("mul").input(Operand::Input(0), Grad::Pointwise));
        let moved = l.call(pointwise("add").input(scaled, Grad::Pass));
        l.finish(clip::clamp(shape, moved, true, true));
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{calls, float};
    use crate::{Attribute, Attributes};

    #[test]
    fn the_kernel_is_that_of_one_sixth() {
        let names = |a: Attributes| {
            calls("HardSigmoid", 14, a, &[float(&[4])], 1).iter().map(|c| c.function).collect::<Vec<_>>()
        };
        let sixth = Attributes::from([("alpha", Attribute::Float(f64::from(1.0_f32 / 6.0)))]);
        assert_eq!(names(sixth), ["hardsigmoid"]);
        assert_eq!(names(Attributes::default()), ["mul", "add", "clamp"]);
    }
}
