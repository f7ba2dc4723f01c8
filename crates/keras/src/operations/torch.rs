//! Operations between layers on Keras' PyTorch backend: ATen's functions of the same names.
//!
//! keras/src/backend/torch/numpy.py, math.py and nn.py (3.15); what is kept is what derivatives.yaml says. What is not here is a bound.

use super::kernels::VIEWS;
use super::{Operation, indexing, reshaping};
use crate::activation::Activation;
use crate::torch::Torch;
use memfit_graph::ops::Traced;
use memfit_graph::{Call, DType, Grad, OutDtype, Place, Saved};

/// Functions of one tensor that keep their result. Activations beside.
const KEEP_OUTPUT: &[&str] = &["Exp", "Reciprocal", "Rsqrt", "Sqrt"];

/// Functions of one tensor that keep it.
const KEEP_INPUT: &[&str] = &["Abs", "Absolute", "Clip", "Cos", "Erf", "Log", "Log1p", "Sin", "Threshold"];

impl Operation {
    /// Writes the calls, or the bound where there are none here.
    pub(super) fn aten(&self, run: &mut Torch<'_, '_>) {
        let (class, tensors, shape) = (self.class.as_str(), run.tensors(), run.out_shape());
        if class == "Concatenate" {
            return run.concatenate();
        }
        if class == "Stack" && tensors > 0 {
            let parts: Vec<_> = (0..tensors).map(|i| run.x(i)).collect();
            let y = run.cat(&parts, shape);
            return run.finish(&y);
        }
        if tensors > 0 && run.l.out_dtype(0) == DType::Bool {
            let call = Call::new("compare").output(shape, OutDtype::Is(DType::Bool), Place::New);
            return run.l.finish(call);
        }
        if tensors == 0 || tensors > 2 {
            return run.not_modelled();
        }
        let x = run.x(0);
        let other = (tensors == 2).then(|| run.x(1));
        let y = match (class, &other) {
            ("Add" | "Subtract", Some(other)) => run.add(&x, other),
            ("Multiply", Some(other)) => run.mul(&x, other),
            ("Divide" | "TrueDivide", Some(other)) => run.divide(&x, other),
            ("Maximum" | "Minimum", Some(other)) => run.keeping_both(&x, other),
            ("Matmul", Some(other)) => run.matmul(&x, other),
            (_, Some(_)) => return run.not_modelled(),
            ("Add" | "Subtract" | "Multiply" | "Negative", None) => x.scale(run.l, "mul"),
            // A quotient that has the tensor below it keeps it.
            ("Divide" | "TrueDivide", None) if run.call.arguments.tensor(0, "x1").is_some() => {
                x.scale(run.l, "div")
            }
            ("Mean", None) => run.average(&x, shape),
            ("Square" | "Power", None) => run.square(&x),
            ("Sum", None) => run.sum(&x, shape),
            ("Max" | "Amax" | "Min" | "Amin", None) => run.amax(&x, shape),
            ("BroadcastTo", None) => x.expand(run.l, shape),
            ("Flip" | "Roll", None) => x.scale(run.l, "flip"),
            ("Glu", None) => {
                let call = Call::new("glu").input(x.operand, Grad::New).saves([Saved::Input(0)]);
                let call = call.output(shape, OutDtype::Like(0), Place::New);
                Traced::of(run.l, call, shape, &[&x])
            }
            ("Identity", None) => x,
            ("GetItem", None) => match indexing::taken(self, run.call, &x.shape) {
                Some(taken) => Operation::part(run, &x, &taken),
                None => return run.not_modelled(),
            },
            ("Transpose" | "Swapaxes" | "Moveaxis", None) => match reshaping::order(self, run.call, &x.shape)
            {
                Some(order) => x.permute(run.l, &order),
                None => return run.not_modelled(),
            },
            _ if VIEWS.contains(&class) => x.reshape(run.l, shape),
            _ if KEEP_OUTPUT.contains(&class) => x.pointwise(run.l, "relu", Saved::Output(0)),
            _ if KEEP_INPUT.contains(&class) => x.pointwise(run.l, "gelu", Saved::Input(0)),
            _ => match Activation::of_class(class) {
                Activation::Other(_) => return run.not_modelled(),
                function => run.apply(&function, &x),
            },
        };
        run.finish(&y);
    }

    /// Indices and slices, one view after the other. Each has a gradient of its own.
    fn part(run: &mut Torch<'_, '_>, x: &Traced, taken: &[Option<u64>]) -> Traced {
        let (mut y, mut axis) = (x.clone(), 0);
        for length in taken {
            let whole = y.shape.get(axis).copied();
            match *length {
                None => {
                    let mut shape = y.shape.to_vec();
                    shape.remove(axis.min(shape.len().saturating_sub(1)));
                    y = y.narrow(run.l, axis, 0, 1).reshape(run.l, &shape);
                }
                Some(_) if whole == *length => axis += 1,
                Some(length) => {
                    y = y.narrow(run.l, axis, 0, length);
                    axis += 1;
                }
            }
        }
        y
    }
}
