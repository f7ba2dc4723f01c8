//! Relu. ONNX 1, 6, 13, 14; Keras `ReLU`, `activation="relu"`.
//!
//! Autograd keeps the **output** (derivatives.yaml: `threshold_backward(grad, result, 0)`), so an in-place `relu_`
//! costs as much as an out-of-place one whose input nobody else keeps.

use super::fold;
use crate::kernels::TfLowering;
use crate::{
    Autocast, Call, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved,
};
use std::sync::Arc;

/// `max(x, 0)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Relu {
    /// Whether it is known to write over its input (`relu_`).
    pub in_place: bool,
}

/// How Relu is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Relu",
    since: &[1, 6, 13, 14],
    build: |_, _| Ok(Arc::new(Relu::default())),
}];

/// `max(n, 0)`; a size is never negative.
fn positive(n: &Num) -> Num {
    match n {
        Num::Int(n) => Num::Int((*n).max(0)),
        Num::Float(x) => Num::Float(x.max(0.0)),
        n => n.clone(),
    }
}

impl Op for Relu {
    fn name(&self) -> &str {
        "Relu"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?.clone();
        cx.set_type(0, x);
        if let Some(value) = cx.value(0) {
            cx.set_value(0, fold::unary(value, value.dtype, positive));
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.input(0);
        let y = l.unary("Relu", x);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (function, place) =
            if self.in_place { ("relu_", Place::InPlace(0)) } else { ("relu", Place::Pointwise) };
        let call = Call::new(function)
            .autocast(Autocast::Keep)
            .input(Operand::Input(0), Grad::Pointwise)
            .output(l.out_shape(0), OutDtype::Promoted, place)
            .saves([Saved::Output(0)]);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attributes;
    use crate::ops::testing::{calls, float, folded, ints, shape, symbolic};

    #[test]
    fn a_shape_stays_and_elements_are_cut_at_zero() {
        let of = |inputs: &[_]| shape("Relu", 14, Attributes::default(), inputs);
        assert_eq!(of(&[symbolic(&["batch", "4"])]).unwrap(), "batchx4");
        assert!(of(&[]).unwrap_err().contains("input 0 is required"));
        assert_eq!(folded("Relu", Attributes::default(), &[ints(&[-2, 0, 3])]), Some(vec![0, 0, 3]));
    }

    #[test]
    fn the_output_is_kept() {
        let calls = calls("Relu", 14, Attributes::default(), &[float(&[2, 3])], 1);
        assert_eq!((calls.len(), &calls[0].saved[..]), (1, &[Saved::Output(0)][..]));
    }
}
