//! Activations. `Relu`, `Gelu` and `Sigmoid` have functions of their own in `ActivationOps`; the others are composed as
//! burn-nn's modules and `burn_tensor::activation` compose them.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Binary, Compare, Prim, Slot, Unary};
use memfit_graph::ops::activation::Activation;
use memfit_graph::ops::clip::Clip;
use memfit_graph::ops::glu::Glu;
use memfit_graph::ops::hard_sigmoid::HardSigmoid;
use memfit_graph::ops::swish::Swish;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["Relu", "Gelu", "com.microsoft.Gelu", "LogSigmoid", "Sigmoid", "Tanh"], rule: direct },
    Family {
        names: &["Celu", "Elu", "LeakyRelu", "PRelu", "Selu", "Softplus", "ThresholdedRelu"],
        rule: composed,
    },
    Family { names: &["Swish", "HardSwish", "HardSigmoid", "Mish", "Softsign"], rule: gated },
    Family { names: &["Glu"], rule: glu },
    Family { names: &["Clip"], rule: clip },
];

/// ONNX's own slope.
const SLOPE: f64 = 0.01;

/// Selu's constants (ONNX's operators, version 22).
const SELU: (f64, f64) = (1.673_263_242_354_377_2, 1.050_700_987_355_480_5);

/// What the file says beside the operator's name.
fn alpha(l: &Lower<'_, '_>) -> Option<f64> {
    l.node.op.downcast::<Activation>().and_then(|op| op.alpha)
}

fn direct(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    if l.node.op.downcast::<Activation>().is_some_and(|op| op.tanh) {
        let y = gelu_tanh(l, x)?;
        l.set(0, y);
        return Ok(());
    }
    let function = match l.node.op.name() {
        "LogSigmoid" => Unary::LogSigmoid,
        "Relu" => Unary::Relu,
        "Sigmoid" => Unary::Sigmoid,
        "Tanh" => Unary::Tanh,
        _ => Unary::Gelu,
    };
    let y = l.unary(function, x);
    l.set(0, y);
    Ok(())
}

/// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x³)))`.
fn gelu_tanh(l: &mut Lower<'_, '_>, x: Slot) -> Result<Slot, Refusal> {
    let square = l.scalar(Binary::Pow, x, 2.0);
    let cube = l.binary(Binary::Mul, square, x)?;
    let cube = l.scalar(Binary::Mul, cube, 0.044_715);
    let inner = l.binary(Binary::Add, x, cube)?;
    let inner = l.scalar(Binary::Mul, inner, (2.0 / std::f64::consts::PI).sqrt());
    let inner = l.unary(Unary::Tanh, inner);
    let inner = l.scalar(Binary::Add, inner, 1.0);
    let y = l.binary(Binary::Mul, x, inner)?;
    Ok(l.scalar(Binary::Mul, y, 0.5))
}

fn composed(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    let y = match l.node.op.name() {
        "Softplus" => {
            let e = l.unary(Unary::Exp, x);
            l.unary(Unary::Log1p, e)
        }
        // `burn_tensor::activation::elu` multiplies whatever alpha is.
        "Elu" => {
            let scale = alpha(l).unwrap_or(1.0);
            exponential(l, x, None, scale)
        }
        "Celu" => {
            let scale = alpha(l).unwrap_or(1.0);
            exponential(l, x, Some(scale), scale)
        }
        "Selu" => {
            let scale = alpha(l).unwrap_or(SELU.0);
            let y = exponential(l, x, None, scale);
            let scale = l.node.op.downcast::<Activation>().and_then(|op| op.gamma).unwrap_or(SELU.1);
            l.scalar(Binary::Mul, y, scale)
        }
        "ThresholdedRelu" => {
            let threshold = alpha(l).unwrap_or(1.0);
            let below = l.compare_scalar(Compare::LowerEqual, x, threshold);
            l.like(Prim::MaskFill(0.0), &[x, below])
        }
        name => {
            let below = l.compare_scalar(Compare::Lower, x, 0.0);
            let scaled = if name == "PRelu" {
                let slope = l.input(1)?;
                l.binary(Binary::Mul, x, slope)?
            } else {
                let slope = alpha(l).unwrap_or(SLOPE);
                l.scalar(Binary::Mul, x, slope)
            };
            l.like(Prim::MaskWhere, &[x, below, scaled])
        }
    };
    l.set(0, y);
    Ok(())
}

