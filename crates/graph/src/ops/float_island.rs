//! A stretch of float32 inside of a half-precision model: the two casts around it. Made by recomposition only.
//!
//! Models write `q.float() … .to(v.dtype)` around what halves are too coarse for (attention scores in GPT-Neo, GPT-J and
//! T5, norms). Exported in float32, both casts change nothing; half precision and autocast run them
//! (derivatives.yaml: `_to_copy_backward` casts the gradient back).

use super::calls::Traced;
use super::identity;
use crate::kernels::TfLowering;
use crate::{DType, Infer, Lowering, Op, OpError, OpSpec, TensorId};

/// One of the casts around a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatIsland {
    /// The one to float32 that opens it.
    Widen,
    /// The one that closes it: back to the dtype that `entry` had before it was widened.
    Restore {
        /// What was widened; only its dtype is asked for, so it need not be alive.
        entry: TensorId,
    },
}

/// No file holds them.
pub const SPECS: &[OpSpec] = &[];

impl Op for FloatIsland {
    fn name(&self) -> &str {
        match self {
            FloatIsland::Widen => "Widen",
            FloatIsland::Restore { .. } => "Restore",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.forward(0, 0);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.raw(0);
        l.bind(0, x);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let from = l.dtype(0);
        let to = match self {
            FloatIsland::Widen if from.is_half() => DType::Float32,
            FloatIsland::Widen => from,
            // The engine gives the dtype of `entry` as the output's.
            FloatIsland::Restore { .. } => l.out_dtype(0),
        };
        if from == to {
            return l.finish(identity::alias(l));
        }
        let x = Traced::input(l, 0);
        x.cast(l, to).bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OutState, TensorState};

    fn functions(op: &dyn Op, from: DType, out: DType) -> Vec<&'static str> {
        let state = TensorState { shape: &[2, 8], dtype: from, requires_grad: true, is_initializer: false };
        let (inputs, outputs) = ([Some(state)], [Some(OutState { shape: &[2, 8], dtype: out })]);
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        op.pytorch(&mut l);
        l.into_parts().0.iter().map(|c| c.function).collect()
    }

    #[test]
    fn only_halves_are_cast_and_go_back_to_what_they_were() {
        let (half, full) = (DType::Bfloat16, DType::Float32);
        assert_eq!(functions(&FloatIsland::Widen, half, half), ["_to_copy"]);
        assert_eq!(functions(&FloatIsland::Widen, full, full), ["alias"]);
        let restore = FloatIsland::Restore { entry: TensorId(0) };
        assert_eq!(functions(&restore, full, half), ["_to_copy"]);
        assert_eq!(functions(&restore, full, full), ["alias"]);
    }
}
