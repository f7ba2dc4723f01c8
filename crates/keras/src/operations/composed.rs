//! The TensorFlow kernels of operations that are several of them.
//!
//! keras/src/backend/tensorflow/numpy.py, linalg.py, math.py and nn.py; keras/src/ops/nn.py (`_normalize`, `_layer_normalization`,
//! `_rms_normalization`) and image.py (`_extract_patches`); tensorflow/python/ops/math_ops.py (`reduce_variance`, `reduce_logsumexp`).

use super::{Operation, angles};
use crate::run::Run;
use memfit_graph::kernels::{Flow, Wire};
use memfit_graph::{DType, elements};

impl Operation {
    /// The result for the first operand `x`, of an operation that is composed.
    pub(super) fn composed(&self, run: &mut Run<'_, '_>, x: Wire) -> Option<Wire> {
        let scope = match self.class.as_str() {
            "Logsumexp" => "../ReduceLogSumExp",
            "Std" => "../reduce_std/reduce_variance",
            "Var" => "../reduce_variance",
            _ => "../",
        };
        let outer = std::mem::replace(&mut run.scope, scope);
        let y = self.pieces(run, x);
        run.scope = outer;
        y
    }

    fn pieces(&self, run: &mut Run<'_, '_>, x: Wire) -> Option<Wire> {
        let shape = run.out_shape(0).to_vec();
        let y = match self.class.as_str() {
            "Average" if run.tensors() == 1 => run.reduce("Mean", x, &shape),
            // A variance of half precision computes in float32, a deviation does not (`var`, `std`).
            "Var" | "Std" => {
                let rows = self.rows(run, x);
                let variance = |flow: &mut Flow, x: Wire| flow.variance(x, &rows, &shape);
                if self.class == "Var" {
                    run.in_f32(x, variance)
                } else {
                    let variance = variance(run, x);
                    run.unary("Sqrt", variance)
                }
            }
            "Moments" => {
                let (mean, variance) = run.moments(x, &shape);
                run.bind(1, variance);
                mean
            }
            "Norm" => {
                let square = run.binary("Mul", x, x);
                let sum = run.reduce("Sum", square, &shape);
                run.unary("Sqrt", sum)
            }
            "Normalize" => {
                let rows = self.rows(run, x);
                run.unit(x, &rows)
            }
            "Logsumexp" => {
                let rows = self.rows(run, x);
                run.log_sum_exp(x, &rows, &shape)
            }
            "Ptp" => {
                let (most, least) = (run.reduce("Max", x, &shape), run.reduce("Min", x, &shape));
                run.binary("Sub", most, least)
            }
            "LayerNorm" | "RMSNorm" => {
                let rows = self.rows(run, x);
                let given: Vec<Wire> = (1..run.tensors()).map(|i| run.x(i)).collect();
                let is_rms = self.class == "RMSNorm";
                run.in_f32(x, |flow, x| match is_rms {
                    true => flow.rms_norm(x, &rows, given.first().copied()),
                    false => flow.layer_norm(x, &rows, given.first().copied(), given.get(1).copied()),
                })
            }
            "Diff" => {
                let n =
                    u64::try_from(self.integer(run.call, 1, &["n"]).unwrap_or(1)).ok().filter(|n| *n <= 8)?;
                let axis = shape.iter().zip(run.shape(x)).position(|(a, b)| a != b)?;
                (0..n).fold(x, |x, _| {
                    let mut shorter = run.shape(x).to_vec();
                    shorter[axis] = shorter[axis].saturating_sub(1);
                    let [next, before] = [0, 1].map(|_| run.moved("StridedSlice", x, &shorter));
                    run.binary("Sub", next, before)
                })
            }
            "Outer" if run.tensors() == 2 => {
                let other = run.x(1);
                let column = run.view("Reshape", x, &[shape[0], 1]);
                let row = run.view("Reshape", other, &[*shape.get(1)?]);
                run.binary("Mul", column, row)
            }
            "Inner" | "Tensordot" => {
                let other = self.second(run)?;
                let (left, right) = (elements(run.shape(x)), elements(run.shape(other)));
                // Rows times columns is what comes out; what both have more is summed over.
                let squared = u128::from(left) * u128::from(right);
                let inner = squared.checked_div(u128::from(elements(&shape)))?.isqrt();
                let inner = u64::try_from(inner).ok().filter(|n| *n > 0)?;
                let a = run.view("Reshape", x, &[left / inner, inner]);
                let b = run.view("Reshape", other, &[inner, right / inner]);
                let y = run.matmul("MatMul", a, b, &[left / inner, right / inner]);
                run.view("Reshape", y, &shape)
            }
            "Logaddexp" if run.tensors() == 2 => {
                let other = run.x(1);
                let delta = run.binary("Sub", x, other);
                let mask = run.test("IsNan", delta);
                let sum = run.binary("AddV2", x, other);
                let most = run.binary("Maximum", x, other);
                let size = run.unary("Abs", delta);
                let negative = run.unary("Neg", size);
                let exponent = run.unary("Exp", negative);
                let log = run.unary("Log1p", exponent);
                let y = run.binary("AddV2", most, log);
                run.choose(mask, sum, y)
            }
            "Hypot" if run.tensors() == 2 => {
                let other = run.x(1);
                angles::hypot(run, x, other)
            }
            "Arctan2" if run.tensors() == 2 => {
                let other = run.x(1);
                angles::arctan2(run, x, other)
            }
            "Deg2rad" | "Rad2deg" => run.scaled("Mul", x),
            "Log2" | "Log10" => {
                let log = run.unary("Log", x);
                run.scaled("RealDiv", log)
            }
            "Mod" if run.tensors() == 1 => run.shifted("FloorMod", x),
            "Resize" => match self.parameter(run.call, 2, &["interpolation", "method"]) {
                Some(given) if given.as_str() == Some("nearest") => {
                    run.moved("ResizeNearestNeighbor", x, &shape)
                }
                Some(given) if given.as_str() == Some("bicubic") => run.resize("ResizeBicubic", x, &shape),
                _ => run.resize("ResizeBilinear", x, &shape),
            },
            // Of one operand: its axes in another order, or some of them summed over.
            "Einsum" if run.tensors() == 1 && shape.len() == run.shape(x).len() => {
                run.moved("Transpose", x, &shape)
            }
            "Einsum" if run.tensors() == 1 => run.reduce("Sum", x, &shape),
            // A convolution whose kernel is the identity.
            "ExtractPatches" if shape.len() == 4 => {
                let dtype = run.dtype(x);
                let kernel = run.constant(&shape[3..], dtype);
                run.convolution("Conv2D", x, kernel, &shape)
            }
            _ => return self.sorting(run, x),
        };
        Some(y)
    }

