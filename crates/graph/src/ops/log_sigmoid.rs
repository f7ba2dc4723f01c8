//! LogSigmoid. Made by recomposition only.
//!
//! `F.logsigmoid` is one kernel that keeps its **input** (derivatives.yaml: `log_sigmoid_backward(grad, self, buffer)`; the buffer
//! is empty on a GPU, aten/src/ATen/native/cuda/ActivationLogSigmoidKernel.cu) and that autocast leaves alone, where the logarithm of
//! a sigmoid would be float32.

use crate::kernels::TfLowering;
use crate::{Call, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved};

/// `log(sigmoid(x))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSigmoid;

/// No file holds it.
pub const SPECS: &[OpSpec] = &[];

impl Op for LogSigmoid {
    fn name(&self) -> &str {
        "LogSigmoid"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?.clone();
        cx.set_type(0, x);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.input(0);
        let y = l.unary("Neg", x);
        let y = l.unary("Softplus", y);
        let y = l.unary("Neg", y);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call =
            Call::new("log_sigmoid").input(Operand::Input(0), Grad::Pointwise).saves([Saved::Input(0)]);
        l.finish(call.output(l.out_shape(0), OutDtype::Like(0), Place::Pointwise));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Autocast, DType, OutState, TensorState};

    #[test]
    fn autocast_leaves_it_alone() {
        let dtype = DType::Bfloat16;
        let x = TensorState { shape: &[8, 8], dtype, requires_grad: true, is_initializer: false };
        let (inputs, outputs) = ([Some(x)], [Some(OutState { shape: &[8, 8], dtype })]);
        let mut l = Lowering::new(&inputs, &outputs, Some(dtype), true);
        LogSigmoid.pytorch(&mut l);
        let call = l.into_parts().0.remove(0);
        assert_eq!((call.autocast, &call.saved[..]), (Autocast::Keep, &[Saved::Input(0)][..]));
        assert_eq!(call.outputs[0].dtype, OutDtype::Like(0));
    }
}
