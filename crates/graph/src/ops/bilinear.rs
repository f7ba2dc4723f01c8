//! Bilinear: `torch.nn.functional.bilinear`, `y[o] = a · W[o] · b`, without its bias. Made by recomposition only.
//!
//! One `_trilinear` of both inputs and the weight, which autograd keeps (derivatives.yaml: `_trilinear`). It takes one output
//! after the other, so that nothing of the size of a product is made; but the gradient of the first input multiplies the
//! gradient of one output with its whole matrix for each row (aten/src/ATen/native/Linear.cpp, `_trilinear_backward`).

use crate::{Autocast, Call, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved};

/// The product of input 0, the weight (input 2: `[inputs, outputs, inputs]`) and input 1.
#[derive(Clone, Copy, Debug)]
pub struct Bilinear;

/// No file holds it.
pub const SPECS: &[OpSpec] = &[];

impl Op for Bilinear {
    fn name(&self) -> &str {
        "Bilinear"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        for i in 0..3 {
            cx.require(i)?;
        }
        let shape = cx.shape(0).zip(cx.shape(2).and_then(|w| w.dims().get(1))).map(|(x, outputs)| {
            let rows = &x.dims()[..x.rank().saturating_sub(1)];
            rows.iter().chain([outputs]).cloned().collect()
        });
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (a, b) = (l.shape(0), l.shape(1));
        let matrices = [a, &b[b.len().saturating_sub(1)..]].concat();
        let call =
            [0, 2, 1].into_iter().fold(Call::new("_trilinear").autocast(Autocast::Promote), |call, i| {
                call.input(Operand::Input(i), Grad::New)
            });
        let call = call
            .output(l.out_shape(0), OutDtype::Promoted, Place::New)
            .saves([0, 1, 2].map(Saved::Input))
            .backward_workspace(&matrices, OutDtype::Promoted);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, OutState, TensorState};

    #[test]
    fn inputs_and_weight_are_kept_and_a_matrix_for_each_row_comes_and_goes() {
        let state = |shape| {
            Some(TensorState { shape, dtype: DType::Float32, requires_grad: true, is_initializer: false })
        };
        let inputs = [state(&[8, 6][..]), state(&[8, 5]), state(&[6, 3, 5])];
        let outputs = [Some(OutState { shape: &[8, 3], dtype: DType::Float32 })];
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        Bilinear.pytorch(&mut l);
        let calls = l.into_parts().0;
        assert_eq!(calls[0].saved.len(), 3);
        assert_eq!(calls[0].backward_workspace[0].0[..], [8, 6, 5]);
    }
}
