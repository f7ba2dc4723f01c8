//! Products and convolutions.

use super::{Inputs, Value};
use burn_backend::Backend;
use burn_backend::ops::{ConvOptions, ConvTransposeOptions};
use memfit_engine::frameworks::burn::{Prim, Window};

pub(super) fn array<const N: usize>(list: &[usize]) -> Result<[usize; N], String> {
    list.try_into().map_err(|_| format!("expected {N} spatial axes, found {}", list.len()))
}

fn options<const N: usize>(w: &Window, groups: usize) -> Result<ConvOptions<N>, String> {
    Ok(ConvOptions::new(array(&w.stride)?, array(&w.padding)?, array(&w.dilation)?, groups))
}

fn transposed<const N: usize>(
    w: &Window,
    out: &[usize],
    groups: usize,
) -> Result<ConvTransposeOptions<N>, String> {
    let (stride, padding, dilation) = (array(&w.stride)?, array(&w.padding)?, array(&w.dilation)?);
    Ok(ConvTransposeOptions::new(stride, padding, array(out)?, dilation, groups))
}

pub(super) fn call<B: Backend>(prim: &Prim, inputs: &mut Inputs<B>) -> Result<Value<B>, String> {
    let (x, w) = (inputs.float()?, inputs.float()?);
    let bias = inputs.0.next().map(Value::float).transpose()?;
    Ok(Value::Float(match prim {
        Prim::MatMul => B::float_matmul(x, w),
        Prim::Linear => B::linear(x, w, bias),
        Prim::Conv { window, groups } => match window.kernel.len() {
            1 => B::conv1d(x, w, bias, options(window, *groups)?),
            2 => B::conv2d(x, w, bias, options(window, *groups)?),
            _ => B::conv3d(x, w, bias, options(window, *groups)?),
        },
        Prim::ConvTranspose { window, padding_out, groups } => match window.kernel.len() {
            1 => B::conv_transpose1d(x, w, bias, transposed(window, padding_out, *groups)?),
            2 => B::conv_transpose2d(x, w, bias, transposed(window, padding_out, *groups)?),
            _ => B::conv_transpose3d(x, w, bias, transposed(window, padding_out, *groups)?),
        },
        other => return Err(format!("{other:?} is of another family")),
    }))
}
