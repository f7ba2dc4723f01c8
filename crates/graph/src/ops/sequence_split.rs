//! SplitToSequence, ConcatFromSequence. ONNX 11; SplitToSequence 24.

use super::sequence;
use crate::{Build, DType, Dim, Infer, Num, Op, OpError, OpSpec, Shape, Type};
use std::sync::Arc;

/// Cuts one axis into a sequence: into parts of one size, or of given sizes.
#[derive(Clone, Copy, Debug)]
pub struct SplitToSequence {
    /// Counted from the back when negative.
    pub axis: i64,
    /// Whether parts of one element keep the axis; only where input 1 is absent.
    pub keep_dims: bool,
}

/// Joins the items of a sequence along an axis of theirs, or a new one.
#[derive(Clone, Copy, Debug)]
pub struct ConcatFromSequence {
    /// Counted from the back when negative.
    pub axis: i64,
    /// Whether it is a new axis.
    pub new_axis: bool,
}

/// How the two are found.
pub const SPECS: &[OpSpec] = &[
    spec("ConcatFromSequence", &[11], |a, _| {
        let axis = a.int("axis")?.ok_or_else(|| OpError::missing_attribute("axis"))?;
        Ok(Arc::new(ConcatFromSequence { axis, new_axis: a.flag("new_axis")? }))
    }),
    spec("SplitToSequence", &[11, 24], |a, _| {
        let axis = a.int("axis")?.unwrap_or(0);
        Ok(Arc::new(SplitToSequence { axis, keep_dims: a.int("keepdims")?.unwrap_or(1) != 0 }))
    }),
];

const fn spec(name: &'static str, since: &'static [i64], build: Build) -> OpSpec {
    OpSpec { domain: "", name, since, build }
}

/// A sequence with more items than this keeps only what they share.
const MAX_ITEMS: u64 = 4096;

impl SplitToSequence {
    /// The size of each part; `None` where not even their number is known.
    fn lengths(cx: &Infer<'_>, size: &Dim) -> Result<Option<Vec<Dim>>, OpError> {
        if !cx.has(1) {
            let count = size.known().filter(|n| *n <= MAX_ITEMS);
            return Ok(count.map(|n| (0..n).map(|_| Dim::Known(1)).collect()));
        }
        let Some(split) = cx.value(1) else { return Ok(None) };
        if let Some(n) = split.data.iter().filter_map(Num::as_i64).find(|n| *n < 0) {
            return Err(OpError::input(1, "sizes that are not negative", n));
        }
        if split.shape.is_empty() {
            let part = split.single().and_then(Num::as_dim);
            return Ok(match (size, part) {
                (_, Some(Dim::Known(0))) => return Err(OpError::input(1, "a positive size", 0)),
                (Dim::Known(n), Some(Dim::Known(part))) if n.div_ceil(part) <= MAX_ITEMS => {
                    let rest = |k: u64| Dim::Known((n - k * part).min(part));
                    Some((0..n.div_ceil(part)).map(rest).collect())
                }
                // A symbolic size cut by itself is one part: `tensor.split(batch)`.
                (size, Some(part)) if *size == part => Some(vec![part]),
                _ => None,
            });
        }
        let part = |(j, n): (usize, &Num)| {
            n.as_dim().unwrap_or_else(|| cx.fresh_dim(&format!("part{j}"), size.upper()))
        };
        let parts: Vec<Dim> = split.data.iter().enumerate().map(part).collect();
        let total = parts.iter().try_fold(0_u64, |acc, d| acc.checked_add(d.known()?));
        match (total, size.known()) {
            (Some(total), Some(size)) if total != size => {
                Err(OpError::input(1, format!("parts that add up to {size}"), total))
            }
            _ => Ok(Some(parts)),
        }
    }
}

impl Op for SplitToSequence {
    fn name(&self) -> &str {
        "SplitToSequence"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let Some(x) = cx.shape(0) else {
            let element = Box::new(Type::Tensor(crate::TensorType { dtype: cx.dtype(0), shape: None }));
            cx.set_type(0, Type::Sequence { element, items: None });
            return Ok(());
        };
        let axis = x.axis(self.axis).ok_or_else(|| {
            OpError::input(0, format!("a rank that has axis {}", self.axis), format!("shape {x}"))
        })?;
        let of_size = |dim: Dim| {
            let mut shape = x.clone();
            if self.keep_dims || cx.has(1) {
                shape.dims_mut()[axis] = dim;
            } else {
                shape.remove(axis);
            }
            Type::tensor(cx.dtype(0), shape)
        };
        let ty = match SplitToSequence::lengths(cx, &x[axis])? {
            Some(lengths) if !lengths.is_empty() => {
                Type::sequence(lengths.into_iter().map(of_size).collect())
            }
            lengths => {
                let unknown = if cx.has(1) { cx.fresh_dim("part", x[axis].upper()) } else { Dim::Known(1) };
                Type::Sequence { element: Box::new(of_size(unknown)), items: lengths.map(|_| Vec::new()) }
            }
        };
        cx.set_type(0, ty);
        Ok(())
    }
}

