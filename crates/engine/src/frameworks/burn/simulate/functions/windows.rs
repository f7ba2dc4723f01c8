//! Convolutions, pools and resizing.

use super::super::super::program::{Prim, SlotType};
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
            let y = device.make(out.kind, &out.shape, "convolution");
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
            let (y, indices) = device.pool(x.tensor, &out.shape[2..], x.node.is_some());
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
            let (y, _) = device.pool(x.tensor, &out.shape[2..], false);
            drop(held);
            tape.unary(x.node, y, move |d, grad| match kept.take() {
                Some(x) => d.pool_backward(x, grad, None, copies),
                None => grad,
            })
        }
        _ => return None,
    })
}
