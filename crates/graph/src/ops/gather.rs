//! Gather. ONNX 1, 11, 13; Keras `Embedding`.
//!
//! Autograd keeps the indices only. Which ATen call it is depends on what is indexed: a table of parameters is an
//! `embedding`, whose gradient is as large as the table (derivatives.yaml: `embedding_dense_backward`); one constant index
//! is a `select`, a view whose gradient is a zero tensor of the input's shape; anything else is an `index_select`.

use super::{fold, rebatch};
use crate::kernels::TfLowering;
use crate::{
    Call, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Shape, Value,
    View,
};
use std::sync::Arc;

/// Entries along one axis: output shape is the input's with that axis replaced by the indices' shape.
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    /// Counted from the back when negative.
    pub axis: i64,
}

/// How Gather is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Gather",
    since: &[1, 11, 13],
    build: |a, _| Ok(Arc::new(Gather { axis: a.int("axis")?.unwrap_or(0) })),
}];

impl Gather {
    fn shape(&self, cx: &Infer<'_>) -> Result<Option<(usize, Shape)>, OpError> {
        let Some(x) = cx.shape(0) else { return Ok(None) };
        let axis = x.axis(self.axis).ok_or_else(|| {
            OpError::input(0, format!("a rank that has axis {}", self.axis), format!("shape {x}"))
        })?;
        let Some(indices) = cx.shape(1) else { return Ok(None) };
        let parts = [&x.dims()[..axis], indices.dims(), &x.dims()[axis + 1..]];
        Ok(Some((axis, parts.concat().into_iter().collect())))
    }

    /// Positions must be among those that a stored table has.
    fn look_up(&self, cx: &Infer<'_>, axis: usize) -> Result<(), OpError> {
        let size = cx.stored(0).and(cx.shape(0)).and_then(|shape| shape.dims().get(axis)?.known());
        let (Some(size), Some(indices)) = (size, cx.shape(1)) else { return Ok(()) };
        let index = match cx.value(1) {
            Some(known) => beyond(known, size).map(ToString::to_string),
            None if indices.known().is_some_and(|dims| crate::elements(&dims) > Value::MAX_ELEMENTS) => {
                cx.counted(1).filter(|n| *n > size).map(|n| (n - 1).to_string())
            }
            None => None,
        };
        let Some(index) = index else { return Ok(()) };
        Err(OpError::input(1, format!("indices into a table of {size}"), index))
    }
}

/// The first known index that an axis of `size` elements does not have.
fn beyond(indices: &Value, size: u64) -> Option<&Num> {
    indices.data.iter().find(|n| n.as_i64().is_some() && normalize(n, size).is_none())
}

/// `index` into an axis of `size` elements, counted from the back when negative.
pub(super) fn normalize(index: &Num, size: u64) -> Option<u64> {
    let index = index.as_i64()?;
    let from_front = if index < 0 { size.checked_sub(index.unsigned_abs())? } else { index.unsigned_abs() };
    (from_front < size).then_some(from_front)
}

