//! WeightNorm: a weight as a length and a direction. Made by recomposition only.
//!
//! `torch._weight_norm` runs one kernel, `_weight_norm_interface`, which keeps both parameters and the norms it computed, in float32
//! where they are half (derivatives.yaml; aten/src/ATen/native/cuda/WeightNorm.cu, 2.15).

use super::calls::Traced;
use crate::{Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved};

/// Input 0, the direction, scaled so that its norm over all axes but those of input 1 is input 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightNorm;

/// No file holds it.
pub const SPECS: &[OpSpec] = &[];

impl Op for WeightNorm {
    fn name(&self) -> &str {
        "WeightNorm"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(1)?;
        let direction = cx.require(0)?.clone();
        cx.set_type(0, direction);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (direction, length) = (Traced::input(l, 0), Traced::input(l, 1));
        let call = Call::new("_weight_norm_interface")
            .input(direction.operand, Grad::New)
            .input(length.operand, Grad::New)
            .output(&direction.shape, OutDtype::Like(0), Place::New)
            .output(&length.shape, OutDtype::Is(DType::Float32), Place::New)
            .saves([Saved::Input(0), Saved::Input(1), Saved::Output(1)]);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorState;

    #[test]
    fn the_norms_are_kept_and_not_the_quotient() {
        let state = |shape| {
            Some(TensorState { shape, dtype: DType::Bfloat16, requires_grad: true, is_initializer: true })
        };
        let inputs = [state(&[4, 8, 3][..]), state(&[4, 1, 1])];
        let mut l = Lowering::new(&inputs, &[], None, true);
        WeightNorm.pytorch(&mut l);
        let calls = l.into_parts().0;
        assert_eq!((calls.len(), calls[0].outputs[1].dtype), (1, OutDtype::Is(DType::Float32)));
        assert_eq!(calls[0].saved[2], Saved::Output(1));
    }
}
