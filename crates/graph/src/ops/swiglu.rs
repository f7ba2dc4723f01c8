//! SwiGLU. ONNX 28.
//!
//! `F.silu(a) * b`: silu keeps its input, the product both factors (derivatives.yaml: `silu`, `mul`).

use super::calls::Traced;
use crate::kernels::TfLowering;
use crate::{Infer, Lowering, Op, OpError, OpSpec, Saved};
use std::sync::Arc;

/// `a * sigmoid(alpha * a) * b`.
#[derive(Clone, Copy, Debug)]
pub struct SwiGlu {
    /// Inside of the sigmoid.
    pub alpha: f64,
}

/// How SwiGLU is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "SwiGLU",
    since: &[28],
    build: |a, _| Ok(Arc::new(SwiGlu { alpha: a.float("alpha")?.unwrap_or(1.0) })),
}];

impl Op for SwiGlu {
    fn name(&self) -> &str {
        "SwiGLU"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        super::infer_broadcast(cx, None)
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (a, b) = (l.input(0), l.input(1));
        let gate = l.silu(a);
        let y = l.binary("Mul", gate, b);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (a, b) = (Traced::input(l, 0), Traced::input(l, 1));
        let gate = swish(l, &a, self.alpha == 1.0);
        gate.mul(l, &b, l.out_shape(0)).bind(l, 0);
    }
}

/// `F.silu`, or where there is a factor in the sigmoid, what it is composed of.
pub(super) fn swish(l: &mut Lowering<'_>, x: &Traced, plain: bool) -> Traced {
    if plain {
        return x.pointwise(l, "silu", Saved::Input(0));
    }
    let gate = x.scale(l, "mul").pointwise(l, "sigmoid", Saved::Output(0));
    x.mul(l, &gate, &x.shape)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, float};
    use crate::Attributes;

    #[test]
    fn the_gate_and_both_factors_are_kept() {
        let x = float(&[4, 8]);
        let calls = testing::calls("SwiGLU", 28, Attributes::default(), &[x.clone(), x], 1);
        let kept: Vec<_> = calls.iter().map(|c| (c.function, c.saved.len())).collect();
        assert_eq!(kept, [("silu", 1), ("mul", 2)]);
    }
}
