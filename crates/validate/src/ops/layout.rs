//! Views, pieces and joins, and picking by index.

use super::{Inputs, Output, Value};
use burn_backend::{Backend, Slice};
use memfit_engine::frameworks::burn::{Kind, Prim};

/// The same function of each kind.
macro_rules! each_kind {
    ($value:expr, $t:ident => $float:expr, $int:expr, $bool:expr) => {
        match $value {
            Value::Float($t) => Value::Float($float),
            Value::Int($t) => Value::Int($int),
            Value::Bool($t) => Value::Bool($bool),
        }
    };
}

pub(super) fn call<B: Backend>(
    prim: &Prim,
    inputs: &mut Inputs<B>,
    out: &Output<'_, B>,
) -> Result<Value<B>, String> {
    let first = inputs.next()?;
    Ok(match prim {
        Prim::Reshape => each_kind!(first, t => B::float_reshape(t, out.shape()),
            B::int_reshape(t, out.shape()), B::bool_reshape(t, out.shape())),
        Prim::Expand => each_kind!(first, t => B::float_expand(t, out.shape()),
            B::int_expand(t, out.shape()), B::bool_expand(t, out.shape())),
        Prim::Permute(axes) => each_kind!(first, t => B::float_permute(t, axes),
            B::int_permute(t, axes), B::bool_permute(t, axes)),
        Prim::Slice(ranges) => {
            let slice = |r: &memfit_engine::frameworks::burn::Range| {
                Slice::new(r.start as isize, Some(r.end as isize), r.step)
            };
            let ranges: Vec<Slice> = ranges.iter().map(slice).collect();
            each_kind!(first, t => B::float_slice(t, &ranges), B::int_slice(t, &ranges),
                B::bool_slice(t, &ranges))
        }
        Prim::Cat(axis) => {
            let all: Vec<Value<B>> = std::iter::once(first).chain(inputs.0.by_ref()).collect();
            match out.kind {
                Kind::Float(_) => {
                    let all = all.into_iter().map(Value::float).collect::<Result<_, _>>()?;
                    Value::Float(B::float_cat(all, *axis))
                }
                Kind::Int => {
                    let all = all.into_iter().map(Value::int).collect::<Result<_, _>>()?;
                    Value::Int(B::int_cat(all, *axis))
                }
                Kind::Bool => {
                    let all = all.into_iter().map(Value::bool).collect::<Result<_, _>>()?;
                    Value::Bool(B::bool_cat(all, *axis))
                }
            }
        }
        Prim::Select(axis) => {
            let by = inputs.next()?.int()?;
            each_kind!(first, t => B::float_select(t, *axis, by), B::int_select(t, *axis, by),
                B::bool_select(t, *axis, by))
        }
        Prim::Gather(axis) => {
            let by = inputs.next()?.int()?;
            each_kind!(first, t => B::float_gather(*axis, t, by), B::int_gather(*axis, t, by),
                B::bool_gather(*axis, t, by))
        }
        Prim::SelectAdd(axis) => {
            let (values, by) = (inputs.next()?, inputs.next()?.int()?);
            match (first, values) {
                (Value::Float(t), Value::Float(new)) => Value::Float(B::float_select_add(t, *axis, by, new)),
                (Value::Int(t), Value::Int(new)) => Value::Int(B::int_select_add(t, *axis, by, new)),
                _ => return Err("expected numbers of one kind".into()),
            }
        }
        Prim::ScatterAdd(axis) => {
            let (values, by) = (inputs.next()?, inputs.next()?.int()?);
            match (first, values) {
                (Value::Float(t), Value::Float(new)) => Value::Float(B::float_scatter_add(*axis, t, by, new)),
                (Value::Int(t), Value::Int(new)) => Value::Int(B::int_scatter_add(*axis, t, by, new)),
                _ => return Err("expected numbers of one kind".into()),
            }
        }
        Prim::Embedding => Value::Float(B::embedding(first.float()?, inputs.next()?.int()?)),
        Prim::Detach => Value::Float(B::float_detach(first.float()?)),
        other => return Err(format!("{other:?} is of another family")),
    })
}
