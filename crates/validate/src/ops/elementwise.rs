//! Functions of single elements, numbers everywhere, random masks.

use super::{Inputs, Output, Value, float};
use burn_backend::{Backend, Distribution, get_device_settings};
use memfit_engine::frameworks::burn::{Binary, Kind, Prim, Unary};

pub(super) fn call<B: Backend>(
    prim: &Prim,
    inputs: &mut Inputs<B>,
    out: &Output<'_, B>,
) -> Result<Value<B>, String> {
    Ok(match prim {
        Prim::Unary(function) => match inputs.next()? {
            Value::Int(t) if *function == Unary::Neg => Value::Int(B::int_neg(t)),
            Value::Int(t) if *function == Unary::Abs => Value::Int(B::int_abs(t)),
            value => Value::Float(unary::<B>(*function, value.float()?)),
        },
        Prim::Binary(function) => match (inputs.next()?, inputs.next()?) {
            (Value::Int(a), Value::Int(b)) => Value::Int(match function {
                Binary::Add => B::int_add(a, b),
                Binary::Sub => B::int_sub(a, b),
                Binary::Mul => B::int_mul(a, b),
                Binary::Div => B::int_div(a, b),
                Binary::Pow => B::int_powi(a, b),
            }),
            (a, b) => {
                let (a, b) = (a.float()?, b.float()?);
                Value::Float(match function {
                    Binary::Add => B::float_add(a, b),
                    Binary::Sub => B::float_sub(a, b),
                    Binary::Mul => B::float_mul(a, b),
                    Binary::Div => B::float_div(a, b),
                    Binary::Pow => B::float_powf(a, b),
                })
            }
        },
        Prim::AddScalar(by) => match inputs.next()? {
            Value::Int(t) => Value::Int(B::int_add_scalar(t, whole(*by))),
            value => Value::Float(B::float_add_scalar(value.float()?, (*by).into())),
        },
        Prim::MulScalar(by) => match inputs.next()? {
            Value::Int(t) => Value::Int(B::int_mul_scalar(t, whole(*by))),
            value => Value::Float(B::float_mul_scalar(value.float()?, (*by).into())),
        },
        Prim::DivScalar(by) => match inputs.next()? {
            Value::Int(t) => Value::Int(B::int_div_scalar(t, whole(*by))),
            value => Value::Float(B::float_div_scalar(value.float()?, (*by).into())),
        },
        Prim::PowScalar(by) => Value::Float(B::float_powf_scalar_impl(inputs.float()?, (*by).into())),
        Prim::Bernoulli(_) | Prim::Uniform => {
            let distribution = match prim {
                Prim::Bernoulli(p) => Distribution::Bernoulli(*p),
                _ => Distribution::Default,
            };
            Value::Float(B::float_random(out.shape(), distribution, out.device, float(out.kind)?))
        }
        Prim::Full(by) => {
            let settings = get_device_settings::<B>(out.device);
            match out.kind {
                Kind::Float(_) => {
                    Value::Float(B::float_full(out.shape(), (*by).into(), out.device, float(out.kind)?))
                }
                Kind::Int => Value::Int(B::int_full(out.shape(), whole(*by), out.device, settings.int_dtype)),
                Kind::Bool if *by != 0.0 => {
                    Value::Bool(B::bool_ones(out.shape(), out.device, settings.bool_dtype))
                }
                Kind::Bool => Value::Bool(B::bool_zeros(out.shape(), out.device, settings.bool_dtype)),
            }
        }
        other => return Err(format!("{other:?} is of another family")),
    })
}

/// A number for integers.
pub(super) fn whole(by: f64) -> burn_backend::Scalar {
    (by as i64).into()
}

fn unary<B: Backend>(function: Unary, x: B::FloatTensorPrimitive) -> B::FloatTensorPrimitive {
    match function {
        Unary::Abs => B::float_abs(x),
        Unary::Ceil => B::float_ceil(x),
        Unary::Cos => B::float_cos(x),
        Unary::Erf => B::float_erf(x),
        Unary::Exp => B::float_exp(x),
        Unary::Floor => B::float_floor(x),
        Unary::Gelu => B::gelu(x),
        Unary::Log => B::float_log(x),
        Unary::Log1p => B::float_log1p(x),
        Unary::Neg => B::float_neg(x),
        Unary::Recip => B::float_recip(x),
        Unary::Relu => B::relu(x),
        Unary::Round => B::float_round(x),
        Unary::Sigmoid => B::sigmoid(x),
        Unary::LogSigmoid => B::log_sigmoid(x),
        Unary::Sign => B::float_sign(x),
        Unary::Sin => B::float_sin(x),
        Unary::Sqrt => B::float_sqrt(x),
        Unary::Tanh => B::float_tanh(x),
    }
}
