//! Products under autodiff (burn-autodiff 0.21, `float_matmul` and `linear`).

use super::autodiff::{Tape, Tracked};
use super::memory::{Device, Tensor};

pub(super) fn product(tape: &mut Tape, device: &Device, a: Tracked, b: Tracked) -> Tracked {
    let parents = [a.node, b.node];
    let (left, right) = (a.tensor.shape.clone(), b.tensor.shape.clone());
    let kept_a = tape.keep_if(b.is_tracked(), &a);
    let kept_b = tape.keep_if(a.is_tracked(), &b);
    let y = device.matmul(a.tensor, b.tensor);
    let transposed = |d: &Device, t: Tensor| {
        let rank = t.rank();
        d.swap(t, rank - 2, rank - 1)
    };
    tape.binary(
        parents,
        y,
        move |d, grad| {
            let Some(b) = kept_b.take() else { return grad };
            let b = transposed(d, b);
            let grad = d.matmul(grad, b);
            d.unbroadcast(grad, &left)
        },
        move |d, grad| {
            let Some(a) = kept_a.take() else { return grad };
            let a = transposed(d, a);
            let grad = d.matmul(a, grad);
            d.unbroadcast(grad, &right)
        },
    )
}

/// `ModuleOps::linear` and its three backward functions.
pub(super) fn linear(
    tape: &mut Tape,
    device: &Device,
    x: Tracked,
    weight: Tracked,
    bias: Option<Tracked>,
) -> Tracked {
    let parents = [x.node, weight.node, bias.as_ref().and_then(|b| b.node)];
    let kept_x = tape.keep_if(weight.is_tracked(), &x);
    let kept_weight = tape.keep_if(x.is_tracked(), &weight);
    let rank = x.tensor.rank();
    let lift = move |d: &Device, t: Tensor| {
        let mut shape = vec![1; rank.saturating_sub(t.rank())];
        shape.extend(&t.shape);
        d.reshape(t, &shape)
    };
    let w = lift(device, weight.tensor);
    let mut y = device.matmul(x.tensor, w);
    if let Some(bias) = bias {
        let bias = lift(device, bias.tensor);
        y = device.binary(y, bias);
    }
    tape.node(&parents, y, move |d, grads, grad| {
        if let (Some(node), Some(weight)) = (parents[0], kept_weight.take()) {
            let weight = d.swap(weight, 0, 1);
            let weight = lift(d, weight);
            let made = d.matmul(grad.clone(), weight);
            grads.register(d, node, made);
        }
        if let (Some(node), Some(x)) = (parents[1], kept_x.take()) {
            let x = d.swap(x, rank - 2, rank - 1);
            let mut made = d.matmul(x, grad.clone());
            for axis in 0..rank - 2 {
                made = d.reduce(made, axis);
            }
            let shape = made.shape[rank - 2..].to_vec();
            let made = d.reshape(made, &shape);
            grads.register(d, node, made);
        }
        if let Some(node) = parents[2] {
            let mut grad = grad;
            for axis in 0..rank - 1 {
                grad = d.reduce(grad, axis);
            }
            let last = grad.shape[rank - 1];
            let made = d.reshape(grad, &[last]);
            grads.register(d, node, made);
        }
    })
}
