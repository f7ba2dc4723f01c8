//! LpNormalization (ONNX 1, 22), MeanVarianceNormalization (9, 13), LRN (1, 13). Keras `UnitNormalization`.
//!
//! None of them is one kernel in PyTorch. `F.normalize` is a norm, a clamp and a division by the expanded norm;
//! `F.local_response_norm` is a square, a padded average over channels, a power and a division
//! (torch/nn/functional.py); mean-variance normalization is its ONNX function body. What autograd keeps follows from
//! those kernels (derivatives.yaml: `linalg_vector_norm`, `clamp_min`, `div`, `pow`, `avg_pool3d`).

use super::calls::{Traced, positive};
use super::pool::{average, pow};
use crate::{Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved};
use std::sync::Arc;

/// A normalization that PyTorch composes of pointwise kernels and reductions.
#[derive(Clone, Debug, PartialEq)]
pub enum ComposedNorm {
    /// By the p-norm along one axis.
    Lp {
        /// Counted from the back when negative.
        axis: i64,
    },
    /// By mean and standard deviation over these axes.
    MeanVariance {
        /// Counted from the back when negative.
        axes: Vec<i64>,
    },
    /// By neighbouring channels.
    LocalResponse {
        /// How many channels.
        size: u64,
        /// Factor, exponent and what is added: `x / (bias + alpha / size * sum)^beta`.
        alpha: f64,
        #[allow(missing_docs)]
        beta: f64,
        #[allow(missing_docs)]
        bias: f64,
    },
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "LpNormalization",
        since: &[1, 22],
        build: |a, _| Ok(Arc::new(ComposedNorm::Lp { axis: a.int("axis")?.unwrap_or(-1) })),
    },
    OpSpec {
        domain: "",
        name: "MeanVarianceNormalization",
        since: &[9, 13],
        build: |a, _| {
            let axes = a.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
            Ok(Arc::new(ComposedNorm::MeanVariance { axes }))
        },
    },
    OpSpec {
        domain: "",
        name: "LRN",
        since: &[1, 13],
        build: |a, _| {
            if !a.has("size") {
                return Err(OpError::missing_attribute("size"));
            }
            Ok(Arc::new(ComposedNorm::LocalResponse {
                size: positive(a, "size", 1)?,
                alpha: a.float("alpha")?.unwrap_or(1e-4),
                beta: a.float("beta")?.unwrap_or(0.75),
                bias: a.float("bias")?.unwrap_or(1.0),
            }))
        },
    },
];

