//! Shape, Size. ONNX Shape 1, 13, 15 (start, end), 19, 21, 23, 24, 25; Size 1, 13, 19, 21, 23, 24, 25.
//!
//! Sizes are the beginning of every shape chain: they are folded, symbolic ones as symbols.

use crate::kernels::TfLowering;
use crate::{Build, Call, DType, Infer, Lowering, Num, Op, OpError, OpSpec, OutDtype, Place, Shape, Value};
use std::sync::Arc;

/// The dims of the input as a vector, from `start` to `end`.
#[derive(Clone, Copy, Debug)]
pub struct ShapeOf {
    /// First axis; counted from the back when negative, clamped.
    pub start: i64,
    /// The axis after the last; counted from the back when negative, clamped; all where absent.
    pub end: Option<i64>,
}

/// The element count of the input.
#[derive(Clone, Copy, Debug)]
pub struct Size;

/// How the two are found.
pub const SPECS: &[OpSpec] = &[
    spec("Shape", &[1, 13, 15, 19, 21, 23, 24, 25], |a, _| {
        Ok(Arc::new(ShapeOf { start: a.int("start")?.unwrap_or(0), end: a.int("end")? }))
    }),
    spec("Size", &[1, 13, 19, 21, 23, 24, 25], |_, _| Ok(Arc::new(Size))),
];

const fn spec(name: &'static str, since: &'static [i64], build: Build) -> OpSpec {
    OpSpec { domain: "", name, since, build }
}

impl Op for ShapeOf {
    fn name(&self) -> &str {
        "Shape"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let Some(x) = cx.shape(0) else {
            let rank = cx.fresh_dim("rank", None);
            cx.set(0, DType::Int64, Some([rank].into_iter().collect()));
            return Ok(());
        };
        let clamp = |axis: i64| {
            let rank = i64::try_from(x.rank()).unwrap_or(i64::MAX);
            let axis = if axis < 0 { axis.saturating_add(rank) } else { axis };
            usize::try_from(axis.clamp(0, rank)).unwrap_or(0)
        };
        let (start, end) = (clamp(self.start), self.end.map_or(x.rank(), clamp));
        let dims = x.dims().get(start..end).unwrap_or(&[]);
        cx.set_value(0, Value::vector(DType::Int64, dims.iter().cloned()));
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        l.allocate("Shape");
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        l.finish(Call::new("size").output(l.out_shape(0), OutDtype::Is(DType::Int64), Place::New));
    }
}

impl Op for Size {
    fn name(&self) -> &str {
        "Size"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let count = cx.shape(0).and_then(Shape::product).map_or(Num::Unknown, Num::from);
        cx.set_value(0, Value::scalar(DType::Int64, count));
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        l.allocate("Size");
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        l.finish(Call::new("numel").output(&[], OutDtype::Is(DType::Int64), Place::New));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{float, folded, run, symbolic};
    use crate::{Attribute, Attributes};

    #[test]
    fn ranges_are_clamped() {
        let dims = |start, end| {
            let a = Attributes::from([("start", Attribute::Int(start)), ("end", Attribute::Int(end))]);
            folded("Shape", a, &[float(&[2, 3, 4])]).unwrap()
        };
        assert_eq!(dims(0, 3), [2, 3, 4]);
        assert_eq!(dims(-2, -1), [3]);
        assert_eq!(dims(-9, 9), [2, 3, 4]);
        assert!(dims(2, 1).is_empty());
        assert!(folded("Shape", Attributes::default(), &[float(&[])]).unwrap().is_empty());
    }

    #[test]
    fn symbols_stay() {
        let out = run("Size", 21, Attributes::default(), &[symbolic(&["batch", "3"])], 1).unwrap();
        assert_eq!(out[0].1.as_ref().unwrap().data[0].as_dim().unwrap().to_string(), "3*batch");
    }
}
