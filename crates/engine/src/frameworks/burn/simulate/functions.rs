//! One function of Burn under autodiff: what it allocates, keeps, and makes of its gradient (burn-autodiff 0.21,
//! `ops/{tensor,activation,module,maxmin}.rs`). The closures hold what `checkpoint` and `State` hold there.

use super::super::program::{Kind, Prim, Range, SlotType};
use super::autodiff::{Tape, Tracked};
use super::elementwise::{self, binary, keeping, unary};
use super::memory::{Device, Tensor};
use super::products::{linear, product};

/// The inputs of one call, in order.
struct Inputs(std::vec::IntoIter<Tracked>);

impl Inputs {
    fn take(&mut self) -> Option<Tracked> {
        self.0.next()
    }
}

/// Runs one call. None where an input is missing, which the program's writer rules out.
pub(super) fn call(
    tape: &mut Tape,
    device: &Device,
    prim: &Prim,
    inputs: Vec<Tracked>,
    out: &SlotType,
) -> Option<Tracked> {
    tape.begin(prim, &inputs, out);
    let mut inputs = Inputs(inputs.into_iter());
    let shape = out.shape.clone();
    Some(match prim {
        Prim::Unary(function) => unary(tape, device, *function, inputs.take()?),
        Prim::Binary(function) => {
            let (a, b) = (inputs.take()?, inputs.take()?);
            binary(tape, device, *function, a, b)
        }
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
        Prim::MatMul => {
            let (a, b) = (inputs.take()?, inputs.take()?);
            product(tape, device, a, b)
        }
        Prim::Linear => {
            let (x, weight) = (inputs.take()?, inputs.take()?);
            linear(tape, device, x, weight, inputs.take())
        }
        Prim::Conv { window, groups } => {
            let (x, weight, bias) = (inputs.take()?, inputs.take()?, inputs.take());
            let (kept_x, kept_weight) = (tape.keep(&x), tape.keep(&weight));
            let kept_bias = bias.as_ref().map(|b| tape.keep(b));
            let parents = [x.node, weight.node, bias.as_ref().and_then(|b| b.node)];
            let y = device.conv(x.tensor, weight.tensor, window);
            drop(bias);
            let (window, groups) = (window.clone(), *groups);
            tape.node(&parents, y, move |d, grads, grad| {
                let (Some(x), Some(weight)) = (kept_x.take(), kept_weight.take()) else { return };
                let (x_shape, w_shape) = (x.shape.clone(), weight.shape.clone());
                if let Some(node) = parents[0] {
                    let made = d.conv_data(grad.clone(), weight.clone(), &x_shape);
                    grads.register(d, node, made);
                }
                if let Some(node) = parents[1] {
                    let made = d.conv_weight(x.clone(), grad.clone(), &w_shape, &window, groups);
                    grads.register(d, node, made);
                }
                if let Some(node) = parents[2] {
                    let made = d.conv_bias(grad);
                    grads.register(d, node, made);
                }
                drop((x, weight, kept_bias));
            })
        }
        Prim::ConvTranspose { window, .. } => {
            let (x, weight, bias) = (inputs.take()?, inputs.take()?, inputs.take());
            let (kept_x, kept_weight) = (tape.keep(&x), tape.keep(&weight));
            let kept_bias = bias.as_ref().map(|b| tape.keep(b));
            let parents = [x.node, weight.node, bias.as_ref().and_then(|b| b.node)];
            drop((x.tensor, weight.tensor, bias));
            let y = device.make(out.kind, &shape, "convolution");
            let window = window.clone();
            tape.node(&parents, y, move |d, grads, grad| {
                let (Some(x), Some(weight)) = (kept_x.take(), kept_weight.take()) else { return };
                let (x_shape, w_shape) = (x.shape.clone(), weight.shape.clone());
                if let Some(node) = parents[0] {
                    let mut made = d.conv(grad.clone(), weight.clone(), &window);
                    if made.shape != x_shape {
                        made = d.slice_to(made, &x_shape);
                    }
                    grads.register(d, node, made);
                }
                if let Some(node) = parents[1] {
                    let made = d.transposed_weight(x.clone(), grad.clone(), &w_shape, &window);
                    grads.register(d, node, made);
                }
                if let Some(node) = parents[2] {
                    let made = d.conv_bias(grad);
                    grads.register(d, node, made);
                }
                drop((x, weight, kept_bias));
            })
        }
        Prim::MaxPool2d(_) => {
            let x = inputs.take()?;
            let kept = tape.keep_if(x.is_tracked(), &x);
            let (y, indices) = device.pool(x.tensor, &shape[2..], x.node.is_some());
            tape.unary(x.node, y, move |d, grad| match kept.take() {
                Some(x) => d.pool_backward(x, grad, indices, true),
                None => grad,
            })
        }
        Prim::AvgPool2d(..) | Prim::AdaptiveAvgPool2d(_) | Prim::Interpolate { .. } => {
            let x = inputs.take()?;
            let copies = matches!(prim, Prim::AdaptiveAvgPool2d(_));
            let kept = tape.keep(&x);
            // All but the adaptive one are given a copy of the handle.
            let held = (x.is_tracked() && !copies).then(|| x.tensor.clone());
            let (y, _) = device.pool(x.tensor, &shape[2..], false);
            drop(held);
            tape.unary(x.node, y, move |d, grad| match kept.take() {
                Some(x) => d.pool_backward(x, grad, None, copies),
                None => grad,
            })
        }
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
            let indices = device.make(Kind::Int, &shape, "indices");
            let y = device.make(out.kind, &shape, "reduction");
            drop(x.tensor);
            tape.unary(x.node, y, move |d, grad| {
                let zeros = d.zeros(grad.kind, &full);
                let y = d.assign(zeros, grad);
                drop(indices);
                y
            })
        }
        Prim::ArgMax(_) | Prim::ArgMin(_) => {
            let x = inputs.take()?.tensor;
            let y = device.make(Kind::Int, &shape, "indices");
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
        Prim::Reshape => {
            let x = inputs.take()?;
            let from = x.tensor.shape.clone();
            let y = device.reshape(x.tensor, &shape);
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
            let y = device.expand(x.tensor, &shape);
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
            tape.unary(x.node, y, move |d, grad| {
                let zeros = d.zeros(grad.kind, &from);
                d.assign(zeros, grad)
            })
        }
        Prim::Cat(axis) => {
            let parts: Vec<Tracked> = inputs.0.by_ref().collect();
            let nodes: Vec<Option<usize>> = parts.iter().map(|p| p.node).collect();
            let shapes: Vec<Vec<usize>> = parts.iter().map(|p| p.tensor.shape.clone()).collect();
            let y = device.make(out.kind, &shape, "cat");
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
        Prim::Select(_) | Prim::Gather(_) => {
            let (x, by) = (inputs.take()?, inputs.take()?.tensor);
            let from = x.tensor.shape.clone();
            let y = device.make(out.kind, &shape, "gather");
            drop(x.tensor);
            tape.unary(x.node, y, move |d, grad| {
                let zeros = d.zeros(grad.kind, &from);
                let y = d.assign(zeros, grad);
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
            Tracked::constant(device.make(Kind::Int, &shape, "indices"))
        }
        Prim::Embedding => {
            let (weight, by) = (inputs.take()?, inputs.take()?.tensor);
            let kept = weight.tensor.clone();
            let y = device.make(out.kind, &shape, "gather");
            drop(weight.tensor);
            tape.unary(weight.node, y, move |d, grad| {
                let rows = grad.elements() / kept.shape[1].max(1);
                let grad = d.reshape(grad, &[rows, kept.shape[1]]);
                let zeros = d.zeros(grad.kind, &kept.shape);
                let y = d.assign(zeros, grad);
                drop((by, kept));
                y
            })
        }
        Prim::Convert => {
            let x = inputs.take()?;
            let (from, node) = (x.tensor.kind, x.node);
            let y = device.cast(x.tensor, out.kind);
            tape.unary(node, y, move |d, grad| d.cast(grad, from))
        }
        Prim::Detach => Tracked::constant(inputs.take()?.tensor),
        Prim::Bernoulli(_) | Prim::Uniform => Tracked::constant(device.make(out.kind, &shape, "random")),
        Prim::Full(_) => Tracked::constant(device.make(out.kind, &shape, "fill")),
    })
}

/// Makes the output of a memory-bound function again. None for another function.
pub(super) fn recompute(device: &Device, prim: &Prim, inputs: Vec<Tensor>, out: &SlotType) -> Option<Tensor> {
    let mut inputs = inputs.into_iter();
    let x = inputs.next()?;
    Some(match prim {
        Prim::Unary(function) => elementwise::forward(device, *function, x),
        Prim::Binary(_) => device.binary(x, inputs.next()?),
        Prim::AddScalar(_) | Prim::MulScalar(_) | Prim::DivScalar(_) | Prim::PowScalar(_) => device.unary(x),
        Prim::Reshape => device.reshape(x, &out.shape),
        Prim::Permute(axes) => device.permute(x, axes),
        Prim::Expand => device.expand(x, &out.shape),
        Prim::Slice(ranges) => device.slice(x, ranges),
        Prim::Select(_) => {
            let y = device.make(out.kind, &out.shape, "gather");
            drop(x);
            y
        }
        Prim::SelectAdd(_) => device.assign(x, inputs.next()?),
        _ => return None,
    })
}