impl Op for Gather {
    fn name(&self) -> &str {
        "Gather"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let Some((axis, shape)) = self.shape(cx)? else {
            cx.set(0, cx.dtype(0), None);
            return Ok(());
        };
        let mut folded = None;
        if let (Some(x), Some(indices), Some(shape)) = (cx.value(0), cx.value(1), shape.known()) {
            let size = x.shape.get(axis).copied().unwrap_or(0);
            if let Some(n) = beyond(indices, size) {
                return Err(OpError::input(1, format!("indices into {size} element(s)"), n));
            }
            let rank = indices.shape.len();
            folded = fold::pick(x, &shape, |index| {
                let (before, rest) = index.split_at(axis);
                let (at, after) = rest.split_at(rank);
                let at = normalize(fold::element(indices, at)?, size)?;
                Some([before, &[at], after].concat())
            });
        }
        let table = cx.shape(0).cloned().unwrap_or_default();
        if let Some(indices) = rebatch::counted(cx, table.dims().get(axis).and_then(crate::Dim::known))? {
            let (before, after) = (&table.dims()[..axis], &table.dims()[axis + 1..]);
            cx.set(0, cx.dtype(0), Some([before, indices.dims(), after].concat().into_iter().collect()));
            return Ok(());
        }
        self.look_up(cx, axis)?;
        let shape = rebatch::rearranged(cx, &shape).unwrap_or_else(|| {
            let mut shape = shape;
            rebatch::indexed(cx, axis..axis + 1, axis, &mut shape);
            shape
        });
        cx.set(0, cx.dtype(0), Some(shape));
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, indices, shape) = (l.input(0), l.raw(1), l.out_shape(0));
        let y = if self.axis == 0 && l.in_shape(0).len() == 2 {
            l.lookup(x, indices, shape)
        } else {
            l.moved("GatherV2", x, shape)
        };
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (x, out) = (l.shape(0), l.out_shape(0));
        let axis = crate::shape::normalize_axis(self.axis, x.len()).unwrap_or(0);
        let size = x.get(axis).copied().unwrap_or(0);
        let constant =
            l.value(1).filter(|_| l.shape(1).is_empty()).and_then(|v| normalize(v.single()?, size));
        if let Some(start) = constant {
            let mut kept = x.to_vec();
            kept[axis] = 1;
            let view = View::Slice { axis, start, step: 1 };
            let slice = Call::new("select").input(Operand::Input(0), Grad::Unview);
            let slice = l.call(slice.output(&kept, OutDtype::Like(0), Place::View(0, view)));
            let squeeze = Call::new("squeeze").input(slice, Grad::Unview);
            return l.finish(squeeze.output(out, OutDtype::Like(0), Place::View(0, View::Reshape)));
        }
        let table = l.state(0).is_some_and(|s| s.is_initializer && s.dtype.is_float());
        let name = if table && axis == 0 && x.len() == 2 { "embedding" } else { "index_select" };
        let call = Call::new(name)
            .input(Operand::Input(0), Grad::New)
            .input(Operand::Input(1), Grad::None)
            .output(out, OutDtype::Like(0), Place::New)
            .saves([Saved::Input(1)]);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, calls, float, folded, int, ints, run, shape};
    use super::*;
    use crate::{Attribute, Attributes, DType, Dim, Type};

    fn axis(n: i64) -> Attributes {
        Attributes::from([("axis", Attribute::Int(n))])
    }

    #[test]
    fn the_axis_gives_way_to_the_indices() {
        assert_eq!(shape("Gather", 13, axis(1), &[float(&[5, 4, 3]), ints(&[0, 2])]).unwrap(), "5x2x3");
        assert_eq!(shape("Gather", 13, axis(-1), &[float(&[5, 4, 3]), int(0)]).unwrap(), "5x4");
        let table = In::Typed(Type::tensor(DType::Int64, Shape::from([2, 7])));
        assert_eq!(shape("Gather", 13, axis(0), &[float(&[100, 16]), table]).unwrap(), "2x7x16");
        assert!(shape("Gather", 13, axis(3), &[float(&[5, 4, 3]), int(0)]).is_err());
    }

    #[test]
    fn sizes_are_picked_out() {
        assert_eq!(folded("Gather", axis(0), &[ints(&[5, 6, 7]), int(-1)]).unwrap(), [7]);
        assert_eq!(folded("Gather", axis(0), &[ints(&[5, 6, 7]), ints(&[2, 0])]).unwrap(), [7, 5]);
        assert!(run("Gather", 13, axis(0), &[ints(&[5]), int(1)], 1).is_err());
        let sizes = Value::vector(DType::Int64, [Num::Dim(Dim::symbol("batch")), Num::Int(3)]);
        let out = run("Gather", 13, axis(0), &[In::Value(sizes), int(0)], 1).unwrap();
        assert_eq!(out[0].1, Some(Value::scalar(DType::Int64, Num::Dim(Dim::symbol("batch")))));
    }

    #[test]
    fn one_index_is_a_view_and_many_keep_the_indices() {
        let select = calls("Gather", 13, axis(1), &[float(&[5, 4, 3]), int(-1)], 1);
        assert_eq!(select[0].outputs[0].place, Place::View(0, View::Slice { axis: 1, start: 3, step: 1 }));
        assert_eq!(select[1].outputs[0].shape[..], [5, 3]);
        let many = calls("Gather", 13, axis(1), &[float(&[5, 4, 3]), ints(&[0, 1])], 1);
        assert_eq!((many[0].function, &many[0].saved[..]), ("index_select", &[Saved::Input(1)][..]));
    }
}
