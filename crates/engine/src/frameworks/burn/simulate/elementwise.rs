//! Elementwise functions under autodiff (burn-autodiff 0.21, `ops/{tensor,activation}.rs`): which inputs a step keeps, and what it makes
//! of them.

use super::super::program::{Binary, Kind, Unary};
use super::autodiff::{Tape, Tracked};
use super::memory::{Device, Tensor};

/// A function whose step reads its input again.
pub(super) fn keeping(
    tape: &mut Tape,
    device: &Device,
    x: Tracked,
    backward: impl FnOnce(&Device, Tensor, Tensor) -> Tensor + 'static,
) -> Tracked {
    let kept = x.is_tracked().then(|| x.tensor.clone());
    let y = device.unary(x.tensor);
    tape.unary(x.node, y, move |d, grad| match kept {
        Some(kept) => backward(d, kept, grad),
        None => grad,
    })
}

/// Gradient times a value that is made from the input in `steps` functions.
fn scaled(d: &Device, x: Tensor, grad: Tensor, steps: usize) -> Tensor {
    let value = (0..steps).fold(x, |value, _| d.unary(value));
    d.binary(grad, value)
}

pub(super) fn unary(tape: &mut Tape, device: &Device, function: Unary, x: Tracked) -> Tracked {
    match function {
        Unary::Neg => {
            let y = device.unary(x.tensor);
            tape.unary(x.node, y, |d, grad| d.unary(grad))
        }
        Unary::Ceil | Unary::Floor | Unary::Round => {
            let shape = x.tensor.shape.clone();
            let y = device.unary(x.tensor);
            tape.unary(x.node, y, move |d, grad| {
                let kind = grad.kind;
                drop(grad);
                d.zeros(kind, &shape)
            })
        }
        Unary::Sign => {
            let y = device.unary(x.tensor);
            tape.unary(x.node, y, |d, grad| d.unary(grad))
        }
        Unary::Relu => {
            let kept = x.is_tracked().then(|| x.tensor.clone());
            let mask = device.compare_scalar(x.tensor.clone());
            let y = device.mask_fill(x.tensor, mask);
            tape.unary(x.node, y, move |d, grad| {
                let Some(kept) = kept else { return grad };
                let mask = d.compare_scalar(kept);
                d.mask_fill(grad, mask)
            })
        }
        Unary::Gelu => gelu(tape, device, x),
        Unary::Sigmoid => sigmoid(tape, device, x),
        Unary::LogSigmoid => log_sigmoid(tape, device, x),
        Unary::Tanh => keeping(tape, device, x, |d, x, grad| {
            let y = d.unary(x);
            let square = d.binary(y.clone(), y);
            let value = d.unary(square);
            d.binary(grad, value)
        }),
        Unary::Erf => keeping(tape, device, x, |d, x, grad| {
            let square = d.binary(x.clone(), x);
            scaled(d, square, grad, 1)
        }),
        Unary::Recip => keeping(tape, device, x, |d, x, grad| {
            let square = d.binary(x.clone(), x);
            scaled(d, square, grad, 2)
        }),
        Unary::Abs | Unary::Cos | Unary::Exp | Unary::Log | Unary::Log1p | Unary::Sin | Unary::Sqrt => {
            keeping(tape, device, x, |d, x, grad| scaled(d, x, grad, 1))
        }
    }
}

fn sigmoid(tape: &mut Tape, device: &Device, x: Tracked) -> Tracked {
    // `ActivationOps::sigmoid` casts to float32 and back.
    let forward = |d: &Device, x: Tensor| {
        let kind = x.kind;
        let y = d.cast(x, Kind::FLOAT);
        let y = d.unary(y);
        d.cast(y, kind)
    };
    let kept = x.is_tracked().then(|| x.tensor.clone());
    let y = forward(device, x.tensor);
    tape.unary(x.node, y, move |d, grad| {
        let Some(kept) = kept else { return grad };
        let y = forward(d, kept);
        let rest = d.unary(y.clone());
        let value = d.binary(y, rest);
        d.binary(value, grad)
    })
}

/// Forward: `x/√2, erf, +1, ·x, /2`. Backward: the polynomial of `gelu_backward`.
fn gelu(tape: &mut Tape, device: &Device, x: Tracked) -> Tracked {
    let kept = x.is_tracked().then(|| x.tensor.clone());
    let inner = device.unary(x.tensor.clone());
    let y = device.binary(x.tensor, inner);
    tape.unary(x.node, y, move |d, grad| {
        let Some(x) = kept else { return grad };
        // powi(3) is a product of a square and the input, or one function: a tensor either way.
        let cube = d.make(x.kind, &x.shape, "elementwise");
        let c1 = d.unary(cube.clone());
        let c2 = d.unary(x.clone());
        let c3 = d.unary(cube);
        let c4 = d.unary(x);
        let inner1 = d.binary(c1, c2);
        let inner2 = d.binary(c3, c4);
        let tanh = d.unary(inner1);
        let sech = d.binary(tanh.clone(), tanh.clone());
        let y1 = d.unary(tanh);
        let y2 = d.binary(inner2, sech);
        let y = d.binary(y1, y2);
        d.binary(y, grad)
    })
}

