//! Hardmax. ONNX 1, 11, 13.
//!
//! One at the first maximum along the axis, zero elsewhere. No framework has it; as in PyTorch it is `zeros_like(x).scatter_(dim,
//! x.argmax(dim, keepdim=True), 1)`, whose result has no gradient.

use super::softmax::infer_along;
use crate::{Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, shape};
use std::sync::Arc;

/// A one-hot of the maximum along an axis.
#[derive(Clone, Copy, Debug)]
pub struct Hardmax {
    /// Counted from the back when negative.
    pub axis: i64,
    /// Whether all axes from `axis` on are taken together (before opset 13).
    pub flattens: bool,
}

/// How Hardmax is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Hardmax",
    since: &[1, 11, 13],
    build: |a, version| {
        let flattens = version < 13;
        let axis = a.int("axis")?.unwrap_or(if flattens { 1 } else { -1 });
        Ok(Arc::new(Hardmax { axis, flattens }))
    },
}];

impl Op for Hardmax {
    fn name(&self) -> &str {
        "Hardmax"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        infer_along(cx, self.axis, self.flattens)
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let shape = l.out_shape(0);
        let mut reduced = shape.to_vec();
        if let Some(axis) = shape::normalize_axis(self.axis, shape.len()) {
            reduced[axis] = 1;
        }
        let indices = Call::new("argmax").input(Operand::Input(0), Grad::None);
        let indices = l.call(indices.output(&reduced, OutDtype::Is(DType::Int64), Place::New));
        let scatter = Call::new("scatter").input(Operand::Input(0), Grad::None).input(indices, Grad::None);
        l.finish(scatter.output(shape, OutDtype::Like(0), Place::New));
    }
}

#[cfg(test)]
mod tests {
    use crate::Attributes;
    use crate::ops::testing::{calls, float};

    #[test]
    fn indices_are_eight_bytes_each() {
        let calls = calls("Hardmax", 13, Attributes::default(), &[float(&[2, 5])], 1);
        assert_eq!((&calls[0].outputs[0].shape[..], calls[1].saved.len()), (&[2, 1][..], 0));
    }
}