impl ConcatFromSequence {
    fn joined(&self, items: &[Type]) -> Result<Option<Shape>, OpError> {
        let mut joined: Option<(usize, Shape)> = None;
        for item in items {
            let Some(shape) = item.shape() else { return Ok(None) };
            let mut shape = shape.clone();
            let rank = shape.rank() + usize::from(self.new_axis);
            let axis = crate::shape::normalize_axis(self.axis, rank)
                .ok_or_else(|| OpError::mismatch(format!("items that have axis {}", self.axis), &shape))?;
            if self.new_axis {
                shape.insert(axis, 1);
            }
            let Some((_, so_far)) = &mut joined else {
                joined = Some((axis, shape));
                continue;
            };
            if so_far.rank() != shape.rank() {
                return Err(OpError::mismatch(format!("items of rank {}", so_far.rank()), &shape));
            }
            let total = so_far[axis].add(&shape[axis]).ok_or_else(|| OpError::overflow("the joined size"))?;
            shape.dims_mut()[axis] = total.clone();
            so_far.dims_mut()[axis] = total;
            *so_far = so_far
                .broadcast(&shape)
                .ok_or_else(|| OpError::mismatch(format!("items that fit {so_far}"), &shape))?;
        }
        Ok(joined.map(|(_, shape)| shape))
    }
}

impl Op for ConcatFromSequence {
    fn name(&self) -> &str {
        "ConcatFromSequence"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let (element, items) = sequence::input(cx, 0)?;
        let dtype = element.dtype().unwrap_or(DType::Undefined);
        let shape = match items {
            Some(items) => self.joined(items)?,
            None => self.joined(std::slice::from_ref(&element))?.map(|mut shape| {
                if let Some(axis) = shape.axis(self.axis) {
                    shape.dims_mut()[axis] = cx.fresh_dim("joined", None);
                }
                shape
            }),
        };
        cx.set(0, dtype, shape);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, int, ints, run, shape};
    use crate::{Attribute, Attributes, DType, Shape, Type};

    fn attributes(axis: i64, name: &str, n: i64) -> Attributes {
        Attributes::from([("axis", Attribute::Int(axis)), (name, Attribute::Int(n))])
    }

    fn parts(a: Attributes, inputs: &[In]) -> Vec<String> {
        let Type::Sequence { items, .. } = run("SplitToSequence", 11, a, inputs, 1).unwrap().remove(0).0
        else {
            panic!("not a sequence")
        };
        items.unwrap().iter().map(|ty| ty.shape().unwrap().to_string()).collect()
    }

    #[test]
    fn parts_are_equal_or_given() {
        let keep = || attributes(1, "keepdims", 1);
        assert_eq!(parts(keep(), &[float(&[2, 5]), int(2)]), ["2x2", "2x2", "2x1"]);
        assert_eq!(parts(keep(), &[float(&[2, 5]), ints(&[1, 4])]), ["2x1", "2x4"]);
        assert_eq!(parts(keep(), &[float(&[2, 2])]), ["2x1", "2x1"]);
        assert_eq!(parts(attributes(1, "keepdims", 0), &[float(&[2, 2])]), ["2", "2"]);
        assert!(run("SplitToSequence", 11, keep(), &[float(&[2, 5]), ints(&[1, 3])], 1).is_err());
        assert!(run("SplitToSequence", 11, keep(), &[float(&[2, 5]), int(0)], 1).is_err());
    }

    #[test]
    fn items_are_joined_or_stacked() {
        let item = |dims: &[u64]| Type::tensor(DType::Float32, Shape::from(dims));
        let list = |dims: &[&[u64]]| In::Typed(Type::sequence(dims.iter().map(|d| item(d)).collect()));
        let concat =
            |axis, new, list| shape("ConcatFromSequence", 11, attributes(axis, "new_axis", new), &[list]);
        assert_eq!(concat(-1, 0, list(&[&[2, 3], &[2, 4]])).unwrap(), "2x7");
        assert_eq!(concat(-1, 1, list(&[&[2, 3], &[2, 3]])).unwrap(), "2x3x2");
        assert!(concat(0, 0, list(&[&[2, 3], &[2, 4]])).is_err());
        assert!(concat(2, 0, list(&[&[2, 3]])).is_err());
        let open = Type::Sequence { element: Box::new(item(&[2, 3])), items: None };
        assert_eq!(concat(0, 0, In::Typed(open)).unwrap(), "y0.joinedx3");
    }
}
