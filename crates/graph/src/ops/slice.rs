//! Slice. ONNX 1 (attributes), 10, 11, 13 (inputs, steps).
//!
//! Autograd keeps nothing: each sliced axis is a view, whose gradient is a new zero tensor of the input's shape
//! (derivatives.yaml: `slice_backward`). An axis that stays whole is no call at all (TensorIndexing.h, `applySlice`). There
//! are no negative steps in ATen: they come from `flip`, which copies.

use super::{fold, rebatch};
use crate::kernels::TfLowering;
use crate::value::listed;
use crate::{
    Call, Dim, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Shape, Value, View,
};
use std::sync::Arc;

/// A range with a step along some axes. The vectors are those of opset 1; later ones have inputs.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// First index of each range.
    pub starts: Option<Vec<i64>>,
    /// The index after the last of each range.
    pub ends: Option<Vec<i64>>,
    /// The axis of each range; the first ones where absent.
    pub axes: Option<Vec<i64>>,
}

/// How Slice is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Slice",
    since: &[1, 10, 11, 13],
    build: |a, _| {
        Ok(Arc::new(Slice { starts: a.ints("starts")?, ends: a.ints("ends")?, axes: a.ints("axes")? }))
    },
}];

/// One range of one axis.
#[derive(Clone, Debug, PartialEq)]
struct Range {
    axis: usize,
    start: Num,
    end: Num,
    step: Num,
}

/// Where a range begins or ends on an axis whose size is not a number.
enum Bound {
    /// So many from the front.
    Front(u64),
    /// So many from the back.
    Back(u64),
    /// At this size.
    At(Dim),
}

impl Bound {
    /// A number of at least this is "to the end" by convention (INT32_MAX, INT64_MAX).
    const FAR: i64 = i32::MAX as i64;

    fn new(n: &Num, size: &Dim) -> Option<Bound> {
        Some(match n.as_i64() {
            Some(n) if n >= Bound::FAR => Bound::Back(0),
            Some(n) if n <= -Bound::FAR => Bound::Front(0),
            Some(n) if n < 0 => Bound::Back(n.unsigned_abs()),
            Some(n) => Bound::Front(n.unsigned_abs()),
            None => match n.as_dim()? {
                dim if dim == *size => Bound::Back(0),
                dim => Bound::At(dim),
            },
        })
    }
}

impl Range {
    /// How many elements the range has; `None` where that is not known.
    fn length(&self, size: &Dim) -> Option<Dim> {
        let step = self.step.as_i64()?;
        if let (Some(n), Some(_), Some(_)) = (size.known(), self.start.as_i64(), self.end.as_i64()) {
            return self.indices(n).map(|(_, count)| Dim::Known(count));
        }
        let (from, to) = (Bound::new(&self.start, size)?, Bound::new(&self.end, size)?);
        if step < 0 {
            // The whole axis backwards: from the last element to before the first.
            let whole =
                matches!(from, Bound::Back(0 | 1)) && self.end.as_i64().is_some_and(|n| n <= -Bound::FAR);
            return whole.then(|| stepped(size, step.unsigned_abs()))?;
        }
        stepped(&Range::span(size, from, to)?, step.unsigned_abs())
    }

    /// The elements between two bounds. A bound at a size lies inside: slicing a table of 512 rows to `seq` gives `seq`.
    fn span(size: &Dim, from: Bound, to: Bound) -> Option<Dim> {
        let back = |n: u64| i64::try_from(n).ok()?.checked_neg();
        // An axis that is named after a symbol of the model has at least one element.
        let has_one = size.upper().is_none();
        match (from, to) {
            (Bound::Front(0), Bound::Back(0)) => Some(size.clone()),
            (Bound::Front(a), Bound::Back(b)) => Some(size.offset(back(a.checked_add(b)?)?)),
            (Bound::Front(a), Bound::Front(b)) if b <= a => Some(Dim::Known(0)),
            (Bound::Front(0), Bound::Front(1)) | (Bound::Back(1), Bound::Back(0)) if has_one => {
                Some(Dim::Known(1))
            }
            (Bound::Back(a), Bound::Back(b)) if a <= b => Some(Dim::Known(0)),
            (Bound::Front(0), Bound::At(to)) => Some(to),
            (Bound::Front(a), Bound::At(to)) => Some(to.offset(back(a)?)),
            (Bound::At(from), Bound::At(to)) => to.sub(&from),
            (Bound::At(from), Bound::Back(b)) => Some(size.sub(&from)?.offset(back(b)?)),
            _ => None,
        }
    }

