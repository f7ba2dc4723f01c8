//! One function of Burn under autodiff: what it allocates, keeps, and makes of its gradient (burn-autodiff 0.21,
//! `ops/{tensor,activation,module,maxmin}.rs`). The closures hold what `checkpoint` and `State` hold there.

use super::super::program::{Binary, Compare, Kind, Prim, SlotType, Unary};
use super::autodiff::{Tape, Tracked};
use super::memory::{Device, Tensor};

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
            keeping(tape, device, x, |d, x, grad| {
                let value = d.unary(x);
                let value = d.unary(value);
                d.binary(grad, value)
            })
        }
        Prim::Compare(Compare::And | Compare::Or) | Prim::Compare(_) => {
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
                    let zeros = d.zeros(&x_shape);
                    let grad = d.mask_where(grad, for_x, zeros);
                    d.unbroadcast(grad, &x_shape)
                },
                move |d, grad| {
                    let zeros = d.zeros(&value_shape);
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
        Prim::Linear => linear(tape, device, inputs)?,
        Prim::Conv { window, groups } => {
            let (x, weight, bias) = (inputs.take()?, inputs.take()?, inputs.take());
            let (kept_x, kept_weight) = (x.tensor.clone(), weight.tensor.clone());
            let kept_bias = bias.as_ref().map(|b| b.tensor.clone());
            let parents = [x.node, weight.node, bias.as_ref().and_then(|b| b.node)];
            let y = device.conv(x.tensor, weight.tensor, window);
            drop(bias);
            let (window, groups) = (window.clone(), *groups);
            tape.node(&parents, y, move |d, grads, grad| {
                let (x_shape, w_shape) = (kept_x.shape.clone(), kept_weight.shape.clone());
                if let Some(node) = parents[0] {
                    let made = d.conv_data(grad.clone(), kept_weight.clone(), &x_shape);
                    grads.register(d, node, made);
                }
                if let Some(node) = parents[1] {
                    let made = d.conv_weight(kept_x.clone(), grad.clone(), &w_shape, &window, groups);
                    grads.register(d, node, made);
                }
                if let Some(node) = parents[2] {
                    let made = d.conv_bias(grad);
                    grads.register(d, node, made);
                }
                drop((kept_x, kept_weight, kept_bias));
            })
        }
        Prim::ConvTranspose { window, .. } => {
            let (x, weight, bias) = (inputs.take()?, inputs.take()?, inputs.take());
            let (kept_x, kept_weight) = (x.tensor.clone(), weight.tensor.clone());
            let kept_bias = bias.as_ref().map(|b| b.tensor.clone());
            let parents = [x.node, weight.node, bias.as_ref().and_then(|b| b.node)];
            drop((x.tensor, weight.tensor, bias));
            let y = device.new(Kind::Float, &shape, "convolution");
            let window = window.clone();
            tape.node(&parents, y, move |d, grads, grad| {
                let (x_shape, w_shape) = (kept_x.shape.clone(), kept_weight.shape.clone());
                if let Some(node) = parents[0] {
                    let mut made = d.conv(grad.clone(), kept_weight.clone(), &window);
                    if made.shape != x_shape {
                        made = d.slice_to(made, &x_shape);
                    }
                    grads.register(d, node, made);
                }
                if let Some(node) = parents[1] {
                    let made = d.transposed_weight(kept_x.clone(), grad.clone(), &w_shape, &window);
                    grads.register(d, node, made);
                }
                if let Some(node) = parents[2] {
                    let made = d.conv_bias(grad);
                    grads.register(d, node, made);
                }
                drop((kept_x, kept_weight, kept_bias));
            })
        }
        Prim::MaxPool2d(_) => {
            let x = inputs.take()?;
            let kept = x.is_tracked().then(|| x.tensor.clone());
            let (y, indices) = device.pool(x.tensor, &shape[2..], kept.is_some());
            tape.unary(x.node, y, move |d, grad| match kept {
                Some(x) => d.pool_backward(x, grad, indices, true),
                None => grad,
            })
        }
        Prim::AvgPool2d(..) | Prim::AdaptiveAvgPool2d(_) | Prim::Interpolate { .. } => {
            let x = inputs.take()?;
            let copies = matches!(prim, Prim::AdaptiveAvgPool2d(_));
            let kept = x.tensor.clone();
            let (y, _) = device.pool(x.tensor, &shape[2..], false);
            tape.unary(x.node, y, move |d, grad| d.pool_backward(kept, grad, None, copies))
        }
        Prim::Sum | Prim::Mean => {
            let x = inputs.take()?;
            let (full, is_mean) = (x.tensor.shape.clone(), *prim == Prim::Mean);
            let y = device.reduce_all(x.tensor);
            tape.unary(x.node, y, move |d, grad| {
                let ones = d.zeros(&full);
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
                let ones = d.zeros(&full);
                let value = if is_mean { d.unary(ones) } else { ones };
                let grad = d.reduce(grad, axis);
                d.binary(value, grad)
            })
        }
        Prim::MaxDim(axis) | Prim::MinDim(axis) => {
            let x = inputs.take()?;
            let full = x.tensor.shape.clone();
            if !x.is_tracked() {
                return Some(Tracked::constant(device.reduce(x.tensor, *axis)));
            }
            let indices = device.new(Kind::Int, &shape, "indices");
            let y = device.new(Kind::Float, &shape, "reduction");
            drop(x.tensor);
            tape.unary(x.node, y, move |d, grad| {
                let zeros = d.zeros(&full);
                let y = d.assign(zeros, grad);
                drop(indices);
                y
            })
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
                let zeros = d.zeros(&from);
                d.assign(zeros, grad)
            })
        }
        Prim::Cat(axis) => {
            let parts: Vec<Tracked> = inputs.0.by_ref().collect();
            let nodes: Vec<Option<usize>> = parts.iter().map(|p| p.node).collect();
            let shapes: Vec<Vec<usize>> = parts.iter().map(|p| p.tensor.shape.clone()).collect();
            let y = device.new(out.kind, &shape, "cat");
            parts.into_iter().for_each(drop);
            let axis = *axis;
            tape.node(&nodes.clone(), y, move |d, grads, grad| {
                let mut from = 0;
                for (node, shape) in nodes.iter().zip(&shapes) {
                    let mut ranges: Vec<_> = grad
                        .shape
                        .iter()
                        .map(|n| super::super::program::Range { start: 0, end: *n, step: 1 })
                        .collect();
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
            let y = device.new(out.kind, &shape, "gather");
            drop(x.tensor);
            tape.unary(x.node, y, move |d, grad| {
                let zeros = d.zeros(&from);
                let y = d.assign(zeros, grad);
                drop(by);
                y
            })
        }
        Prim::Embedding => {
            let (weight, by) = (inputs.take()?, inputs.take()?.tensor);
            let kept = weight.tensor.clone();
            let y = device.new(Kind::Float, &shape, "gather");
            drop(weight.tensor);
            tape.unary(weight.node, y, move |d, grad| {
                let rows = grad.elements() / kept.shape[1].max(1);
                let grad = d.reshape(grad, &[rows, kept.shape[1]]);
                let zeros = d.zeros(&kept.shape);
                let y = d.assign(zeros, grad);
                drop((by, kept));
                y
            })
        }
        Prim::Convert => {
            let x = inputs.take()?;
            let y = device.new(out.kind, &shape, "cast");
            drop(x);
            Tracked::constant(y)
        }
        Prim::Detach => Tracked::constant(inputs.take()?.tensor),
        Prim::Bernoulli(_) => Tracked::constant(device.new(Kind::Float, &shape, "random")),
        Prim::Full(_) => Tracked::constant(device.new(out.kind, &shape, "fill")),
    })
}

