//! Elementwise arithmetic on folded values, shared by the operators that shape chains run through.

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
    }
}
