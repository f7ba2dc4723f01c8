//! Softmax, LogSoftmax. ONNX 1, 11, 13; Keras `Softmax`, `activation="log_softmax"`.
//!
//! Both keep their **output** (derivatives.yaml: `_softmax_backward_data(grad, result, dim, self.scalar_type())`). The CUDA kernel of
//! softmax's backward, not of log_softmax's, begins with `grad * output` (cuda/SoftMax.cu). Under autocast
//! the result is float32: bfloat16 is cast up before, float16 is read by the kernel as it is (aten/src/ATen/native/SoftMax.cpp,
//! `half_to_float`). Before opset 13 the operator flattens its input to a matrix at `axis` (default 1); shapes are the same.

use super::calls::Traced;
use crate::kernels::TfLowering;
use crate::{
    Autocast, Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved, shape,
};
use std::sync::Arc;

/// Softmax along an axis.
#[derive(Clone, Copy, Debug)]
pub struct Softmax {
    /// Whether it is the logarithm.
    pub log: bool,
    /// Counted from the back when negative.
    pub axis: i64,
    /// Whether all axes from `axis` on are normalized together (before opset 13).
    pub flattens: bool,
    /// What a float32 export hides of `softmax(x, dtype=torch.float32).to(x.dtype)`: the result is float32 whatever the
    /// input is, and is then cast back to the model's dtype.
    pub in_float32: bool,
}

/// How both are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "LogSoftmax",
        since: &[1, 11, 13],
        build: |a, version| Ok(Arc::new(Softmax { log: true, ..Softmax::read(a, version)? })),
    },
    OpSpec {
        domain: "",
        name: "Softmax",
        since: &[1, 11, 13],
        build: |a, version| Ok(Arc::new(Softmax::read(a, version)?)),
    },
];

impl Softmax {
    fn read(a: &crate::Attributes, version: i64) -> Result<Softmax, OpError> {
        let flattens = version < 13;
        let axis = a.int("axis")?.unwrap_or(if flattens { 1 } else { -1 });
        Ok(Softmax { log: false, axis, flattens, in_float32: false })
    }
}

/// The shape and dtype of input 0, whose rank must have `axis` (where it flattens, `axis` may be the rank itself).
pub(super) fn infer_along(cx: &mut Infer<'_>, axis: i64, flattens: bool) -> Result<(), OpError> {
    cx.require(0)?;
    if let Some(shape) = cx.shape(0) {
        let rank = shape.rank();
        let allowed = shape::normalize_axis(axis, rank).is_some()
            || flattens && (usize::try_from(axis).is_ok_and(|a| a <= rank.max(1)));
        if !allowed {
            return Err(OpError::input(0, format!("a rank that has axis {axis}"), format!("shape {shape}")));
        }
    }
    cx.set(0, cx.dtype(0), cx.shape(0).cloned());
    Ok(())
}

impl Op for Softmax {
    fn name(&self) -> &str {
        if self.log { "LogSoftmax" } else { "Softmax" }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        infer_along(cx, self.axis, self.flattens)
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.input(0);
        let y = if self.log { l.log_softmax(x) } else { l.softmax(x) };
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let half = l.dtype(0);
        let x = Traced::input(l, 0);
        // The kernel itself reads float16 and writes float32 (SoftMax.cpp, `half_to_float`).
        let widens = l.autocast.is_some() || self.in_float32;
        let reads_half = widens && half == DType::Float16;
        let is_copied = self.in_float32 && half == DType::Bfloat16 && l.autocast.is_none();
        let x = if is_copied { x.cast(l, DType::Float32) } else { x };
        let (autocast, dtype) = if reads_half {
            (Autocast::Keep, OutDtype::Is(DType::Float32))
        } else {
            (Autocast::Fp32, OutDtype::Promoted)
        };
        let mut call = Call::new(if self.log { "_log_softmax" } else { "_softmax" })
            .autocast(autocast)
            .input(x.operand, Grad::New)
            .output(&x.shape, dtype, Place::New)
            .saves([Saved::Output(0)]);
        if !self.log {
            call = call.backward_workspace(&x.shape, dtype);
        }
        let shape = x.shape.clone();
        let mut y = Traced::of(l, call, &shape, &[&x]);
        if self.in_float32 && half.is_half() {
            y = y.cast(l, half);
        }
        y.bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{float, shape};
    use crate::{Attribute, Attributes, TensorState};

    #[test]
    fn before_opset_13_the_axis_may_be_the_rank() {
        let axis = |n| Attributes::from([("axis", Attribute::Int(n))]);
        assert_eq!(shape("Softmax", 11, axis(3), &[float(&[2, 3, 4])]).unwrap(), "2x3x4");
        assert!(shape("Softmax", 13, axis(3), &[float(&[2, 3, 4])]).is_err());
        assert!(shape("LogSoftmax", 13, axis(-4), &[float(&[2, 3, 4])]).is_err());
    }

    #[test]
    fn float16_is_read_without_a_cast() {
        let call = |dtype| {
            let x = TensorState { shape: &[8, 8], dtype, requires_grad: true, is_initializer: false };
            let inputs = [Some(x)];
            let mut l = Lowering::new(&inputs, &[], Some(dtype), true);
            Softmax { log: false, axis: -1, flattens: false, in_float32: false }.pytorch(&mut l);
            l.into_parts().0.remove(0)
        };
        assert_eq!(call(DType::Float16).autocast, Autocast::Keep);
        assert_eq!(call(DType::Float16).outputs[0].dtype, OutDtype::Is(DType::Float32));
        assert_eq!(call(DType::Bfloat16).autocast, Autocast::Fp32);
    }
}
