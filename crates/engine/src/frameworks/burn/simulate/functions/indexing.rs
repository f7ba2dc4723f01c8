//! Picking, adding and sorting by index.

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
        Prim::Select(_) | Prim::Gather(_) => {
            let (x, by) = (inputs.take()?, inputs.take()?.tensor);
            let from = x.tensor.shape.clone();
            let y = device.make(out.kind, &out.shape, "gather");
            drop(x.tensor);
            tape.unary(x.node, y, move |d, grad| {
                let y = d.put_back(grad, &from);
                drop(by);
                y
            })
        }
        Prim::SelectAdd(_) | Prim::ScatterAdd(_) => {
            let (x, value, by) = (inputs.take()?, inputs.take()?, inputs.take()?.tensor);
            let parents = [x.node, value.node];
            let picked = value.tensor.shape.clone();
            let y = device.assign(x.tensor, value.tensor);
            tape.binary(
                parents,
                y,
                |_, grad| grad,
                move |d, grad| {
                    let y = d.make(grad.kind, &picked, "gather");
                    drop((grad, by));
                    y
                },
            )
        }
        // Elements are sorted on the host (`burn-backend`, `backend/ops/sort.rs`), which reads a contiguous tensor.
        Prim::ArgSort { .. } => {
            let x = inputs.take()?.tensor;
            if !x.is_contiguous() {
                drop(device.copy(&x));
            }
            drop(x);
            Tracked::constant(device.make(Kind::Int, &out.shape, "indices"))
        }
        Prim::Embedding => {
            let (weight, by) = (inputs.take()?, inputs.take()?.tensor);
            let kept = weight.tensor.clone();
            let y = device.make(out.kind, &out.shape, "gather");
            drop(weight.tensor);
            tape.unary(weight.node, y, move |d, grad| {
                let rows = grad.elements() / kept.shape[1].max(1);
                let grad = d.reshape(grad, &[rows, kept.shape[1]]);
                let y = d.put_back(grad, &kept.shape);
                drop((by, kept));
                y
            })
        }
        _ => return None,
    })
}
