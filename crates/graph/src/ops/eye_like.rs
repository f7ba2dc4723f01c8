//! EyeLike. ONNX 9, 22.

use crate::{DType, Infer, Lowering, Op, OpError, OpSpec};
use std::sync::Arc;

/// A matrix of the input's shape with ones on a diagonal.
#[derive(Clone, Copy, Debug)]
pub struct EyeLike {
    /// The element type, where one is given.
    pub dtype: Option<DType>,
}

/// How EyeLike is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "EyeLike",
    since: &[9, 22],
    build: |a, _| Ok(Arc::new(EyeLike { dtype: super::dtype_attribute(a, "dtype")? })),
}];

impl Op for EyeLike {
    fn name(&self) -> &str {
        "EyeLike"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let shape = cx.shape_of_rank(0, 2)?.cloned();
        cx.set(0, self.dtype.unwrap_or(cx.dtype(0)), shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        super::allocate(l, "eye");
    }
}