/// A function whose step reads its input again.
fn keeping(
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

fn unary(tape: &mut Tape, device: &Device, function: Unary, x: Tracked) -> Tracked {
    match function {
        Unary::Neg => {
            let y = device.unary(x.tensor);
            tape.unary(x.node, y, |d, grad| d.unary(grad))
        }
        Unary::Ceil | Unary::Floor | Unary::Round => {
            let shape = x.tensor.shape.clone();
            let y = device.unary(x.tensor);
            tape.unary(x.node, y, move |d, grad| {
                drop(grad);
                d.zeros(&shape)
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
        Unary::Sigmoid => keeping(tape, device, x, |d, x, grad| {
            let y = d.unary(x);
            let rest = d.unary(y.clone());
            let value = d.binary(y, rest);
            d.binary(value, grad)
        }),
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

/// Forward: `x/√2, erf, +1, ·x, /2`. Backward: the polynomial of `gelu_backward`.
fn gelu(tape: &mut Tape, device: &Device, x: Tracked) -> Tracked {
    let kept = x.is_tracked().then(|| x.tensor.clone());
    let inner = device.unary(x.tensor.clone());
    let y = device.binary(x.tensor, inner);
    tape.unary(x.node, y, move |d, grad| {
        let Some(x) = kept else { return grad };
        // powi(3) is a product of a square and the input, or one function: a tensor either way.
        let cube = d.new(Kind::Float, &x.shape, "elementwise");
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
        let ones = d.zeros(&z.shape);
        let derived = d.mask_fill(ones.clone(), mask.clone());
        let sign = d.mask_fill(ones.clone(), mask);
        let z = d.unary(z);
        let rest = d.binary(ones, z);
        let product = d.binary(sign, rest);
        let value = d.binary(derived, product);
        d.binary(grad, value)
    })
}

fn binary(tape: &mut Tape, device: &Device, function: Binary, a: Tracked, b: Tracked) -> Tracked {
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

fn product(tape: &mut Tape, device: &Device, a: Tracked, b: Tracked) -> Tracked {
    let parents = [a.node, b.node];
    let (left, right) = (a.tensor.shape.clone(), b.tensor.shape.clone());
    let kept_a = b.is_tracked().then(|| a.tensor.clone());
    let kept_b = a.is_tracked().then(|| b.tensor.clone());
    let y = device.matmul(a.tensor, b.tensor);
    let transposed = |d: &Device, t: Tensor| {
        let rank = t.rank();
        d.swap(t, rank - 2, rank - 1)
    };
    tape.binary(
        parents,
        y,
        move |d, grad| {
            let Some(b) = kept_b else { return grad };
            let b = transposed(d, b);
            let grad = d.matmul(grad, b);
            d.unbroadcast(grad, &left)
        },
        move |d, grad| {
            let Some(a) = kept_a else { return grad };
            let a = transposed(d, a);
            let grad = d.matmul(a, grad);
            d.unbroadcast(grad, &right)
        },
    )
}

/// `ModuleOps::linear` and its three backward functions.
fn linear(tape: &mut Tape, device: &Device, mut inputs: Inputs) -> Option<Tracked> {
    let (x, weight, bias) = (inputs.take()?, inputs.take()?, inputs.take());
    let parents = [x.node, weight.node, bias.as_ref().and_then(|b| b.node)];
    let kept_x = weight.is_tracked().then(|| x.tensor.clone());
    let kept_weight = x.is_tracked().then(|| weight.tensor.clone());
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
    Some(tape.node(&parents, y, move |d, grads, grad| {
        if let (Some(node), Some(weight)) = (parents[0], kept_weight) {
            let weight = d.swap(weight, 0, 1);
            let weight = lift(d, weight);
            let made = d.matmul(grad.clone(), weight);
            grads.register(d, node, made);
        }
        if let (Some(node), Some(x)) = (parents[1], kept_x) {
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
    }))
}
