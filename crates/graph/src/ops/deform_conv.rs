//! DeformConv. ONNX 19, 22; `torchvision.ops.deform_conv2d`.
//!
//! torchvision keeps input, weight, offset, mask and bias (csrc/ops/autograd/deform_conv2d_kernel.cpp) and unrolls the
//! input into columns of up to 32 images at a time (csrc/ops/cuda/deform_conv2d_kernel.cu). Under autocast it does so in float32
//! and gives the result the input's dtype back (csrc/ops/autocast/deform_conv2d_kernel.cpp: `.to(input.scalar_type())`).

use super::calls::{Traced, positive};
use super::conv::convolved;
use super::spatial::Window;
use crate::{
    Autocast, Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved, elements,
};
use std::sync::Arc;

/// A convolution that reads at learned offsets.
#[derive(Clone, Debug)]
pub struct DeformConv {
    /// Kernel, strides, pads, dilations.
    pub window: Window,
    /// Channel groups.
    pub groups: u64,
}

/// How DeformConv is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "DeformConv",
    since: &[19, 22],
    build: |a, _| Ok(Arc::new(DeformConv { window: Window::read(a)?, groups: positive(a, "group", 1)? })),
}];

/// The images that are unrolled at a time: the greatest divisor of the batch up to 32.
fn parallel(batch: u64) -> u64 {
    (1..=32.min(batch)).rev().find(|k| batch.is_multiple_of(*k)).unwrap_or(1)
}

impl Op for DeformConv {
    fn name(&self) -> &str {
        "DeformConv"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(2)?;
        let shape = convolved(cx, &self.window, self.groups, [0, 1], false)?;
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let mut call = Call::new("deform_conv2d");
        // Input, weight, offset, bias, mask.
        let inputs: Vec<Traced> = (0..5).filter_map(|i| Traced::optional(l, i)).collect();
        for (at, input) in inputs.iter().enumerate() {
            let input = input.autocast(l, Autocast::Fp32);
            call = call.input(input.operand, Grad::New).saves([Saved::Input(at)]);
        }
        let (x, kernel, y) = (l.shape(0), l.shape(1), l.out_shape(0));
        let at = |s: &[u64], k: usize| s.get(k).copied().unwrap_or(1);
        let rows = at(x, 1).saturating_mul(elements(kernel.get(2..).unwrap_or_default()));
        let columns = parallel(at(x, 0)).saturating_mul(elements(y.get(2..).unwrap_or_default()));
        let dtype = if l.autocast.is_some() { DType::Float32 } else { l.dtype(0) };
        let call = call
            .output(y, OutDtype::Like(0), Place::New)
            .scratch(&[rows, columns], dtype)
            .backward_workspace(&[rows, columns], OutDtype::Like(0));
        let y = Traced::of(l, call, y, &inputs.iter().collect::<Vec<_>>());
        y.back_to(l, l.dtype(0)).bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, float};
    use super::*;
    use crate::{Attributes, OutState, TensorState};

    #[test]
    fn autocast_gives_the_inputs_dtype_back() {
        let state =
            |shape, dtype| Some(TensorState { shape, dtype, requires_grad: true, is_initializer: false });
        let half = DType::Bfloat16;
        let inputs = [&[6, 4, 8, 8][..], &[5, 4, 3, 3], &[6, 18, 6, 6]].map(|shape| state(shape, half));
        let outputs = [Some(OutState { shape: &[6, 5, 6, 6], dtype: DType::Float32 })];
        for (autocast, expected) in [(Some(half), OutDtype::Is(half)), (None, OutDtype::Like(0))] {
            let mut l = Lowering::new(&inputs, &outputs, autocast, true);
            DeformConv { window: Window::default(), groups: 1 }.pytorch(&mut l);
            assert_eq!(l.into_parts().0.last().unwrap().outputs[0].dtype, expected);
        }
    }

    #[test]
    fn the_offsets_are_kept_and_columns_come_and_go() {
        let inputs = [float(&[6, 4, 8, 8]), float(&[5, 4, 3, 3]), float(&[6, 18, 6, 6])];
        assert_eq!(testing::shape("DeformConv", 19, Attributes::default(), &inputs).unwrap(), "6x5x6x6");
        let calls = testing::calls("DeformConv", 19, Attributes::default(), &inputs, 1);
        assert_eq!(calls[0].saved.len(), 3);
        assert_eq!(calls[0].scratch, [(vec![36, 216], DType::Float32)]);
        assert_eq!((parallel(64), parallel(33), parallel(0)), (32, 11, 1));
    }
}