impl Op for ComposedNorm {
    fn name(&self) -> &str {
        match self {
            ComposedNorm::Lp { .. } => "LpNormalization",
            ComposedNorm::MeanVariance { .. } => "MeanVarianceNormalization",
            ComposedNorm::LocalResponse { .. } => "LRN",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?.clone();
        let axes: &[i64] = match self {
            ComposedNorm::Lp { axis } => &[*axis],
            ComposedNorm::MeanVariance { axes } => axes,
            ComposedNorm::LocalResponse { .. } => &[1],
        };
        if let Some(shape) = x.shape()
            && let Some(axis) = axes.iter().find(|axis| shape.axis(**axis).is_none())
        {
            return Err(OpError::input(0, format!("a rank that has axis {axis}"), format!("shape {shape}")));
        }
        cx.set_type(0, x);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let x = Traced::input(l, 0);
        match self {
            ComposedNorm::Lp { axis } => lp(l, &x, &[*axis]),
            ComposedNorm::MeanVariance { axes } => mean_variance(l, &x, axes),
            ComposedNorm::LocalResponse { size, .. } => local_response(l, &x, *size),
        }
        .bind(l, 0);
    }
}

/// The dims with these axes one.
fn reduced(x: &Traced, axes: &[i64]) -> Vec<u64> {
    let axes: Vec<_> = axes.iter().filter_map(|a| crate::shape::normalize_axis(*a, x.rank())).collect();
    x.shape.iter().enumerate().map(|(i, d)| if axes.contains(&i) { 1 } else { *d }).collect()
}

fn lp(l: &mut Lowering<'_>, x: &Traced, axes: &[i64]) -> Traced {
    let rows = reduced(x, axes);
    // Autocast sets the result's dtype and leaves the input as it is.
    let dtype = match l.autocast {
        Some(_) => OutDtype::Is(DType::Float32),
        None => OutDtype::Like(0),
    };
    let call = Call::new("linalg_vector_norm").input(x.operand, Grad::New);
    let call = call.output(&rows, dtype, Place::New).saves([Saved::Input(0), Saved::Output(0)]);
    let norm = Traced::of(l, call, &rows, &[x]);
    let norm = norm.pointwise(l, "clamp_min", Saved::Input(0)).expand(l, &x.shape);
    div(l, x, &norm)
}

/// `x / y` broadcast to the dims of `x`.
fn div(l: &mut Lowering<'_>, x: &Traced, y: &Traced) -> Traced {
    let call = Call::new("div")
        .input(x.operand, Grad::Pointwise)
        .input(y.operand, Grad::Pointwise)
        .saves([Saved::InputFor { input: 0, needed_by: 1 }, Saved::Input(1)]);
    Traced::of(l, call.output(&x.shape, OutDtype::Promoted, Place::Pointwise), &x.shape, &[x, y])
}

/// `x - y` broadcast to the dims of `x`.
fn sub(l: &mut Lowering<'_>, x: &Traced, y: &Traced) -> Traced {
    let call = Call::new("sub").input(x.operand, Grad::Pass).input(y.operand, Grad::Pointwise);
    Traced::of(l, call.output(&x.shape, OutDtype::Promoted, Place::Pointwise), &x.shape, &[x, y])
}

fn mean_variance(l: &mut Lowering<'_>, x: &Traced, axes: &[i64]) -> Traced {
    let rows = reduced(x, axes);
    let mean = |l: &mut Lowering<'_>, x: &Traced| {
        let call = Call::new("mean").input(x.operand, Grad::New);
        Traced::of(l, call.output(&rows, OutDtype::Like(0), Place::New), &rows, &[x])
    };
    let average = mean(l, x);
    let squared_mean = pow(l, &average);
    let squares = pow(l, x);
    let mean_square = mean(l, &squares);
    let deviation = sub(l, &mean_square, &squared_mean).pointwise(l, "sqrt", Saved::Output(0));
    let centred = sub(l, x, &average);
    let deviation = deviation.scale(l, "add");
    div(l, &centred, &deviation)
}

fn local_response(l: &mut Lowering<'_>, x: &Traced, size: u64) -> Traced {
    let square = x.mul(l, x, &x.shape);
    let mut padded = square.shape.clone();
    if let Some(channels) = padded.get_mut(1) {
        *channels = channels.saturating_add(size.saturating_sub(1));
    }
    let call = Call::new("constant_pad_nd").input(square.operand, Grad::New);
    let call = call.output(&padded, OutDtype::Like(0), Place::New);
    let padded = Traced::of(l, call, &padded, &[&square]);
    let mean = average(l, &padded, &x.shape);
    let scaled = mean.scale(l, "mul").scale(l, "add");
    let divisor = pow(l, &scaled);
    div(l, x, &divisor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OutState, TensorState};

    fn names(op: &ComposedNorm) -> Vec<(&'static str, usize)> {
        let shape: &[u64] = &[4, 8, 6, 6];
        let state = TensorState { shape, dtype: DType::Float32, requires_grad: true, is_initializer: false };
        let (inputs, outputs) = ([Some(state)], [Some(OutState { shape, dtype: DType::Float32 })]);
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        op.pytorch(&mut l);
        l.into_parts().0.iter().map(|c| (c.function, c.saved.len())).collect()
    }

    #[test]
    fn the_kernels_are_those_of_torch() {
        let lp = [("linalg_vector_norm", 2), ("clamp_min", 1), ("expand", 0), ("div", 2)];
        assert_eq!(names(&ComposedNorm::Lp { axis: 1 }), lp);
        let lrn = names(&ComposedNorm::LocalResponse { size: 5, alpha: 1e-4, beta: 0.75, bias: 1.0 });
        let expected = [
            ("mul", 2),
            ("constant_pad_nd", 0),
            ("avg_pool2d", 1),
            ("mul", 0),
            ("add", 0),
            ("pow", 1),
            ("div", 2),
        ];
        assert_eq!(lrn, expected);
    }
}
