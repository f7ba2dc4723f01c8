//! Flatten. ONNX 1, 9, 11, 13, 21, 23, 24, 25; Keras `Flatten`.
//!
//! Autograd keeps nothing: it is a reshape.

use super::fold;
use crate::kernels::TfLowering;
use crate::{Call, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Shape, View};
use std::sync::Arc;

/// A matrix of the axes before `axis` and the axes from it on.
#[derive(Clone, Copy, Debug)]
pub struct Flatten {
    /// From 0 to the rank; counted from the back when negative.
    pub axis: i64,
}

/// How Flatten is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Flatten",
    since: &[1, 9, 11, 13, 21, 23, 24, 25],
    build: |a, _| Ok(Arc::new(Flatten { axis: a.int("axis")?.unwrap_or(1) })),
}];

impl Op for Flatten {
    fn name(&self) -> &str {
        "Flatten"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let Some(x) = cx.shape(0) else {
            let unknown = ["dim0", "dim1"].map(|label| cx.fresh_dim(label, None));
            cx.set(0, cx.dtype(0), Some(unknown.into_iter().collect()));
            return Ok(());
        };
        let axis = if i64::try_from(x.rank()) == Ok(self.axis) { Some(x.rank()) } else { x.axis(self.axis) };
        let axis = axis.ok_or_else(|| {
            OpError::input(
                0,
                format!("a rank of at least {}", self.axis.unsigned_abs()),
                format!("shape {x}"),
            )
        })?;
        let product = |dims: &[Dim]| {
            let part: Shape = dims.iter().cloned().collect();
            part.product().ok_or_else(|| OpError::overflow("the element count of the input"))
        };
        let shape: Shape = [product(&x.dims()[..axis])?, product(&x.dims()[axis..])?].into_iter().collect();
        let folded = cx.value(0).and_then(|v| fold::reshaped(v, &shape));
        cx.set(0, cx.dtype(0), Some(shape));
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, shape) = (l.raw(0), l.out_shape(0));
        let y = l.view("Reshape", x, shape);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call = Call::new("reshape").input(Operand::Input(0), Grad::Unview);
        l.finish(call.output(l.out_shape(0), OutDtype::Like(0), Place::View(0, View::Reshape)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{float, shape, symbolic};
    use crate::{Attribute, Attributes};

    #[test]
    fn every_axis_gives_a_matrix() {
        let flat = |axis, x| shape("Flatten", 13, Attributes::from([("axis", Attribute::Int(axis))]), &[x]);
        assert_eq!(flat(0, float(&[2, 3, 4])).unwrap(), "1x24");
        assert_eq!(flat(3, float(&[2, 3, 4])).unwrap(), "24x1");
        assert_eq!(flat(-1, float(&[2, 3, 4])).unwrap(), "6x4");
        assert_eq!(flat(1, symbolic(&["batch", "3", "4"])).unwrap(), "batchx12");
        assert!(flat(4, float(&[2, 3, 4])).is_err());
        assert_eq!(flat(0, float(&[])).unwrap(), "1x1");
    }
}
