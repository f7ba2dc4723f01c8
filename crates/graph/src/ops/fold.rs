//! Arithmetic and rearrangement of folded values, shared by the operators that shape chains run through.

use crate::value::indices;
use crate::{DType, Num, Shape, Value};

/// `f` on each element; its result may be unknown.
pub(super) fn unary(value: &Value, dtype: DType, f: impl Fn(&Num) -> Num) -> Value {
    Value { dtype, shape: value.shape.clone(), data: value.data.iter().map(f).collect() }
}

/// `f` on each pair of broadcast elements; `None` where the shapes conflict or the result would be too large.
pub(super) fn binary(a: &Value, b: &Value, dtype: DType, f: impl Fn(&Num, &Num) -> Num) -> Option<Value> {
    let shape = a.dims().broadcast(&b.dims())?.known()?;
    let mut out = Value::unknown(dtype, &shape)?;
    for (slot, index) in out.data.iter_mut().zip(indices(&shape)) {
        *slot = f(&a.data[a.broadcast_index(&index)], &b.data[b.broadcast_index(&index)]);
    }
    Some(out)
}

/// The elements of `value` as a tensor of `shape`, which must have as many.
pub(super) fn reshaped(value: &Value, shape: &Shape) -> Option<Value> {
    let shape = shape.known()?;
    let count: u64 = shape.iter().product();
    (count == value.data.len() as u64).then(|| Value { dtype: value.dtype, shape, data: value.data.clone() })
}

/// A tensor of `shape` whose element at each index is the one of `value` at `source(index)`, unknown where there is
/// none; `None` where the result would be too large.
pub(super) fn pick(
    value: &Value,
    shape: &[u64],
    source: impl Fn(&[u64]) -> Option<Vec<u64>>,
) -> Option<Value> {
    let mut out = Value::unknown(value.dtype, shape)?;
    for (slot, index) in out.data.iter_mut().zip(indices(shape)) {
        if let Some(found) = source(&index).and_then(|at| element(value, &at)) {
            *slot = found.clone();
        }
    }
    Some(out)
}

/// The element at `index`, unless that is outside.
pub(super) fn element<'v>(value: &'v Value, index: &[u64]) -> Option<&'v Num> {
    let inside = index.len() == value.shape.len() && index.iter().zip(&value.shape).all(|(i, d)| i < d);
    inside.then(|| value.broadcast_index(index)).and_then(|flat| value.data.get(flat))
}

/// The same elements repeated as numpy's `broadcast_to` does.
pub(super) fn expanded(value: &Value, shape: &[u64]) -> Option<Value> {
    let fits =
        value.dims().broadcast(&Shape::from(shape)).is_some_and(|s| s.known().as_deref() == Some(shape));
    if !fits {
        return None;
    }
    let mut out = Value::unknown(value.dtype, shape)?;
    for (slot, index) in out.data.iter_mut().zip(indices(shape)) {
        *slot = value.data[value.broadcast_index(&index)].clone();
    }
    Some(out)
}

/// One element in another type; a size stays a size.
pub(super) fn cast(n: &Num, to: DType) -> Num {
    match n {
        Num::Int(0 | 1) if to == DType::Bool => n.clone(),
        Num::Int(_) if to == DType::Bool => Num::Int(1),
        Num::Float(x) if to == DType::Bool => Num::Int(i64::from(*x != 0.0)),
        // A size that is not a number yet may be zero.
        Num::Dim(_) if to == DType::Bool => Num::Unknown,
        Num::Float(x) if to.is_integer() => Num::Float(x.trunc()).as_i64().map_or(Num::Unknown, Num::Int),
        Num::Int(n) if to.is_float() => Num::Float(*n as f64),
        n => n.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_broadcast_and_conflicts_do_not_fold() {
        let v = |d: &[i64]| Value::vector(DType::Int64, d.iter().copied());
        let add = |a: &Num, b: &Num| Num::Int(a.as_i64().unwrap() + b.as_i64().unwrap());
        assert_eq!(binary(&v(&[1, 2]), &v(&[10]), DType::Int64, add).unwrap().ints().unwrap(), [11, 12]);
        assert!(binary(&v(&[1, 2]), &v(&[1, 2, 3]), DType::Int64, add).is_none());
        assert_eq!(unary(&v(&[1]), DType::Bool, |_| Num::Unknown).data, [Num::Unknown]);
        assert_eq!(expanded(&v(&[1, 2]), &[2, 2]).unwrap().ints().unwrap(), [1, 2, 1, 2]);
        assert!(expanded(&v(&[1, 2]), &[1]).is_none());
    }

    #[test]
    fn what_lies_outside_is_unknown() {
        let v = Value::vector(DType::Int64, [1_i64, 2]);
        let picked = pick(&v, &[3], |index| Some(index.to_vec())).unwrap();
        assert_eq!(picked.data, [Num::Int(1), Num::Int(2), Num::Unknown]);
    }

    #[test]
    fn casts_truncate_and_keep_sizes() {
        assert_eq!(cast(&Num::Float(-2.7), DType::Int64), Num::Int(-2));
        assert_eq!(cast(&Num::Float(0.5), DType::Bool), Num::Int(1));
        assert_eq!(cast(&Num::Int(3), DType::Float32), Num::Float(3.0));
        let batch = Num::Dim(crate::Dim::symbol("batch"));
        assert_eq!(cast(&batch, DType::Float32), batch);
    }
}