    /// At most how many elements, where the range itself is not known.
    fn upper(&self, size: &Dim) -> Option<u64> {
        let span = match (self.start.as_i64(), self.end.as_i64()) {
            (Some(a), Some(b)) if (a < 0) == (b < 0) && b >= a => b.checked_sub(a).map(i64::unsigned_abs),
            _ => None,
        };
        size.upper().into_iter().chain(span).min()
    }

    /// The first index and the count on an axis of `size` elements, clamped as ONNX says: a backward range begins inside.
    fn indices(&self, size: u64) -> Option<(u64, u64)> {
        let (size, step) = (i128::from(size), i128::from(self.step.as_i64()?));
        let clamp = |n: &Num, lowest: i128, highest: i128| {
            let n = i128::from(n.as_i64()?);
            Some(if n < 0 { n + size } else { n }.min(highest).max(lowest))
        };
        let (span, start, step) = if step > 0 {
            let start = clamp(&self.start, 0, size)?;
            (clamp(&self.end, 0, size)? - start, start, step)
        } else {
            let start = clamp(&self.start, 0, size - 1)?;
            (start - clamp(&self.end, -1, size - 1)?, start, -step)
        };
        let count = if span <= 0 || size == 0 { 0 } else { (span + step - 1).checked_div(step)? };
        Some((u64::try_from(start).ok()?, u64::try_from(count).ok()?))
    }
}

/// `ceil(span / step)`.
fn stepped(span: &Dim, step: u64) -> Option<Dim> {
    if step == 1 {
        return Some(span.clone());
    }
    span.offset(i64::try_from(step.checked_sub(1)?).ok()?).div_floor(&Dim::Known(step))
}

impl Slice {
    /// The ranges, from attributes or inputs; `None` where not even the axes are known.
    fn ranges(
        &self,
        rank: usize,
        value: &dyn Fn(usize) -> Option<Vec<Num>>,
        count: Option<usize>,
        has: &dyn Fn(usize) -> bool,
    ) -> Result<Option<Vec<Range>>, OpError> {
        let attribute = |a: &Option<Vec<i64>>| a.as_ref().map(|a| a.iter().copied().map(Num::Int).collect());
        let starts: Option<Vec<Num>> = attribute(&self.starts).or_else(|| value(1));
        let ends: Option<Vec<Num>> = attribute(&self.ends).or_else(|| value(2));
        let axes: Option<Vec<Num>> = attribute(&self.axes).or_else(|| value(3));
        let steps: Option<Vec<Num>> = if has(4) { value(4) } else { None };
        let Some(count) =
            [&starts, &ends, &axes, &steps].into_iter().flatten().map(Vec::len).next().or(count)
        else {
            return Ok(None);
        };
        if axes.is_none() && has(3) {
            return Ok(None);
        }
        let at = |v: &Option<Vec<Num>>, k: usize, absent: Num| match v {
            Some(v) => v
                .get(k)
                .cloned()
                .ok_or_else(|| OpError::mismatch(format!("{count} starts, ends, axes and steps"), listed(v))),
            None => Ok(absent),
        };
        let mut ranges = Vec::with_capacity(count);
        for k in 0..count {
            let axis = at(&axes, k, Num::Int(i64::try_from(k).unwrap_or(i64::MAX)))?;
            let Some(axis) = axis.as_i64() else { return Ok(None) };
            let axis = crate::shape::normalize_axis(axis, rank)
                .ok_or_else(|| OpError::mismatch(format!("axes of {rank}"), axis))?;
            let (start, end) = (at(&starts, k, Num::Unknown)?, at(&ends, k, Num::Unknown)?);
            let step = at(&steps, k, if has(4) { Num::Unknown } else { Num::Int(1) })?;
            if step.as_i64() == Some(0) {
                return Err(OpError::input(4, "steps that are not zero", 0));
            }
            ranges.push(Range { axis, start, end, step });
        }
        Ok(Some(ranges))
    }