    /// The second operand: a tensor of the call, or an array that the file holds.
    pub(super) fn second(&self, run: &mut Run<'_, '_>) -> Option<Wire> {
        if run.tensors() == 2 {
            return Some(run.x(1));
        }
        let call = run.call;
        let second =
            call.arguments.positional.iter().find(|a| a.tensors().is_empty() && a.as_str().is_none())?;
        let spec = second.spec(&[], DType::Float32)?;
        Some(run.constant(&spec.shape.known()?, spec.dtype))
    }

    /// The shape of `x` with one element along each of the axes that are reduced.
    fn rows(&self, run: &Run<'_, '_>, x: Wire) -> Vec<u64> {
        self.rows_at(run, x, 1)
    }

    /// The same where the axes are this argument of the call.
    pub(super) fn rows_at(&self, run: &Run<'_, '_>, x: Wire, position: usize) -> Vec<u64> {
        let mut rows = run.shape(x).to_vec();
        let rank = rows.len() as i64;
        let axes =
            self.integers(run.call, position, &["axis", "axes"]).unwrap_or_else(|| (0..rank).collect());
        for axis in axes {
            let at = usize::try_from(if axis < 0 { axis.saturating_add(rank) } else { axis });
            at.ok().and_then(|at| rows.get_mut(at)).into_iter().for_each(|d| *d = 1);
        }
        rows
    }
}
