//! Reductions, and the order of elements.

use super::{Inputs, Value};
use burn_backend::tensor::Device;
use burn_backend::{Backend, get_device_settings};
use memfit_engine::frameworks::burn::Prim;

pub(super) fn call<B: Backend>(
    prim: &Prim,
    inputs: &mut Inputs<B>,
    device: &Device<B>,
) -> Result<Value<B>, String> {
    let x = match inputs.next()? {
        Value::Int(t) => {
            return Ok(Value::Int(match prim {
                Prim::Sum => B::int_sum(t),
                Prim::SumDim(axis) => B::int_sum_dim(t, *axis),
                Prim::MaxDim(axis) => B::int_max_dim(t, *axis),
                Prim::MinDim(axis) => B::int_min_dim(t, *axis),
                Prim::ArgMax(axis) => B::int_argmax(t, *axis),
                Prim::ArgMin(axis) => B::int_argmin(t, *axis),
                Prim::CumSum(axis) => B::int_cumsum(t, *axis),
                other => return Err(format!("{other:?} takes floats")),
            }));
        }
        value => value.float()?,
    };
    let places = get_device_settings::<B>(device).int_dtype;
    let x = match prim {
        Prim::ArgMax(axis) => return Ok(Value::Int(B::float_argmax(x, *axis, places))),
        Prim::ArgMin(axis) => return Ok(Value::Int(B::float_argmin(x, *axis, places))),
        Prim::ArgSort { axis, descending } => {
            return Ok(Value::Int(B::float_argsort(x, *axis, *descending, places)));
        }
        _ => x,
    };
    Ok(Value::Float(match prim {
        Prim::Sum => B::float_sum(x),
        Prim::Mean => B::float_mean(x),
        Prim::SumDim(axis) => B::float_sum_dim(x, *axis),
        Prim::MeanDim(axis) => B::float_mean_dim(x, *axis),
        Prim::MaxDim(axis) => B::float_max_dim(x, *axis),
        Prim::MinDim(axis) => B::float_min_dim(x, *axis),
        Prim::CumSum(axis) => B::float_cumsum(x, *axis),
        other => return Err(format!("{other:?} is of another family")),
    }))
}
