//! Operations between layers on Keras' PyTorch backend: ATen's functions of the same names.
//!
//! keras/src/backend/torch/numpy.py, math.py and nn.py (3.15); what is kept is what derivatives.yaml says. What is not here is a bound.

use super::Operation;
use super::kernels::VIEWS;
use crate::torch::Torch;
use memfit_graph::Saved;

/// Functions of one tensor that keep their result.
const KEEP_OUTPUT: &[&str] = &["Exp", "Reciprocal", "Relu", "Rsqrt", "Sigmoid", "Sqrt", "Tanh"];

/// Functions of one tensor that keep it.
const KEEP_INPUT: &[&str] = &[
    "Abs",
    "Absolute",
    "Cos",
    "Elu",
    "Erf",
    "Gelu",
    "LeakyRelu",
    "Log",
    "Log1p",
    "LogSigmoid",
    "Relu6",
    "Silu",
    "Sin",
    "Softplus",
];

impl Operation {
    /// Writes the calls, or the bound where there are none here.
    pub(super) fn aten(&self, run: &mut Torch<'_, '_>) {
        let (class, tensors, shape) = (self.class.as_str(), run.tensors(), run.out_shape());
        if class == "Concatenate" {
            return run.concatenate();
        }
        if tensors == 0 || tensors > 2 {
            return run.not_modelled();
        }
        let x = run.x(0);
        let other = (tensors == 2).then(|| run.x(1));
        let y = match (class, &other) {
            ("Add" | "Subtract", Some(other)) => run.add(&x, other),
            ("Multiply", Some(other)) => run.mul(&x, other),
            ("Divide" | "TrueDivide" | "Maximum" | "Minimum", Some(other)) => {
                run.keeping_both("div", &x, other)
            }
            ("Matmul", Some(other)) => run.matmul(&x, other),
            (_, Some(_)) => return run.not_modelled(),
            ("Add" | "Subtract" | "Multiply" | "Negative", None) => x.scale(run.l, "mul"),
            // A quotient that has the tensor below it keeps it.
            ("Divide" | "TrueDivide", None) if run.call.arguments.tensor(0, "x1").is_some() => {
                x.scale(run.l, "div")
            }
            ("Softmax", None) => run.softmax("_softmax", &x),
            ("Mean", None) => run.average(&x, shape),
            ("Square", None) => run.square(&x),
            _ if VIEWS.contains(&class) => x.reshape(run.l, shape),
            _ if KEEP_OUTPUT.contains(&class) => x.pointwise(run.l, "relu", Saved::Output(0)),
            _ if KEEP_INPUT.contains(&class) => x.pointwise(run.l, "gelu", Saved::Input(0)),
            _ => return run.not_modelled(),
        };
        run.finish(&y);
    }
}
