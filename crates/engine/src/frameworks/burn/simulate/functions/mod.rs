//! One function of Burn under autodiff: what it allocates, keeps, and makes of its gradient (burn-autodiff 0.21,
//! `ops/{tensor,activation,module,maxmin}.rs`). The closures hold what `checkpoint` and `State` hold there. One file a family;
//! [`call`] finds the right one.

mod indexing;
mod pointwise;
mod reductions;
mod shape;
mod windows;

use super::super::program::{Prim, SlotType};
use super::autodiff::{Tape, Tracked};
use super::elementwise::{self, binary, unary};
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
    Some(match prim {
        Prim::Unary(function) => unary(tape, device, *function, inputs.take()?),
        Prim::Binary(function) => {
            let (a, b) = (inputs.take()?, inputs.take()?);
            binary(tape, device, *function, a, b)
        }
        Prim::MatMul => {
            let (a, b) = (inputs.take()?, inputs.take()?);
            product(tape, device, a, b)
        }
        Prim::Linear => {
            let (x, weight) = (inputs.take()?, inputs.take()?);
            linear(tape, device, x, weight, inputs.take())
        }
        Prim::AddScalar(..)
        | Prim::MulScalar(..)
        | Prim::DivScalar(..)
        | Prim::PowScalar(..)
        | Prim::Compare(..)
        | Prim::CompareScalar(..)
        | Prim::Not
        | Prim::MaskWhere
        | Prim::MaskFill(..)
        | Prim::Convert => return pointwise::call(tape, device, prim, &mut inputs, out),
        Prim::Conv { .. }
        | Prim::ConvTranspose { .. }
        | Prim::MaxPool2d(..)
        | Prim::AvgPool2d(..)
        | Prim::AdaptiveAvgPool2d(..)
        | Prim::Interpolate { .. } => return windows::call(tape, device, prim, &mut inputs, out),
        Prim::Sum
        | Prim::Mean
        | Prim::SumDim(..)
        | Prim::MeanDim(..)
        | Prim::MaxDim(..)
        | Prim::MinDim(..)
        | Prim::ArgMax(..)
        | Prim::ArgMin(..)
        | Prim::CumSum(..) => return reductions::call(tape, device, prim, &mut inputs, out),
        Prim::Reshape | Prim::Permute(..) | Prim::Expand | Prim::Slice(..) | Prim::Cat(..) => {
            return shape::call(tape, device, prim, &mut inputs, out);
        }
        Prim::Select(..)
        | Prim::Gather(..)
        | Prim::SelectAdd(..)
        | Prim::ScatterAdd(..)
        | Prim::ArgSort { .. }
        | Prim::Embedding => return indexing::call(tape, device, prim, &mut inputs, out),
        Prim::Detach => Tracked::constant(inputs.take()?.tensor),
        Prim::Bernoulli(_) | Prim::Uniform => Tracked::constant(device.make(out.kind, &out.shape, "random")),
        Prim::Full(_) => Tracked::constant(device.make(out.kind, &out.shape, "fill")),
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
