//! Linear: `x @ weight.T + bias` over the last axis of an input of any rank. Made by recomposition only.
//!
//! `torch.nn.functional.linear` (aten/src/ATen/native/Linear.cpp, 2.15) flattens the leading axes, which copies an
//! input that is not contiguous, and calls one `addmm`, or `mm` where there is no bias. derivatives.yaml: both keep
//! both matrices. On autocast's lower-precision list.

use super::calls::Traced;
use super::matmul::linear;
use crate::kernels::TfLowering;
use crate::{Autocast, Infer, Lowering, Op, OpError, OpSpec};

/// A linear layer: inputs are x, weight and an optional bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Whether the weight is `[out, in]` as in the framework, rather than the `[in, out]` that some exporters fold.
    pub out_first: bool,
}

/// No file holds it.
pub const SPECS: &[OpSpec] = &[];

impl Op for Linear {
    fn name(&self) -> &str {
        "Linear"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let dtype = cx.dtype(0);
        let weight = cx.shape_of_rank(1, 2)?;
        let (Some(x), Some(weight)) = (cx.shape(0), weight) else {
            cx.set(0, dtype, None);
            return Ok(());
        };
        let (out, inner) = if self.out_first { (&weight[0], &weight[1]) } else { (&weight[1], &weight[0]) };
        let mut shape = x.clone();
        let Some(last) = shape.dims_mut().last_mut() else {
            return Err(OpError::input(0, "at least one axis", "a scalar"));
        };
        if let (Some(have), Some(want)) = (last.known(), inner.known())
            && have != want
        {
            return Err(OpError::input(0, format!("{want} features"), format!("shape {x}")));
        }
        *last = out.clone();
        cx.set(0, dtype, Some(shape));
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, weight, shape) = (l.input(0), l.input(1), l.out_shape(0));
        let (inner, out) = (l.in_shape(0).last().copied(), shape.last().copied());
        let (inner, out) = (inner.unwrap_or(1), out.unwrap_or(1));
        let rows = l.made(x).elements().checked_div(inner).unwrap_or(0);
        let flat = l.view("Reshape", x, &[rows, inner]);
        let product = l.matmul("MatMul", flat, weight, &[rows, out]);
        let mut y = l.view("Reshape", product, shape);
        if l.has(2) {
            let bias = l.input(2);
            y = l.bias_add(y, bias);
        }
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (x, weight, bias) = (Traced::input(l, 0), Traced::input(l, 1), Traced::optional(l, 2));
        // Cast before it is turned: only a parameter itself is cast once for the whole step.
        let weight = weight.autocast(l, Autocast::Lower);
        let weight = if self.out_first { weight.transpose_last(l) } else { weight };
        linear(l, &x, &weight, bias.as_ref()).bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, OutState, TensorState};

    #[test]
    fn leading_axes_are_flattened_around_one_product() {
        let state =
            |shape| TensorState { shape, dtype: DType::Float32, requires_grad: true, is_initializer: false };
        let inputs = [Some(state(&[8, 128, 768])), Some(state(&[3072, 768])), Some(state(&[3072]))];
        let outputs = [Some(OutState { shape: &[8, 128, 3072], dtype: DType::Float32 })];
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        Linear { out_first: true }.pytorch(&mut l);
        let (calls, ..) = l.into_parts();
        assert_eq!(
            calls.iter().map(|c| c.function).collect::<Vec<_>>(),
            ["permute", "reshape", "addmm", "reshape"]
        );
        assert_eq!(calls[2].outputs[0].shape[..], [1024, 3072]);
        assert_eq!(calls[2].saved.len(), 2);
    }
}