/// `x` above zero, below it `scale * (exp(x / divisor) - 1)`.
fn exponential(l: &mut Lower<'_, '_>, x: Slot, divisor: Option<f64>, scale: f64) -> Slot {
    let below = l.compare_scalar(Compare::LowerEqual, x, 0.0);
    let e = divisor.map_or(x, |divisor| l.scalar(Binary::Div, x, divisor));
    let e = l.unary(Unary::Exp, e);
    let e = l.scalar(Binary::Sub, e, 1.0);
    let e = l.scalar(Binary::Mul, e, scale);
    l.like(Prim::MaskWhere, &[x, below, e])
}

fn gated(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    let y = match l.node.op.name() {
        "HardSigmoid" => {
            let op = l.node.op.downcast::<HardSigmoid>();
            let (alpha, beta) = op.map_or((0.2, 0.5), |op| (op.alpha, op.beta));
            hard_sigmoid(l, x, alpha, beta)
        }
        "Softsign" => {
            let below = l.unary(Unary::Abs, x);
            let below = l.scalar(Binary::Add, below, 1.0);
            l.binary(Binary::Div, x, below)?
        }
        "HardSwish" => {
            let gate = hard_sigmoid(l, x, 1.0 / 6.0, 0.5);
            l.binary(Binary::Mul, x, gate)?
        }
        "Mish" => {
            let e = l.unary(Unary::Exp, x);
            let e = l.unary(Unary::Log1p, e);
            let gate = l.unary(Unary::Tanh, e);
            l.binary(Binary::Mul, x, gate)?
        }
        _ => {
            let alpha = l.node.op.downcast::<Swish>().map_or(1.0, |op| op.alpha);
            let inner = if alpha == 1.0 { x } else { l.scalar(Binary::Mul, x, alpha) };
            let gate = l.unary(Unary::Sigmoid, inner);
            l.binary(Binary::Mul, x, gate)?
        }
    };
    l.set(0, y);
    Ok(())
}

fn glu(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    let axis = l.axis(l.node.op.downcast::<Glu>().map_or(-1, |op| op.axis), l.rank(x))?;
    let half = l.output_shape(0)?.get(axis).copied().ok_or("a half without that axis")?;
    let (a, b) = (l.narrow(x, axis, 0, half), l.narrow(x, axis, half, 2 * half));
    let gate = l.unary(Unary::Sigmoid, b);
    let y = l.binary(Binary::Mul, a, gate)?;
    l.set(0, y);
    Ok(())
}

fn hard_sigmoid(l: &mut Lower<'_, '_>, x: Slot, alpha: f64, beta: f64) -> Slot {
    let x = l.scalar(Binary::Mul, x, alpha);
    let x = l.scalar(Binary::Add, x, beta);
    clamp(l, x, Some(0.0), Some(1.0))
}

/// `float_clamp_min` and `float_clamp_max` of `FloatTensorOps`: a comparison and a fill each.
fn clamp(l: &mut Lower<'_, '_>, x: Slot, min: Option<f64>, max: Option<f64>) -> Slot {
    // `float_clamp` is the lower of the upper bound first.
    let mut x = x;
    for (function, bound) in [(Compare::Lower, min), (Compare::Greater, max)] {
        if let Some(bound) = bound {
            let mask = l.compare_scalar(function, x, bound);
            x = l.like(Prim::MaskFill(bound), &[x, mask]);
        }
    }
    x
}

fn clip(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Clip>().copied();
    let bound = |l: &Lower<'_, '_>, i: usize, attribute: Option<f64>| match (l.id(i), attribute) {
        (None, attribute) => Ok(attribute),
        (Some(_), _) => l.number(i).map(Some).ok_or("a bound that is not known"),
    };
    let min = bound(l, 1, op.and_then(|op| op.min))?;
    let max = bound(l, 2, op.and_then(|op| op.max))?;
    let x = l.input(0)?;
    let y = clamp(l, x, min, max);
    l.set(0, y);
    Ok(())
}