fn log_sigmoid(tape: &mut Tape, device: &Device, x: Tracked) -> Tracked {
    let kept = x.tensor.clone();
    let neg = device.unary(x.tensor);
    let mask = device.compare_scalar(neg.clone());
    let max = device.mask_fill(neg.clone(), mask);
    let max_neg = device.unary(max.clone());
    let first = device.unary(max_neg.clone());
    let second = device.binary(neg, max);
    let z = device.binary(first, second);
    let y = device.binary(max_neg, z);
    tape.unary(x.node, y, move |d, grad| {
        let neg = d.unary(kept);
        let mask = d.compare_scalar(neg.clone());
        let max = d.mask_fill(neg.clone(), mask.clone());
        let first = d.unary(max.clone());
        let second = d.binary(neg, max);
        let z = d.binary(first, second);
        let ones = d.zeros(z.kind, &z.shape);
        let derived = d.mask_fill(ones.clone(), mask.clone());
        let sign = d.mask_fill(ones.clone(), mask);
        let z = d.unary(z);
        let rest = d.binary(ones, z);
        let product = d.binary(sign, rest);
        let value = d.binary(derived, product);
        d.binary(grad, value)
    })
}

pub(super) fn binary(tape: &mut Tape, device: &Device, function: Binary, a: Tracked, b: Tracked) -> Tracked {
    let parents = [a.node, b.node];
    let (left, right) = (a.tensor.shape.clone(), b.tensor.shape.clone());
    let (keeps_a, keeps_b) = match function {
        Binary::Add | Binary::Sub => (false, false),
        Binary::Mul => (b.is_tracked(), a.is_tracked()),
        Binary::Div => (b.is_tracked(), a.is_tracked() || b.is_tracked()),
        Binary::Pow => (true, true),
    };
    let kept_a = keeps_a.then(|| a.tensor.clone());
    let kept_b = keeps_b.then(|| b.tensor.clone());
    let y = device.binary(a.tensor, b.tensor);
    match function {
        Binary::Add => tape.binary(
            parents,
            y,
            move |d, grad| d.unbroadcast(grad, &left),
            move |d, grad| d.unbroadcast(grad, &right),
        ),
        Binary::Sub => tape.binary(
            parents,
            y,
            move |d, grad| d.unbroadcast(grad, &left),
            move |d, grad| {
                let grad = d.unary(grad);
                d.unbroadcast(grad, &right)
            },
        ),
        Binary::Mul => tape.binary(
            parents,
            y,
            move |d, grad| {
                let grad = times(d, grad, kept_b);
                d.unbroadcast(grad, &left)
            },
            move |d, grad| {
                let grad = times(d, grad, kept_a);
                d.unbroadcast(grad, &right)
            },
        ),
        Binary::Div => {
            // `duplicate`: a handle for each parent that needs it.
            let for_left = parents[0].and_then(|_| kept_b.clone());
            let for_right = parents[1].and(kept_b);
            tape.binary(
                parents,
                y,
                move |d, grad| {
                    let value = for_left.map(|b| d.unary(b));
                    let grad = times(d, grad, value);
                    d.unbroadcast(grad, &left)
                },
                move |d, grad| {
                    let value = kept_a.zip(for_right).map(|(a, b)| {
                        let a = d.unary(a);
                        let square = d.binary(b.clone(), b);
                        d.binary(a, square)
                    });
                    let grad = times(d, grad, value);
                    d.unbroadcast(grad, &right)
                },
            )
        }
        Binary::Pow => {
            let (a2, b2) = (kept_a.clone(), kept_b.clone());
            tape.binary(
                parents,
                y,
                move |d, grad| {
                    let value = kept_a.zip(kept_b).map(|(a, b)| {
                        let less = d.unary(b.clone());
                        let power = d.binary(a, less);
                        d.binary(power, b)
                    });
                    let grad = times(d, grad, value);
                    d.unbroadcast(grad, &left)
                },
                move |d, grad| {
                    let value = a2.zip(b2).map(|(a, b)| {
                        let power = d.binary(a.clone(), b);
                        let log = d.unary(a);
                        d.binary(power, log)
                    });
                    let grad = times(d, grad, value);
                    d.unbroadcast(grad, &right)
                },
            )
        }
    }
}

fn times(d: &Device, grad: Tensor, value: Option<Tensor>) -> Tensor {
    match value {
        Some(value) => d.binary(grad, value),
        None => grad,
    }
}
