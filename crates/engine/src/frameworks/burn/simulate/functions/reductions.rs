//! Sums, means and extremes, over all elements or along one axis.

use super::super::super::program::{Kind, Prim, SlotType};
use super::super::autodiff::{Tape, Tracked};
use super::super::memory::Device;
use super::Inputs;

/// Runs one call. None where an input is missing or the function is of another family.
pub(super) fn call(
    tape: &mut Tape,
    device: &Device,
    prim: &Prim,
    inputs: &mut Inputs,
    out: &SlotType,
) -> Option<Tracked> {
    Some(match prim {
        Prim::Sum | Prim::Mean => {
            let x = inputs.take()?;
            let (full, is_mean) = (x.tensor.shape.clone(), *prim == Prim::Mean);
            let y = device.reduce_all(x.tensor);
            tape.unary(x.node, y, move |d, grad| {
                let ones = d.zeros(grad.kind, &full);
                let value = if is_mean { d.unary(ones) } else { ones };
                let grad = d.reshape(grad, &vec![1; full.len()]);
                d.binary(value, grad)
            })
        }
        Prim::SumDim(axis) | Prim::MeanDim(axis) => {
            let x = inputs.take()?;
            let (full, axis, is_mean) = (x.tensor.shape.clone(), *axis, matches!(prim, Prim::MeanDim(_)));
            let y = device.reduce(x.tensor, axis);
            tape.unary(x.node, y, move |d, grad| {
                let ones = d.zeros(grad.kind, &full);
                let value = if is_mean { d.unary(ones) } else { ones };
                let grad = d.reduce(grad, axis);
                d.binary(value, grad)
            })
        }
        Prim::MaxDim(axis) | Prim::MinDim(axis) => {
            let x = inputs.take()?;
            let full = x.tensor.shape.clone();
            if !x.is_tracked() {
                let y = device.reduce(x.tensor, *axis);
                return Some(tape.unary(None, y, |_, grad| grad));
            }
            let indices = device.make(Kind::Int, &out.shape, "indices");
            let y = device.make(out.kind, &out.shape, "reduction");
            drop(x.tensor);
            tape.unary(x.node, y, move |d, grad| {
                let y = d.put_back(grad, &full);
                drop(indices);
                y
            })
        }
        Prim::ArgMax(_) | Prim::ArgMin(_) => {
            let x = inputs.take()?.tensor;
            let y = device.make(Kind::Int, &out.shape, "indices");
            drop(x);
            Tracked::constant(y)
        }
        Prim::CumSum(_) => {
            let x = inputs.take()?;
            let y = device.copy(&x.tensor);
            tape.unary(x.node, y, |d, grad| {
                let flipped = d.copy(&grad);
                let sum = d.copy(&flipped);
                d.copy(&sum)
            })
        }
        _ => return None,
    })
}
