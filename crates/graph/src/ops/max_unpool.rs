//! MaxUnpool. ONNX 9, 11, 22; PyTorch's `F.max_unpool2d`.
//!
//! Autograd keeps the indices alone (derivatives.yaml: `max_unpool2d`).

use super::spatial::Window;
use crate::{Call, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Shape};
use std::sync::Arc;

/// Puts the maxima of a pooling back where they were.
#[derive(Clone, Debug, Default)]
pub struct MaxUnpool {
    /// The pooling's kernel, strides and pads.
    pub window: Window,
}

/// How MaxUnpool is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "MaxUnpool",
    since: &[9, 11, 22],
    build: |a, _| {
        let window = Window::read(a)?;
        if window.kernel.is_none() {
            return Err(OpError::missing_attribute("kernel_shape"));
        }
        Ok(Arc::new(MaxUnpool { window }))
    },
}];

impl MaxUnpool {
    fn shape(&self, x: &Shape) -> Result<Shape, OpError> {
        let kernel = self.window.kernel.as_deref().unwrap_or_default();
        let axes = kernel.len();
        if axes == 0 || x.rank() != axes + 2 {
            return Err(OpError::input(0, format!("{axes} spatial axes"), format!("shape {x}")));
        }
        let mut shape = x.clone();
        for (i, kernel) in kernel.iter().enumerate() {
            let overflow = || OpError::overflow(format!("the window along spatial axis {i}"));
            let stride = self.window.stride(i);
            let (begin, end) = self.window.pad(i, axes);
            // (n - 1) * stride + kernel - padding
            let extra = i128::from(*kernel) - i128::from(stride) - i128::from(begin) - i128::from(end);
            let extra = i64::try_from(extra).map_err(|_| overflow())?;
            let scaled = x[i + 2].mul(&Dim::Known(stride)).ok_or_else(overflow)?;
            shape.dims_mut()[i + 2] = scaled.offset(extra);
        }
        Ok(shape)
    }
}

impl Op for MaxUnpool {
    fn name(&self) -> &str {
        "MaxUnpool"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let shape = match (cx.dims(2), cx.shape(0)) {
            (Some(given), x) => {
                let mut shape: Shape = given.into_iter().collect();
                // Baked for the exported batch: the leading axis is the input's.
                if let (Some(x), true) = (x, cx.batch().is_some())
                    && x.rank() == shape.rank()
                    && let (Some(slot), Some(batch)) = (shape.dims_mut().first_mut(), x.dims().first())
                {
                    *slot = batch.clone();
                }
                Some(shape)
            }
            (None, Some(x)) if cx.has(2) => {
                Some((0..x.rank()).map(|k| cx.fresh_dim(&format!("dim{k}"), None)).collect())
            }
            (None, Some(x)) => Some(self.shape(x)?),
            (None, None) => None,
        };
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call = Call::new("max_unpool2d")
            .input(Operand::Input(0), Grad::New)
            .input(Operand::Input(1), Grad::None)
            .saves([Saved::Input(1)]);
        l.finish(call.output(l.out_shape(0), OutDtype::Like(0), Place::New));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_undo_the_pooling() {
        let window = Window { kernel: Some(vec![3, 2]), strides: vec![2, 2], ..Window::default() };
        let op = MaxUnpool { window };
        assert_eq!(op.shape(&Shape::from([1, 8, 5, 5])).unwrap(), Shape::from([1, 8, 11, 10]));
        assert!(op.shape(&Shape::from([1, 8, 5])).is_err());
    }
}
