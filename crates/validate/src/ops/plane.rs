//! Pooling and resizing of planes.

use super::product::array;
use super::{Inputs, Value};
use burn_backend::Backend;
use burn_backend::ops::{InterpolateMode, InterpolateOptions};
use memfit_engine::frameworks::burn::Prim;

pub(super) fn call<B: Backend>(prim: &Prim, inputs: &mut Inputs<B>) -> Result<Value<B>, String> {
    let x = inputs.float()?;
    Ok(Value::Float(match prim {
        Prim::MaxPool2d(w) => B::max_pool2d(
            x,
            array(&w.kernel)?,
            array(&w.stride)?,
            array(&w.padding)?,
            array(&w.dilation)?,
            w.ceil_mode,
        ),
        Prim::AvgPool2d(w, count_pad) => B::avg_pool2d(
            x,
            array(&w.kernel)?,
            array(&w.stride)?,
            array(&w.padding)?,
            *count_pad,
            w.ceil_mode,
        ),
        Prim::AdaptiveAvgPool2d(size) => B::adaptive_avg_pool2d(x, *size),
        Prim::Interpolate { size, bilinear, corners } => {
            let mode = if *bilinear { InterpolateMode::Bilinear } else { InterpolateMode::Nearest };
            B::interpolate(x, *size, InterpolateOptions::new(mode).with_align_corners(*corners))
        }
        other => return Err(format!("{other:?} is of another family")),
    }))
}
