//! Broadcasting as it was before opset 7: only where the attribute `broadcast` says so, with the second input's axes laid
//! at `axis` of the first.

use super::infer_broadcast;
use crate::{Attributes, DType, Infer, Lowering, Op, OpError, Shape};
use std::sync::Arc;

/// A binary operator whose second input is laid at an axis of the first.
#[derive(Debug)]
struct Legacy {
    op: Arc<dyn Op>,
    axis: i64,
    dtype: Option<DType>,
}

/// The operator as opset `version` broadcasts it; its result has the first input's dtype unless another is given.
pub(super) fn wrap(
    op: Arc<dyn Op>,
    dtype: Option<DType>,
    a: &Attributes,
    version: i64,
) -> Result<Arc<dyn Op>, OpError> {
    match a.int("axis")? {
        Some(axis) if version < 7 && a.flag("broadcast")? => Ok(Arc::new(Legacy { op, axis, dtype })),
        _ => Ok(op),
    }
}

impl Op for Legacy {
    fn name(&self) -> &str {
        self.op.name()
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let (Some(a), Some(b)) = (cx.shape(0), cx.shape(1)) else { return self.op.infer(cx) };
        let fits = |axis: usize| {
            let here = a.dims().get(axis..)?;
            let laid: Shape =
                b.dims().iter().cloned().chain(here.iter().skip(b.rank()).map(|_| 1.into())).collect();
            a.broadcast(&laid).filter(|shape| shape.rank() == a.rank())
        };
        match a.axis(self.axis).and_then(fits) {
            Some(shape) => {
                let dtype = self.dtype.unwrap_or(cx.dtype(0));
                cx.set(0, dtype, Some(shape));
                Ok(())
            }
            None => infer_broadcast(cx, self.dtype),
        }
    }

    fn pytorch(&self, lowering: &mut Lowering<'_>) {
        self.op.pytorch(lowering);
    }
}
