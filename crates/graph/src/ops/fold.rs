//! Arithmetic and rearrangement of folded values, shared by the operators that shape chains run through.

use crate::value::indices;
use crate::{DType, Dim, Num, Shape, Value};

/// `f` on each element; its result may be unknown.
pub(super) fn unary(value: &Value, dtype: DType, f: impl Fn(&Num) -> Num) -> Value {
    let data = value.data.iter().map(|n| held(f(n), dtype)).collect();
    Value { dtype, shape: value.shape.clone(), data }
}

/// A result as `dtype` holds it: rounded to float32 (`floor(size * scale)` depends on it), unknown where an integer is
/// out of range or a half would round.
pub(super) fn held(n: Num, dtype: DType) -> Num {
    match (n, dtype) {
        (Num::Float(x), DType::Float32) => Num::Float(f64::from(x as f32)),
        (Num::Float(x), DType::Float16) if !fits_half(x, 10, 65504.0) => Num::Unknown,
        (Num::Float(x), DType::Bfloat16) if !fits_half(x, 7, 3.0e38) => Num::Unknown,
        (Num::Int(n), _) if dtype.is_integer() && !fits_integer(n, dtype) => Num::Unknown,
        (n, _) => n,
    }
}

/// Whether `x` needs no more than `bits` bits behind the leading one, and is in the range of normal numbers.
fn fits_half(x: f64, bits: u32, largest: f64) -> bool {
    let mantissa = x.to_bits() & ((1 << 52) - 1);
    x == 0.0 || !x.is_finite() || (mantissa << (12 + bits) == 0 && (6.2e-5..=largest).contains(&x.abs()))
}

fn fits_integer(n: i64, dtype: DType) -> bool {
    let bits = dtype.bits();
    match dtype {
        DType::Bool => n == 0 || n == 1,
        DType::Int2 | DType::Int4 | DType::Int8 | DType::Int16 | DType::Int32 => {
            n >= -(1 << (bits - 1)) && n < 1 << (bits - 1)
        }
        DType::Int64 => true,
        DType::Uint64 => n >= 0,
        _ => n >= 0 && n < 1 << bits,
    }
}

/// `f` on each pair of broadcast elements; `None` where the shapes conflict or the result would be too large.
pub(super) fn binary(a: &Value, b: &Value, dtype: DType, f: impl Fn(&Num, &Num) -> Num) -> Option<Value> {
    let shape = a.dims().broadcast(&b.dims())?.known()?;
    let mut out = Value::unknown(dtype, &shape)?;
    for (slot, index) in out.data.iter_mut().zip(indices(&shape)) {
        *slot = held(f(&a.data[a.broadcast_index(&index)], &b.data[b.broadcast_index(&index)]), dtype);
    }
    Some(out)
}

/// The smaller of two elements, or the larger. With a symbolic size it is a new size of that name, which keeps its bound.
pub(super) fn extremum(a: &Num, b: &Num, smaller: bool) -> Num {
    match (a, b) {
        (a, b) if a == b => a.clone(),
        (Num::Int(a), Num::Int(b)) => Num::Int(if smaller { *a.min(b) } else { *a.max(b) }),
        (Num::Dim(_), _) | (_, Num::Dim(_)) => extremum_size(a, b, smaller).unwrap_or(Num::Unknown),
        _ => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) if a.is_nan() || b.is_nan() => Num::Float(f64::NAN),
            (Some(a), Some(b)) => Num::Float(if smaller { a.min(b) } else { a.max(b) }),
            _ => Num::Unknown,
        },
    }
}

fn extremum_size(a: &Num, b: &Num, smaller: bool) -> Option<Num> {
    if let (Num::Dim(_), Num::Int(n)) | (Num::Int(n), Num::Dim(_)) = (a, b)
        && *n <= 0
    {
        // No size is below zero.
        let size = if matches!(a, Num::Dim(_)) { a } else { b };
        return Some(if smaller { Num::Int(*n) } else { size.clone() });
    }
    let (a, b) = (a.as_dim()?, b.as_dim()?);
    let (name, upper) = match (smaller, a.upper(), b.upper()) {
        (true, Some(a), Some(b)) => ("min", Some(a.min(b))),
        (true, a, b) => ("min", a.or(b)),
        (false, a, b) => ("max", a.zip(b).map(|(a, b)| a.max(b))),
    };
    Some(Num::Dim(Dim::expression(&format!("{name}({a}, {b})"), upper)))
}

/// The elements of `value` as a tensor of `shape`, which must have as many.
pub(super) fn reshaped(value: &Value, shape: &Shape) -> Option<Value> {
    let shape = shape.known()?;
    let count = shape.iter().try_fold(1_u64, |acc, d| acc.checked_mul(*d))?;
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

/// Integers in the order of the elements, floats by their bits; `None` where an element is not known.
pub(super) fn keys(value: &Value) -> Option<Vec<i128>> {
    // The bits of a float, its sign apart, ascend with it; adding zero makes both zeros one.
    let of_float = |x: f64| {
        let bits = i128::from((x + 0.0).abs().to_bits());
        if (x + 0.0).is_sign_negative() { -bits } else { bits }
    };
    let key = |n: &Num| match n {
        Num::Int(n) if !value.dtype.is_float() => Some(i128::from(*n)),
        n => n.as_f64().map(of_float),
    };
    value.data.iter().map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_held_as_the_dtype_holds_them() {
        let ratio = 7.0 * f64::from(10.0_f32 / 7.0);
        assert_ne!(ratio, 10.0);
        assert_eq!(held(Num::Float(ratio), DType::Float32), Num::Float(10.0));
        assert_eq!(held(Num::Float(1.5), DType::Float16), Num::Float(1.5));
        assert_eq!(held(Num::Float(2049.0), DType::Float16), Num::Unknown);
        assert_eq!(held(Num::Int(-6), DType::Uint8), Num::Unknown);
        assert_eq!(held(Num::Int(-128), DType::Int8), Num::Int(-128));
        assert_eq!(held(Num::Int(128), DType::Int8), Num::Unknown);
    }

    #[test]
    fn the_smaller_of_two_sizes_is_bounded() {
        let (batch, int) = (Num::Dim(Dim::symbol("batch")), Num::Int);
        assert_eq!(extremum(&batch, &int(0), false), batch);
        assert_eq!(extremum(&int(8), &batch, true).as_dim().unwrap().upper(), Some(8));
        assert_eq!(extremum(&int(8), &batch, false).as_dim().unwrap().to_string(), "max(8, batch)");
        assert_eq!(extremum(&int(-1), &Num::Float(2.0), false), Num::Float(2.0));
        assert_eq!(extremum(&Num::Unknown, &int(1), true), Num::Unknown);
    }

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
    fn keys_have_the_order_of_numbers() {
        let keys = keys(&Value::vector(DType::Float32, [-2.0, -0.5, -0.0, 0.0, 1.5, f64::INFINITY])).unwrap();
        assert!(keys.is_sorted());
        assert_eq!(keys[2], keys[3]);
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
