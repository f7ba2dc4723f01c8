//! CenterCropPad. ONNX 18.
//!
//! A narrowed or padded copy: nothing is kept (derivatives.yaml: `constant_pad_nd_backward`).

use crate::{Call, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Shape};
use std::sync::Arc;

/// Crops or pads around the centre, to the sizes in input 1.
#[derive(Clone, Debug)]
pub struct CenterCropPad {
    /// The axes that the sizes are for; all where absent.
    pub axes: Option<Vec<i64>>,
}

/// How CenterCropPad is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "CenterCropPad",
    since: &[18],
    build: |a, _| Ok(Arc::new(CenterCropPad { axes: a.ints("axes")? })),
}];

impl Op for CenterCropPad {
    fn name(&self) -> &str {
        "CenterCropPad"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let Some(x) = cx.shape(0) else {
            cx.set(0, cx.dtype(0), None);
            return Ok(());
        };
        let axes: Vec<usize> = match &self.axes {
            Some(axes) => axes
                .iter()
                .map(|a| {
                    let found = || format!("shape {x}");
                    x.axis(*a).ok_or_else(|| OpError::input(0, format!("a rank that has axis {a}"), found()))
                })
                .collect::<Result<_, _>>()?,
            None => (0..x.rank()).collect(),
        };
        let sizes = cx.value(1).map(|v| &v.data);
        if let Some(sizes) = sizes
            && sizes.len() != axes.len()
        {
            return Err(OpError::input(1, format!("{} sizes", axes.len()), sizes.len()));
        }
        let mut shape: Shape = x.clone();
        for (k, axis) in axes.into_iter().enumerate() {
            let size = sizes.and_then(|s| s.get(k)?.as_dim());
            shape.dims_mut()[axis] = size.unwrap_or_else(|| cx.fresh_dim(&format!("dim{axis}"), None));
        }
        cx.set(0, cx.dtype(0), Some(shape));
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call = Call::new("constant_pad_nd").input(Operand::Input(0), Grad::New);
        l.finish(call.output(l.out_shape(0), OutDtype::Like(0), Place::New));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{float, ints, shape};
    use crate::{Attribute, Attributes};

    #[test]
    fn sizes_replace_their_axes() {
        let axes = Attributes::from([("axes", Attribute::Ints(vec![-1, 0]))]);
        assert_eq!(
            shape("CenterCropPad", 18, axes, &[float(&[20, 8, 3]), ints(&[9, 10])]).unwrap(),
            "10x8x9"
        );
        let second = Attributes::from([("axes", Attribute::Ints(vec![1]))]);
        assert!(shape("CenterCropPad", 18, second, &[float(&[20]), ints(&[9])]).is_err());
        assert!(shape("CenterCropPad", 18, Attributes::default(), &[float(&[20, 8]), ints(&[9])]).is_err());
    }
}
