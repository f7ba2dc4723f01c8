//! With a number, comparisons, masks and casts: element by element.

use super::super::super::program::{Prim, SlotType};
use super::super::autodiff::{Tape, Tracked};
use super::super::elementwise::keeping;
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
        Prim::AddScalar(_) => {
            let x = inputs.take()?;
            let y = device.unary(x.tensor);
            tape.unary(x.node, y, |_, grad| grad)
        }
        Prim::MulScalar(_) | Prim::DivScalar(_) => {
            let x = inputs.take()?;
            let y = device.unary(x.tensor);
            tape.unary(x.node, y, |d, grad| d.unary(grad))
        }
        Prim::PowScalar(_) => {
            let x = inputs.take()?;
            keeping(
                tape,
                x,
                |x| device.unary(x),
                |d, x, grad| {
                    let value = d.unary(x);
                    let value = d.unary(value);
                    d.binary(grad, value)
                },
            )
        }
        Prim::Compare(_) => {
            let (a, b) = (inputs.take()?, inputs.take()?);
            Tracked::constant(device.compare(a.tensor, b.tensor))
        }
        Prim::CompareScalar(..) | Prim::Not => {
            Tracked::constant(device.compare_scalar(inputs.take()?.tensor))
        }
        Prim::MaskWhere => {
            let (x, mask, value) = (inputs.take()?, inputs.take()?.tensor, inputs.take()?);
            let parents = [x.node, value.node];
            let (for_x, for_value) = (mask.clone(), mask.clone());
            let (x_shape, value_shape) = (x.tensor.shape.clone(), value.tensor.shape.clone());
            let y = device.mask_where(x.tensor, mask, value.tensor);
            tape.binary(
                parents,
                y,
                move |d, grad| {
                    let zeros = d.zeros(grad.kind, &x_shape);
                    let grad = d.mask_where(grad, for_x, zeros);
                    d.unbroadcast(grad, &x_shape)
                },
                move |d, grad| {
                    let zeros = d.zeros(grad.kind, &value_shape);
                    let grad = d.mask_where(zeros, for_value, grad);
                    d.unbroadcast(grad, &value_shape)
                },
            )
        }
        Prim::MaskFill(_) => {
            let (x, mask) = (inputs.take()?, inputs.take()?.tensor);
            let kept = mask.clone();
            let y = device.mask_fill(x.tensor, mask);
            tape.unary(x.node, y, move |d, grad| d.mask_fill(grad, kept))
        }
        Prim::Convert => {
            let x = inputs.take()?;
            let (from, node) = (x.tensor.kind, x.node);
            let y = device.cast(x.tensor, out.kind);
            tape.unary(node, y, move |d, grad| d.cast(grad, from))
        }
        _ => return None,
    })
}