    fn fold(value: &Value, shape: &[u64], ranges: &[Range]) -> Option<Value> {
        let mut walk: Vec<(u64, i64)> = vec![(0, 1); value.shape.len()];
        for range in ranges {
            let size = *value.shape.get(range.axis)?;
            *walk.get_mut(range.axis)? = (range.indices(size)?.0, range.step.as_i64()?);
        }
        fold::pick(value, shape, |index| {
            let at = index.iter().zip(&walk);
            at.map(|(i, (start, step))| start.checked_add_signed(step.checked_mul(i64::try_from(*i).ok()?)?))
                .collect()
        })
    }
}

impl Op for Slice {
    fn name(&self) -> &str {
        "Slice"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        if self.starts.is_none() || self.ends.is_none() {
            cx.require(1)?;
            cx.require(2)?;
        }
        let Some(x) = cx.shape(0) else {
            cx.set(0, cx.dtype(0), None);
            return Ok(());
        };
        let count = (1..5).filter_map(|i| usize::try_from(cx.shape(i)?.dims().first()?.known()?).ok()).next();
        let count = count.filter(|n| *n <= x.rank());
        let ranges =
            self.ranges(x.rank(), &|i| cx.value(i).map(|v| v.data.clone()), count, &|i| cx.has(i))?;
        let Some(ranges) = ranges else {
            let unknown = |k| cx.fresh_dim(&format!("dim{k}"), x[k].upper());
            cx.set(0, cx.dtype(0), Some((0..x.rank()).map(unknown).collect()));
            return Ok(());
        };
        let mut shape: Shape = x.clone();
        for range in &ranges {
            let size = &x[range.axis];
            // An axis that was left whole in the file as exported stays whole when the batch on it is replaced.
            let whole = cx.before(0, 0).is_some_and(|(old_in, old_out)| {
                let (old_in, old_out) = (old_in.dims().get(range.axis), old_out.dims().get(range.axis));
                old_in == old_out && old_in != Some(size)
            });
            if let Some(length) = rebatch::cut(cx, size, &range.start, &range.end, &range.step)? {
                shape.dims_mut()[range.axis] = length;
            } else if !whole {
                let unknown = || cx.fresh_dim(&format!("dim{}", range.axis), range.upper(size));
                shape.dims_mut()[range.axis] = range.length(size).unwrap_or_else(unknown);
            }
        }
        let folded = cx.value(0).zip(shape.known()).and_then(|(v, shape)| Slice::fold(v, &shape, &ranges));
        cx.set(0, cx.dtype(0), Some(shape));
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, shape) = (l.raw(0), l.out_shape(0));
        let y = l.moved("StridedSlice", x, shape);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (x, out) = (l.shape(0), l.out_shape(0));
        let has = |i: usize| l.state(i).is_some();
        let value = |i: usize| l.value(i).map(|v| v.data.clone());
        let ranges = self.ranges(x.len(), &value, None, &has).ok().flatten().unwrap_or_default();
        if ranges.iter().any(|r| r.step.as_i64().is_some_and(|n| n < 0)) {
            let flip = Call::new("flip").input(Operand::Input(0), Grad::New);
            return l.finish(flip.output(out, OutDtype::Like(0), Place::New));
        }
        let mut shape = x.to_vec();
        let mut last = Operand::Input(0);
        for axis in (0..x.len()).filter(|k| out.get(*k).is_some_and(|n| *n != x[*k])) {
            let range = ranges.iter().find(|r| r.axis == axis);
            let start = range.and_then(|r| r.indices(x[axis])).map_or(0, |(start, _)| start);
            let step = range.and_then(|r| u64::try_from(r.step.as_i64()?).ok()).unwrap_or(1);
            shape[axis] = out[axis];
            let call = Call::new("slice").input(last, Grad::Unview);
            let view = View::Slice { axis, start, step };
            last = l.call(call.output(&shape, OutDtype::Like(0), Place::View(0, view)));
        }
        match last {
            Operand::Input(_) => l.finish(super::identity::alias(l)),
            last => l.bind(0, last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, calls, float, folded, ints, rebatched, run, shape, symbolic};
    use super::*;
    use crate::{Attribute, Attributes, DType};

    fn slice(x: In, start: i64, end: i64, axis: i64, step: i64) -> Result<String, String> {
        let inputs = [x, ints(&[start]), ints(&[end]), ints(&[axis]), ints(&[step])];
        shape("Slice", 13, Attributes::default(), &inputs)
    }

    #[test]
    fn numbers_are_clamped_as_in_numpy() {
        let of = |start, end, step| slice(float(&[10]), start, end, 0, step).unwrap();
        assert_eq!(of(0, i64::MAX, 1), "10");
        assert_eq!(of(-3, 100, 2), "2");
        assert_eq!(of(5, 3, 1), "0");
        assert_eq!(of(20, -100, -1), "10");
        assert_eq!(of(-1, i64::MIN, -3), "4");
        assert_eq!(of(9, -1, -1), "0");
        assert_eq!(of(i64::MIN, i64::MIN, -1), "1");
        assert_eq!(slice(float(&[0]), 0, 5, 0, 1).unwrap(), "0");
        assert_eq!(slice(float(&[0]), -1, i64::MIN, 0, -1).unwrap(), "0");
        assert!(slice(float(&[10]), 0, 1, 0, 0).is_err());
        assert!(slice(float(&[10]), 0, 1, 1, 1).is_err());
        let old = [("starts", Attribute::Ints(vec![0, 1])), ("ends", Attribute::Ints(vec![1, 1000]))];
        assert_eq!(shape("Slice", 1, Attributes::from(old), &[float(&[3, 4])]).unwrap(), "1x3");
    }

    #[test]
    fn symbols_are_followed() {
        let of = |start, end, step| slice(symbolic(&["seq", "4"]), start, end, 0, step).unwrap();
        assert_eq!(of(0, i64::from(i32::MAX), 1), "seqx4");
        assert_eq!(of(0, -1, 1), "(seq - 1)x4");
        assert_eq!(of(1, i64::MAX, 1), "(seq - 1)x4");
        assert_eq!(of(0, i64::MAX, 2), "floor((seq + 1)/2)x4");
        assert_eq!(of(-1, i64::MAX, 1), "1x4");
        assert_eq!(of(0, 1, 1), "1x4");
        assert_eq!(of(-1, i64::MIN, -1), "seqx4");
        let to_seq = In::Value(Value::vector(DType::Int64, [Num::Dim(Dim::symbol("seq"))]));
        let inputs = [float(&[512, 64]), ints(&[0]), to_seq.clone(), ints(&[0])];
        assert_eq!(shape("Slice", 13, Attributes::default(), &inputs).unwrap(), "seqx64");
        let inputs = [symbolic(&["seq", "4"]), ints(&[0]), to_seq, ints(&[0])];
        assert_eq!(shape("Slice", 13, Attributes::default(), &inputs).unwrap(), "seqx4");
    }

    #[test]
    fn what_is_not_known_has_a_bound() {
        let unknown = In::Typed(crate::Type::tensor(DType::Int64, Shape::from([1])));
        let inputs = [float(&[512, 64]), ints(&[0]), unknown, ints(&[1])];
        let out = run("Slice", 13, Attributes::default(), &inputs, 1).unwrap();
        assert_eq!(out[0].0.shape().unwrap().upper(), Some(vec![512, 64]));
    }

    #[test]
    fn elements_are_sliced() {
        let of = |start, end, step| {
            let inputs = [ints(&[5, 6, 7, 8]), ints(&[start]), ints(&[end]), ints(&[0]), ints(&[step])];
            folded("Slice", Attributes::default(), &inputs).unwrap()
        };
        assert_eq!(of(1, 3, 1), [6, 7]);
        assert_eq!(of(-1, i64::MIN, -2), [8, 6]);
    }

    #[test]
    fn a_whole_batch_stays_whole() {
        let inputs = |end| [float(&[2, 5]), ints(&[0]), ints(&[end]), ints(&[0])];
        assert_eq!(rebatched("Slice", Attributes::default(), &inputs(2), 8).unwrap(), "8x5");
        assert_eq!(rebatched("Slice", Attributes::default(), &inputs(1), 8).unwrap(), "1x5");
    }

    #[test]
    fn each_sliced_axis_is_a_view() {
        let inputs = [float(&[6, 5, 4]), ints(&[0, 1]), ints(&[6, -1]), ints(&[0, 1])];
        let calls = calls("Slice", 13, Attributes::default(), &inputs, 1);
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].outputs[0].place, Place::View(0, View::Slice { axis: 1, start: 1, step: 1 }));
    }
}
