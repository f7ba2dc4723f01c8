//! Views, pieces and joins.

use super::super::super::program::{Prim, Range, SlotType};
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
        Prim::Reshape => {
            let x = inputs.take()?;
            let from = x.tensor.shape.clone();
            let y = device.reshape(x.tensor, &out.shape);
            tape.unary(x.node, y, move |d, grad| d.reshape(grad, &from))
        }
        Prim::Permute(axes) => {
            let x = inputs.take()?;
            let mut inverse = vec![0; axes.len()];
            for (i, axis) in axes.iter().enumerate() {
                inverse[*axis] = i;
            }
            let y = device.permute(x.tensor, axes);
            tape.unary(x.node, y, move |d, grad| d.permute(grad, &inverse))
        }
        Prim::Expand => {
            let x = inputs.take()?;
            let from = x.tensor.shape.clone();
            let y = device.expand(x.tensor, &out.shape);
            tape.unary(x.node, y, move |d, grad| {
                let mut wide = vec![1; grad.rank() - from.len()];
                wide.extend(&from);
                let grad = d.unbroadcast(grad, &wide);
                d.reshape(grad, &from)
            })
        }
        Prim::Slice(ranges) => {
            let x = inputs.take()?;
            let from = x.tensor.shape.clone();
            let y = device.slice(x.tensor, ranges);
            tape.unary(x.node, y, move |d, grad| d.put_back(grad, &from))
        }
        Prim::Cat(axis) => {
            let parts: Vec<Tracked> = inputs.0.by_ref().collect();
            let nodes: Vec<Option<usize>> = parts.iter().map(|p| p.node).collect();
            let shapes: Vec<Vec<usize>> = parts.iter().map(|p| p.tensor.shape.clone()).collect();
            let y = device.make(out.kind, &out.shape, "cat");
            parts.into_iter().for_each(drop);
            let axis = *axis;
            tape.node(&nodes.clone(), y, move |d, grads, grad| {
                let mut from = 0;
                for (node, shape) in nodes.iter().zip(&shapes) {
                    let mut ranges: Vec<_> =
                        grad.shape.iter().map(|n| Range { start: 0, end: *n, step: 1 }).collect();
                    (ranges[axis].start, ranges[axis].end) = (from, from + shape[axis]);
                    from += shape[axis];
                    if let Some(node) = node {
                        let part = d.slice(grad.clone(), &ranges);
                        grads.register(d, *node, part);
                    }
                }
            })
        }
        _ => return None,
    })
}
