//! Swish. ONNX 24; Keras `activation="silu"`, `"swish"`.
//!
//! With `alpha` 1 it is `F.silu`, one kernel that keeps its **input** (derivatives.yaml: `silu_backward(grad, self)`); in place
//! it keeps a clone of the input. Any other `alpha` is written `x * torch.sigmoid(alpha * x)`: `sigmoid` keeps its result and
//! `mul` both factors.

use crate::kernels::TfLowering;
use crate::{Call, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved};
use std::sync::Arc;

/// `x * sigmoid(alpha * x)`.
#[derive(Clone, Copy, Debug)]
pub struct Swish {
    /// Inside of the sigmoid.
    pub alpha: f64,
}

/// How Swish is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Swish",
    since: &[24],
    build: |a, _| Ok(Arc::new(Swish { alpha: a.float("alpha")?.unwrap_or(1.0) })),
}];

impl Op for Swish {
    fn name(&self) -> &str {
        "Swish"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.set(0, cx.dtype(0), cx.shape(0).cloned());
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.input(0);
        let y = l.silu(x);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let shape = l.out_shape(0);
        let pointwise = |name| Call::new(name).output(shape, OutDtype::Promoted, Place::Pointwise);
        if self.alpha == 1.0 {
            let silu = pointwise("silu").input(Operand::Input(0), Grad::Pointwise).saves([Saved::Input(0)]);
            return l.finish(silu);
        }
        let scaled = l.call(pointwise("mul").input(Operand::Input(0), Grad::Pointwise));
        let gate = l.call(pointwise("sigmoid").input(scaled, Grad::Pointwise).saves([Saved::Output(0)]));
        l.finish(
            pointwise("mul")
                .input(Operand::Input(0), Grad::Pointwise)
                .input(gate, Grad::Pointwise)
                .saves([Saved::Input(0), Saved::Input(1)]),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{calls, float};
    use crate::{Attribute, Attributes};

    #[test]
    fn only_the_plain_one_is_a_single_kernel() {
        let lower = |alpha| {
            calls("Swish", 24, Attributes::from([("alpha", Attribute::Float(alpha))]), &[float(&[4])], 1)
        };
        assert_eq!(lower(1.0)[0].saved[..], [Saved::Input(0)]);
        let gated = lower(1.702);
        assert_eq!(gated.iter().map(|c| c.function).collect::<Vec<_>>(), ["mul", "sigmoid", "mul"]);
    }
}
