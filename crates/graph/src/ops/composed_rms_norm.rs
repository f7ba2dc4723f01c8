//! RMS norm as transformers' models write it in Python, without its weight. Made by recomposition only.
//!
//! `LlamaRMSNorm`, `T5LayerNorm`, `GemmaRMSNorm` (transformers 5.x): `x.float()`, `pow(2)`, `mean`, `rsqrt`, `mul` (T5 multiplies
//! `x` as it was, the others what they cast); the
//! result goes back to the input's dtype before the weight multiplies it (Llama, T5) or after (Gemma). A file exported in
//! float32 shows nothing of the two casts, which are what half precision pays for. `pow` keeps its input, `rsqrt`
//! its result, `mul` both factors (derivatives.yaml).

use super::calls::Traced;
use crate::kernels::TfLowering;
use crate::{Autocast, Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved};

/// `x * rsqrt(mean(x^2) + eps)` over the last axis; times input 1, in float32 too, where that is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComposedRmsNorm {
    /// Whether only what is squared is cast to float32, as in T5.
    pub squares_apart: bool,
}

/// No file holds it.
pub const SPECS: &[OpSpec] = &[];

impl Op for ComposedRmsNorm {
    fn name(&self) -> &str {
        "ComposedRmsNorm"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?.clone();
        cx.set_type(0, x);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.input_f32(0);
        let mut rows = l.shape(x).to_vec();
        rows.last_mut().into_iter().for_each(|d| *d = 1);
        let scale = l.has(1).then(|| l.input_f32(1));
        let y = l.rms_norm(x, &rows, scale);
        let y = l.to_compute(y);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let x = Traced::input(l, 0);
        let dtype = l.dtype(0);
        let full = if dtype.is_half() { x.cast(l, DType::Float32) } else { x.clone() };
        let shape = full.shape.clone();
        let square = Call::new("pow")
            .autocast(Autocast::Fp32)
            .input(full.operand, Grad::Pointwise)
            .saves([Saved::Input(0)])
            .output(&shape, OutDtype::Promoted, Place::Pointwise)
            // grad * (exponent * self.pow(exponent - 1))
            .backward_scratch(&shape, OutDtype::Promoted)
            .backward_scratch(&shape, OutDtype::Promoted);
        let square = Traced::of(l, square, &shape, &[&full]);
        let mut rows = shape.clone();
        if let Some(last) = rows.last_mut() {
            *last = 1;
        }
        let mean =
            Call::new("mean").input(square.operand, Grad::New).output(&rows, OutDtype::Promoted, Place::New);
        let mean = Traced::of(l, mean, &rows, &[&square]).scale(l, "add");
        let root = Call::new("rsqrt")
            .autocast(Autocast::Fp32)
            .input(mean.operand, Grad::Pointwise)
            .saves([Saved::Output(0)])
            .output(&rows, OutDtype::Promoted, Place::Pointwise);
        let root = Traced::of(l, root, &rows, &[&mean]);
        let factor = if self.squares_apart { &x } else { &full };
        let y = factor.mul(l, &root, &shape);
        let y = match Traced::optional(l, 1) {
            Some(weight) => {
                // One plus a weight is made of the weight in float32; a weight itself only meets the float32 factor.
                let is_made = l.state(1).is_some_and(|s| !s.is_initializer);
                let weight =
                    if is_made && l.dtype(1).is_half() { weight.cast(l, DType::Float32) } else { weight };
                y.mul(l, &weight, &shape)
            }
            None => y,
        };
        let y = if dtype.is_half() { y.cast(l, dtype) } else { y };
        y.bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OutState, TensorState};

    #[test]
    fn half_precision_pays_for_two_casts() {
        let names = |dtype| {
            let state = TensorState { shape: &[2, 8], dtype, requires_grad: true, is_initializer: false };
            let (inputs, outputs) = ([Some(state)], [Some(OutState { shape: &[2, 8], dtype })]);
            let mut l = Lowering::new(&inputs, &outputs, None, true);
            ComposedRmsNorm::default().pytorch(&mut l);
            l.into_parts().0.iter().map(|c| c.function).collect::<Vec<_>>()
        };
        assert_eq!(names(DType::Float32), ["pow", "mean", "add", "rsqrt", "mul"]);
        let half = names(DType::Bfloat16);
        assert_eq!((half[0], half[6]), ("_to_copy", "_to_copy"));
    }
}
