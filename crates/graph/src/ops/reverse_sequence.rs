//! ReverseSequence. ONNX 10, 28.
//!
//! PyTorch has no such kernel; models write it as a `gather` with reversed indices, which autograd
//! keeps beside the input.

use crate::{Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved};
use std::sync::Arc;

/// Reverses the beginning of each sample along the time axis; its length is in input 1.
#[derive(Clone, Copy, Debug)]
pub struct ReverseSequence {
    /// The axis of the samples.
    pub batch_axis: i64,
    /// The axis that is reversed.
    pub time_axis: i64,
}

/// How ReverseSequence is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "ReverseSequence",
    since: &[10, 28],
    build: |a, _| {
        let (batch_axis, time_axis) = (a.int("batch_axis")?.unwrap_or(1), a.int("time_axis")?.unwrap_or(0));
        Ok(Arc::new(ReverseSequence { batch_axis, time_axis }))
    },
}];

impl Op for ReverseSequence {
    fn name(&self) -> &str {
        "ReverseSequence"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?.clone();
        cx.require(1)?;
        if let Some(shape) = x.shape() {
            for axis in [self.batch_axis, self.time_axis] {
                let expected = || format!("a rank that has axis {axis}");
                shape.axis(axis).ok_or_else(|| OpError::input(0, expected(), format!("shape {shape}")))?;
            }
        }
        cx.set_type(0, x);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let indices =
            l.call(Call::new("arange").output(l.out_shape(0), OutDtype::Is(DType::Int64), Place::New));
        let call = Call::new("gather").input(Operand::Input(0), Grad::New).input(indices, Grad::None);
        l.finish(
            call.output(l.out_shape(0), OutDtype::Like(0), Place::New)
                .saves([Saved::Input(0), Saved::Input(1)]),
        );
    }
}
