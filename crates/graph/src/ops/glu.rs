//! GLU: one half of a tensor through a gate that the other half sets. Made by recomposition only.
//!
//! `F.glu` is one kernel that keeps its **input** (derivatives.yaml: `glu_backward(grad, self, dim)`); what the exporters
//! write for it, Split, Sigmoid and Mul, would keep the gate as well.

use super::calls::Traced;
use crate::kernels::TfLowering;
use crate::{Call, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved};

/// `a * sigmoid(b)` of the halves of input 0 along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glu {
    /// Counted from the back when negative.
    pub axis: i64,
}

/// No file holds it.
pub const SPECS: &[OpSpec] = &[];

impl Op for Glu {
    fn name(&self) -> &str {
        "Glu"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let mut half = cx.shape(0).cloned();
        if let Some(half) = &mut half {
            let axis = half.axis(self.axis).ok_or_else(|| {
                OpError::input(0, format!("a rank that has axis {}", self.axis), format!("shape {half}"))
            })?;
            let whole = half[axis].clone();
            let size = whole.div_floor(&Dim::Known(2));
            half.dims_mut()[axis] = size.unwrap_or_else(|| cx.fresh_dim("half", whole.upper()));
        }
        cx.set(0, cx.dtype(0), half);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.raw(0);
        let half = l.out_shape(0).to_vec();
        let first = l.split(x, &[half.clone(), half]);
        let (a, b) = (l.output(first, 0), l.output(first, 1));
        let gate = l.unary("Sigmoid", b);
        let y = l.binary("Mul", a, gate);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let x = Traced::input(l, 0);
        let call = Call::new("glu").input(x.operand, Grad::New).saves([Saved::Input(0)]);
        let call = call.output(l.out_shape(0), OutDtype::Like(0), Place::New);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, OutState, TensorState};

    #[test]
    fn only_the_input_is_kept() {
        let whole = TensorState {
            shape: &[2, 8, 5],
            dtype: DType::Bfloat16,
            requires_grad: true,
            is_initializer: false,
        };
        let (inputs, outputs) =
            ([Some(whole)], [Some(OutState { shape: &[2, 4, 5], dtype: DType::Bfloat16 })]);
        let mut l = Lowering::new(&inputs, &outputs, Some(DType::Bfloat16), true);
        Glu { axis: 1 }.pytorch(&mut l);
        let calls = l.into_parts().0;
        assert_eq!((calls.len(), &calls[0].saved[..]), (1, &[Saved::Input(0)][..]));
        assert_eq!(calls[0].outputs[0].shape[..], [2, 4, 5]);
    }
}
