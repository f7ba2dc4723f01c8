//! Elementwise functions under autodiff (burn-autodiff 0.21, `ops/{tensor,activation}.rs`): which inputs a step keeps, and what it makes
//! of them.

use super::super::program::{Binary, Kind, Unary};
use super::autodiff::{Tape, Tracked};
use super::memory::{Device, Tensor};

/// A function's output.
pub(super) fn forward(device: &Device, function: Unary, x: Tensor) -> Tensor {
    match function {
        Unary::Relu => {
            let mask = device.compare_scalar(x.clone());
            device.mask_fill(x, mask)
        }
        // `x/√2, erf, +1, ·x, /2`.
        Unary::Gelu => {
            let inner = device.unary(x.clone());
            device.binary(x, inner)
        }
        Unary::LogSigmoid => {
            let neg = device.unary(x);
            let mask = device.compare_scalar(neg.clone());
            let max = device.mask_fill(neg.clone(), mask);
            let max_neg = device.unary(max.clone());
            let first = device.unary(max_neg.clone());
            let second = device.binary(neg, max);
            let z = device.binary(first, second);
            device.binary(max_neg, z)
        }
        // `ActivationOps::sigmoid` casts to float32 and back.
        Unary::Sigmoid => {
            let kind = x.kind;
            let y = device.cast(x, Kind::FLOAT);
            let y = device.unary(y);
            device.cast(y, kind)
        }
        _ => device.unary(x),
    }
}

/// A function whose step reads its input again.
pub(super) fn keeping(
    tape: &mut Tape,
    x: Tracked,
    forward: impl FnOnce(Tensor) -> Tensor,
    backward: impl FnOnce(&Device, Tensor, Tensor) -> Tensor + 'static,
) -> Tracked {
    let kept = tape.keep_if(x.is_tracked(), &x);
    let y = forward(x.tensor);
    tape.unary(x.node, y, move |d, grad| match kept.take() {
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
    let make = |x| forward(device, function, x);
    match function {
        Unary::Neg | Unary::Sign => {
            let y = make(x.tensor);
            tape.unary(x.node, y, |d, grad| d.unary(grad))
        }
        Unary::Ceil | Unary::Floor | Unary::Round => {
            let shape = x.tensor.shape.clone();
            let y = make(x.tensor);
            tape.unary(x.node, y, move |d, grad| {
                let kind = grad.kind;
                drop(grad);
                d.zeros(kind, &shape)
            })
        }
        Unary::Relu => keeping(tape, x, make, |d, x, grad| {
            let mask = d.compare_scalar(x);
            d.mask_fill(grad, mask)
        }),
        // These two are given a copy of the handle.
        Unary::Gelu => keeping(tape, x, |x| make(x.clone()), gelu_backward),
        Unary::LogSigmoid => keeping(tape, x, |x| make(x.clone()), log_sigmoid_backward),
        Unary::Sigmoid => keeping(tape, x, make, |d, x, grad| {
            let y = forward(d, Unary::Sigmoid, x);
            let rest = d.unary(y.clone());
            let value = d.binary(y, rest);
            d.binary(value, grad)
        }),
        Unary::Tanh => keeping(tape, x, make, |d, x, grad| {
            let y = d.unary(x);
            let square = d.binary(y.clone(), y);
            let value = d.unary(square);
            d.binary(grad, value)
        }),
        Unary::Erf => keeping(tape, x, make, |d, x, grad| {
            let square = d.binary(x.clone(), x);
            scaled(d, square, grad, 1)
        }),
        Unary::Recip => keeping(tape, x, make, |d, x, grad| {
            let square = d.binary(x.clone(), x);
            scaled(d, square, grad, 2)
        }),
        Unary::Abs | Unary::Cos | Unary::Exp | Unary::Log | Unary::Log1p | Unary::Sin | Unary::Sqrt => {
            keeping(tape, x, make, |d, x, grad| scaled(d, x, grad, 1))
        }
    }
}

/// The polynomial of `gelu_backward`.
fn gelu_backward(d: &Device, x: Tensor, grad: Tensor) -> Tensor {
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
}

fn log_sigmoid_backward(d: &Device, x: Tensor, grad: Tensor) -> Tensor {
    let neg = d.unary(x);
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
}

pub(super) fn binary(tape: &mut Tape, device: &Device, function: Binary, a: Tracked, b: Tracked) -> Tracked {
    let parents = [a.node, b.node];
    let (left, right) = (a.tensor.shape.clone(), b.tensor.shape.clone());
    // Which gradient reads which operand; one that two read is held twice (`duplicate`).
    let [left_a, right_a, left_b, right_b] = match function {
        Binary::Add | Binary::Sub => [false; 4],
        Binary::Mul => [false, true, true, false],
        Binary::Div => [false, true, true, true],
        Binary::Pow => [true; 4],
    };
    let [for_left, for_right] = parents.map(|node| node.is_some());
    let (left_a, right_a) = (tape.keep_if(for_left && left_a, &a), tape.keep_if(for_right && right_a, &a));
    let (left_b, right_b) = (tape.keep_if(for_left && left_b, &b), tape.keep_if(for_right && right_b, &b));
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
                let grad = times(d, grad, left_b.take());
                d.unbroadcast(grad, &left)
            },
            move |d, grad| {
                let grad = times(d, grad, right_a.take());
                d.unbroadcast(grad, &right)
            },
        ),
        Binary::Div => tape.binary(
            parents,
            y,
            move |d, grad| {
                let value = left_b.take().map(|b| d.unary(b));
                let grad = times(d, grad, value);
                d.unbroadcast(grad, &left)
            },
            move |d, grad| {
                let value = right_a.take().zip(right_b.take()).map(|(a, b)| {
                    let a = d.unary(a);
                    let square = d.binary(b.clone(), b);
                    d.binary(a, square)
                });
                let grad = times(d, grad, value);
                d.unbroadcast(grad, &right)
            },
        ),
        Binary::Pow => tape.binary(
            parents,
            y,
            move |d, grad| {
                let value = left_a.take().zip(left_b.take()).map(|(a, b)| {
                    let less = d.unary(b.clone());
                    let power = d.binary(a, less);
                    d.binary(power, b)
                });
                let grad = times(d, grad, value);
                d.unbroadcast(grad, &left)
            },
            move |d, grad| {
                let value = right_a.take().zip(right_b.take()).map(|(a, b)| {
                    let power = d.binary(a.clone(), b);
                    let log = d.unary(a);
                    d.binary(power, log)
                });
                let grad = times(d, grad, value);
                d.unbroadcast(grad, &right)
            },
        ),
    }
}

fn times(d: &Device, grad: Tensor, value: Option<Tensor>) -> Tensor {
    match value {
        Some(value) => d.binary(grad, value),
        None => grad,
    }
}
