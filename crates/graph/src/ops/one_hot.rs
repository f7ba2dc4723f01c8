//! OneHot. ONNX 9, 11, 28.
//!
//! Its input are integers, so there is no gradient: a new tensor and nothing kept.

use crate::kernels::TfLowering;
use crate::{Infer, Lowering, Num, Op, OpError, OpSpec, Value};
use std::sync::Arc;

/// A new axis that holds one value at the index of input 0 and another elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct OneHot {
    /// Where the axis goes; counted from the back when negative.
    pub axis: i64,
}

/// How OneHot is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "OneHot",
    since: &[9, 11, 28],
    build: |a, _| Ok(Arc::new(OneHot { axis: a.int("axis")?.unwrap_or(-1) })),
}];

impl Op for OneHot {
    fn name(&self) -> &str {
        "OneHot"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        for i in 0..3 {
            cx.require(i)?;
        }
        let depth = match cx.value(1).and_then(Value::single) {
            Some(n) if n.as_i64().is_some_and(|n| n < 0) => {
                return Err(OpError::input(1, "a depth that is not negative", n));
            }
            n => n.and_then(Num::as_dim).unwrap_or_else(|| cx.fresh_dim("depth", None)),
        };
        let Some(indices) = cx.shape(0) else {
            cx.set(0, cx.dtype(2), None);
            return Ok(());
        };
        let rank = indices.rank() + 1;
        let axis = crate::shape::normalize_axis(self.axis, rank)
            .ok_or_else(|| OpError::attribute("axis", format!("an axis of {rank}"), self.axis.to_string()))?;
        let mut shape = indices.clone();
        shape.insert(axis, depth);
        cx.set(0, cx.dtype(2), Some(shape));
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        l.allocate("OneHot");
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        super::allocate(l, "one_hot");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{float, int, ints, shape};
    use crate::{Attribute, Attributes};

    #[test]
    fn the_depth_is_an_axis() {
        let of = |axis, depth| {
            let a = Attributes::from([("axis", Attribute::Int(axis))]);
            shape("OneHot", 11, a, &[float(&[2, 3]), depth, ints(&[0, 1])])
        };
        assert_eq!(of(-1, int(10)).unwrap(), "2x3x10");
        assert_eq!(of(0, ints(&[10])).unwrap(), "10x2x3");
        assert_eq!(of(1, float(&[])).unwrap(), "2xy0.depthx3");
        assert!(of(3, int(10)).is_err());
        assert!(of(0, int(-1)).is_err());
    }
}
