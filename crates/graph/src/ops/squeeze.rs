//! Squeeze, Unsqueeze. ONNX 1, 11, 13, 21, 23, 24, 25. The axes are an attribute before opset 13, an input since.
//!
//! Autograd keeps nothing: both are views that never copy, and so are their gradients.

use super::fold;
use crate::kernels::TfLowering;
use crate::shape::normalize_axis;
use crate::{
    Build, Call, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Shape, View,
};
use std::sync::Arc;

/// Takes axes of one element away, or puts them in.
#[derive(Clone, Debug)]
pub struct Squeeze {
    /// Whether axes are put in.
    pub un: bool,
    /// The axes, where the opset has them as an attribute.
    pub axes: Option<Vec<i64>>,
}

/// How the two are found.
pub const SPECS: &[OpSpec] = &[
    spec("Squeeze", |a, _| Ok(Arc::new(Squeeze { un: false, axes: a.ints("axes")? }))),
    spec("Unsqueeze", |a, _| Ok(Arc::new(Squeeze { un: true, axes: a.ints("axes")? }))),
];

const fn spec(name: &'static str, build: Build) -> OpSpec {
    OpSpec { domain: "", name, since: &[1, 11, 13, 21, 23, 24, 25], build }
}

impl Squeeze {
    /// `axes` among `rank`, sorted; an error where one is out of range or there twice.
    fn sorted(axes: &[i64], rank: usize) -> Result<Vec<usize>, OpError> {
        let wrong = || OpError::mismatch(format!("different axes of {rank}"), format!("{axes:?}"));
        let sorted = axes.iter().map(|a| normalize_axis(*a, rank)).collect::<Option<Vec<_>>>();
        let mut sorted = sorted.ok_or_else(wrong)?;
        sorted.sort_unstable();
        if sorted.windows(2).any(|w| w[0] == w[1]) { Err(wrong()) } else { Ok(sorted) }
    }

    fn squeezed(&self, x: &Shape, axes: Option<&[i64]>) -> Result<Option<Shape>, OpError> {
        let Some(axes) = axes else {
            // All ones go; a dim that is not a number may be one or not.
            let kept = x.dims().iter().filter(|d| **d != Dim::Known(1)).cloned().collect();
            return Ok(x.dims().iter().all(|d| d.known().is_some()).then_some(kept));
        };
        let axes = Squeeze::sorted(axes, x.rank())?;
        if let Some(axis) = axes.iter().find(|a| x[**a].known().is_some_and(|n| n != 1)) {
            return Err(OpError::input(0, format!("one element along axis {axis}"), format!("shape {x}")));
        }
        let kept = (0..x.rank()).filter(|k| !axes.contains(k));
        Ok(Some(kept.map(|k| x[k].clone()).collect()))
    }

    fn unsqueezed(x: &Shape, axes: Option<&[i64]>) -> Result<Option<Shape>, OpError> {
        let Some(axes) = axes else { return Ok(None) };
        let mut shape = x.clone();
        for axis in Squeeze::sorted(axes, x.rank() + axes.len())? {
            shape.insert(axis, 1);
        }
        Ok(Some(shape))
    }
}

impl Op for Squeeze {
    fn name(&self) -> &str {
        if self.un { "Unsqueeze" } else { "Squeeze" }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        if self.un && self.axes.is_none() {
            cx.require(1)?;
        }
        let axes = self.axes.clone().or_else(|| cx.ints(1));
        let all = !self.un && self.axes.is_none() && !cx.has(1);
        let shape = match cx.shape(0) {
            Some(x) if self.un => Squeeze::unsqueezed(x, axes.as_deref())?,
            Some(x) if all || axes.is_some() => self.squeezed(x, axes.as_deref())?,
            _ => None,
        };
        let folded = cx.value(0).zip(shape.as_ref()).and_then(|(v, s)| fold::reshaped(v, s));
        cx.set(0, cx.dtype(0), shape);
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
        let name = if self.un { "unsqueeze" } else { "squeeze" };
        let call = Call::new(name).input(Operand::Input(0), Grad::Unview);
        l.finish(call.output(l.out_shape(0), OutDtype::Like(0), Place::View(0, View::Reshape)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, folded, int, ints, shape, symbolic};
    use crate::{Attribute, Attributes};

    fn squeeze(inputs: &[In]) -> Result<String, String> {
        shape("Squeeze", 13, Attributes::default(), inputs)
    }

    #[test]
    fn ones_are_taken_away() {
        assert_eq!(squeeze(&[float(&[1, 3, 1, 5]), ints(&[-2, 0])]).unwrap(), "3x5");
        assert_eq!(squeeze(&[float(&[1, 3, 1, 5])]).unwrap(), "3x5");
        assert_eq!(squeeze(&[symbolic(&["batch", "1"]), ints(&[1])]).unwrap(), "batch");
        assert_eq!(squeeze(&[symbolic(&["batch", "1"])]).unwrap(), "?");
        assert!(squeeze(&[float(&[1, 3]), ints(&[1])]).unwrap_err().contains("axis 1"));
        assert!(squeeze(&[float(&[1, 1]), ints(&[0, -2])]).is_err());
        let old = Attributes::from([("axes", Attribute::Ints(vec![0]))]);
        assert_eq!(shape("Squeeze", 11, old, &[float(&[1, 3])]).unwrap(), "3");
    }

    #[test]
    fn ones_are_put_in_where_the_output_has_them() {
        let un = |x, axes: &[i64]| shape("Unsqueeze", 13, Attributes::default(), &[x, ints(axes)]);
        assert_eq!(un(float(&[3, 4, 5]), &[5, 4, 2]).unwrap(), "3x4x1x5x1x1");
        assert_eq!(un(float(&[3]), &[-1]).unwrap(), "3x1");
        assert!(un(float(&[3]), &[3]).is_err());
        assert_eq!(folded("Unsqueeze", Attributes::default(), &[int(7), ints(&[0])]).unwrap(), [7]);
    }
}
