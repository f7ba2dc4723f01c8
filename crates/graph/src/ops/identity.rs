//! Identity. ONNX 1, 13, 14, 16, 19, 21, 23, 24, 25.
//!
//! The same tensor: nothing is allocated and nothing kept.

use crate::kernels::TfLowering;
use crate::{Call, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, View};
use std::sync::Arc;

/// Passes any value on: tensors, sequences, optionals.
#[derive(Clone, Copy, Debug)]
pub struct Identity;

/// How Identity is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Identity",
    since: &[1, 13, 14, 16, 19, 21, 23, 24, 25],
    build: |_, _| Ok(Arc::new(Identity)),
}];

impl Op for Identity {
    fn name(&self) -> &str {
        "Identity"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.forward(0, 0);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, shape) = (l.raw(0), l.out_shape(0));
        let y = l.view("Identity", x, shape);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        l.finish(alias(l));
    }
}

/// `Tensor.detach`: the same tensor, through which no gradient flows. No file holds it: recomposition finds it.
#[derive(Clone, Copy, Debug)]
pub struct Detach;

impl Op for Detach {
    fn name(&self) -> &str {
        "Identity"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        Identity.infer(cx)
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        Identity.tensorflow(l);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let mut call = alias(l);
        call.grads[0] = Grad::None;
        l.finish(call);
    }
}

/// The call that makes output 0 the same tensor as input 0.
pub(super) fn alias(l: &Lowering<'_>) -> Call {
    Call::new("alias").input(Operand::Input(0), Grad::Pass).output(
        l.out_shape(0),
        OutDtype::Like(0),
        Place::View(0, View::Alias),
    )
}
