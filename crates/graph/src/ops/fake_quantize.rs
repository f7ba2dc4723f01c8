//! FakeQuantize: what QuantizeLinear and DequantizeLinear in a row are while a model trains. Made by recomposition only.
//!
//! `fake_quantize_per_tensor_affine` and `fake_quantize_per_channel_affine` round and scale back in one kernel and keep
//! one byte an element: whether it was inside the range (derivatives.yaml: `…_cachemask`). Scale and zero point are
//! buffers that an observer fills.

use super::calls::Traced;
use crate::{Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved};

/// Rounds input 0 as if it were an integer times input 1.
#[derive(Clone, Copy, Debug)]
pub struct FakeQuantize;

/// No file holds it.
pub const SPECS: &[OpSpec] = &[];

impl Op for FakeQuantize {
    fn name(&self) -> &str {
        "FakeQuantize"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        cx.set(0, cx.dtype(0), cx.shape(0).cloned());
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let x = Traced::input(l, 0);
        let call = Call::new("fake_quantize_per_tensor_affine_cachemask")
            .input(x.operand, Grad::Pointwise)
            .input(Operand::Input(1), Grad::None)
            .output(&x.shape, OutDtype::Like(0), Place::Pointwise)
            .output(&x.shape, OutDtype::Is(DType::Bool), Place::Pointwise)
            .saves([Saved::Output(1)]);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorState;

    #[test]
    fn a_byte_an_element_is_kept() {
        let state = |shape, requires_grad| {
            Some(TensorState { shape, dtype: DType::Float32, requires_grad, is_initializer: false })
        };
        let inputs = [state(&[4, 8][..], true), state(&[], false)];
        let mut l = Lowering::new(&inputs, &[], None, true);
        FakeQuantize.pytorch(&mut l);
        let call = l.into_parts().0.remove(0);
        assert_eq!(call.outputs[1].dtype, OutDtype::Is(DType::Bool));
        assert_eq!(call.saved[..], [Saved::Output(1)]);
    }
}
