//! Comparisons, choices and conversions.

use super::elementwise::whole;
use super::{Inputs, Output, Value, float};
use burn_backend::tensor::Device;
use burn_backend::{Backend, get_device_settings};
use memfit_engine::frameworks::burn::{Compare, Kind, Prim};

pub(super) fn call<B: Backend>(
    prim: &Prim,
    inputs: &mut Inputs<B>,
    out: &Output<'_, B>,
) -> Result<Value<B>, String> {
    let settings = get_device_settings::<B>(out.device);
    let dtype = settings.bool_dtype;
    let first = inputs.next()?;
    Ok(match prim {
        Prim::Compare(function) => Value::Bool(match (first, inputs.next()?) {
            (Value::Bool(a), Value::Bool(b)) => match function {
                Compare::Equal => B::bool_equal(a, b),
                Compare::And => B::bool_and(a, b),
                Compare::Or => B::bool_or(a, b),
                _ => return Err("truth values have no order".into()),
            },
            (Value::Int(a), Value::Int(b)) => match function {
                Compare::Equal => B::int_equal(a, b, dtype),
                Compare::Greater => B::int_greater(a, b, dtype),
                Compare::GreaterEqual => B::int_greater_equal(a, b, dtype),
                Compare::Lower => B::int_lower(a, b, dtype),
                Compare::LowerEqual => B::int_lower_equal(a, b, dtype),
                Compare::And | Compare::Or => return Err("expected truth values".into()),
            },
            (a, b) => {
                let (a, b) = (a.float()?, b.float()?);
                match function {
                    Compare::Equal => B::float_equal(a, b, dtype),
                    Compare::Greater => B::float_greater(a, b, dtype),
                    Compare::GreaterEqual => B::float_greater_equal(a, b, dtype),
                    Compare::Lower => B::float_lower(a, b, dtype),
                    Compare::LowerEqual => B::float_lower_equal(a, b, dtype),
                    Compare::And | Compare::Or => return Err("expected truth values".into()),
                }
            }
        }),
        Prim::CompareScalar(function, by) => Value::Bool(match first {
            Value::Int(a) => match function {
                Compare::Equal => B::int_equal_elem(a, whole(*by), dtype),
                Compare::Greater => B::int_greater_elem(a, whole(*by), dtype),
                Compare::GreaterEqual => B::int_greater_equal_elem(a, whole(*by), dtype),
                Compare::Lower => B::int_lower_elem(a, whole(*by), dtype),
                Compare::LowerEqual => B::int_lower_equal_elem(a, whole(*by), dtype),
                Compare::And | Compare::Or => return Err("expected truth values".into()),
            },
            Value::Bool(a) => B::bool_equal_elem(a, (*by != 0.0).into()),
            Value::Float(a) => match function {
                Compare::Equal => B::float_equal_elem(a, (*by).into(), dtype),
                Compare::Greater => B::float_greater_elem(a, (*by).into(), dtype),
                Compare::GreaterEqual => B::float_greater_equal_elem(a, (*by).into(), dtype),
                Compare::Lower => B::float_lower_elem(a, (*by).into(), dtype),
                Compare::LowerEqual => B::float_lower_equal_elem(a, (*by).into(), dtype),
                Compare::And | Compare::Or => return Err("expected truth values".into()),
            },
        }),
        Prim::Not => Value::Bool(B::bool_not(first.bool()?)),
        Prim::MaskWhere => {
            let mask = inputs.next()?.bool()?;
            match (first, inputs.next()?) {
                (Value::Int(t), Value::Int(v)) => Value::Int(B::int_mask_where(t, mask, v)),
                (Value::Bool(t), Value::Bool(v)) => Value::Bool(B::bool_mask_where(t, mask, v)),
                (t, v) => Value::Float(B::float_mask_where(t.float()?, mask, v.float()?)),
            }
        }
        Prim::MaskFill(by) => {
            let mask = inputs.next()?.bool()?;
            match first {
                Value::Int(t) => Value::Int(B::int_mask_fill(t, mask, whole(*by))),
                Value::Bool(t) => Value::Bool(B::bool_mask_fill(t, mask, (*by != 0.0).into())),
                Value::Float(t) => Value::Float(B::float_mask_fill(t, mask, (*by).into())),
            }
        }
        Prim::Convert => match (first, out.kind) {
            (Value::Float(t), Kind::Float(_)) => Value::Float(B::float_cast(t, float(out.kind)?)),
            (Value::Int(t), Kind::Float(_)) => Value::Float(B::int_into_float(t, float(out.kind)?)),
            (Value::Bool(t), Kind::Float(_)) => Value::Float(B::bool_into_float(t, float(out.kind)?)),
            (Value::Float(t), Kind::Int) => {
                Value::Int(B::float_into_int(whole_range::<B>(t, out.device), settings.int_dtype))
            }
            (Value::Bool(t), Kind::Int) => Value::Int(B::bool_into_int(t, settings.int_dtype)),
            (Value::Float(t), Kind::Bool) => Value::Bool(B::float_not_equal_elem(t, 0.0.into(), dtype)),
            (Value::Int(t), Kind::Bool) => Value::Bool(B::int_not_equal_elem(t, whole(0.0), dtype)),
            (same, _) => same,
        },
        other => return Err(format!("{other:?} is of another family")),
    })
}

/// Devices give the nearest integer for what is too large for one, and T5 makes such numbers; burn-ndarray panics.
fn whole_range<B: Backend>(t: B::FloatTensorPrimitive, device: &Device<B>) -> B::FloatTensorPrimitive {
    if !B::name(device).contains("ndarray") {
        return t;
    }
    let most = (1_i64 << 62) as f64;
    B::float_clamp(t, (-most).into(), most.into())
}
