//! Activations that are one ATen call: Celu, Elu, Gelu, HardSwish, LeakyRelu, Mish, Selu, Shrink, Sigmoid, Softplus, Tanh,
//! ThresholdedRelu. Keras has them by the same names, as layers or as `activation="…"`.
//!
//! Each row says what derivatives.yaml (PyTorch 2.15) reads in backward; none of the formulas makes a temporary.
//! Model code often runs an activation in place (`inplace=True`). What that costs differs:
//! - `leaky_relu_` has a formula of its own that reads the **result**, so its input dies. In-place is what darknet, DCGAN
//!   and timm write of the module, hence this row's rule; of the function the input is kept ([`Activation::out_of_place`]).
//! - `elu_` and `celu_` have one too, but `nn.ELU()` and `F.elu(x)` are what model code writes: the input is kept.
//! - the others (`silu_`, `hardswish_`, `mish_`, …) have none, so autograd clones the input first: the same bytes as out of
//!   place.

use crate::kernels::TfLowering;
use crate::{Autocast, Call, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved};
use std::sync::Arc;

/// A row of the table: one ONNX operator.
#[derive(Debug)]
struct Row {
    name: &'static str,
    /// ATen's name.
    function: &'static str,
    keeps: Saved,
    autocast: Autocast,
}

/// An elementwise function with a kernel of its own.
#[derive(Clone, Copy, Debug)]
pub struct Activation {
    row: &'static Row,
    /// Slope or scale, where the file says one; it changes values alone.
    pub alpha: Option<f64>,
    /// Selu's second factor, where the file says one.
    pub gamma: Option<f64>,
    /// Whether GELU is approximated by a tanh.
    pub tanh: bool,
    /// Whether the input stays as it is although there is a formula that reads the result: `F.leaky_relu(x)`.
    pub out_of_place: bool,
}

const INPUT: Saved = Saved::Input(0);
const OUTPUT: Saved = Saved::Output(0);

macro_rules! activation {
    ($($name:literal $since:tt $function:literal $keeps:ident $autocast:ident;)*) => {
        /// How each row is found.
        pub const SPECS: &[OpSpec] = &[$(OpSpec {
            domain: "",
            name: $name,
            since: &$since,
            build: |a, _| {
                const ROW: Row =
                    Row { name: $name, function: $function, keeps: $keeps, autocast: Autocast::$autocast };
                let tanh = a.text("approximate")?.is_some_and(|how| how == "tanh");
                let [alpha, gamma] = [a.float("alpha")?, a.float("gamma")?];
                Ok(Arc::new(Activation { row: &ROW, alpha, gamma, tanh, out_of_place: false }))
            },
        }),*];
    };
}

// ONNX name, opsets, ATen name, kept, autocast; then the formula of the gradient.
activation! {
    "Celu"            [12, 28]    "celu"        INPUT  Keep; // elu_backward(grad, alpha, 1, 1/alpha, false, self)
    "Elu"             [1, 6, 22]  "elu"         INPUT  Keep; // elu_backward(grad, alpha, scale, 1, false, self)
    "Gelu"            [20]        "gelu"        INPUT  Keep; // gelu_backward(grad, self, approximate)
    "HardSwish"       [14, 22]    "hardswish"   INPUT  Keep; // hardswish_backward(grad, self)
    "LeakyRelu"       [1, 6, 16]  "leaky_relu_" OUTPUT Keep; // leaky_relu_backward(grad, result, slope, true)
    "Mish"            [18, 22]    "mish"        INPUT  Keep; // mish_backward(grad, self)
    "Selu"            [1, 6, 22]  "elu"         INPUT  Keep; // elu_backward(grad, alpha, scale, 1, false, self)
    "Shrink"          [9]         "softshrink"  INPUT  Keep; // softshrink_backward(grad, self, lambd)
    "Sigmoid"         [1, 6, 13]  "sigmoid"     OUTPUT Keep; // sigmoid_backward(grad, result)
    "Softplus"        [1, 22]     "softplus"    INPUT  Fp32; // softplus_backward(grad, self, beta, threshold)
    "Tanh"            [1, 6, 13]  "tanh"        OUTPUT Keep; // tanh_backward(grad, result)
    "ThresholdedRelu" [10, 22]    "threshold"   INPUT  Keep; // threshold_backward(grad, self, threshold)
}

impl Op for Activation {
    fn name(&self) -> &str {
        self.row.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.set(0, cx.dtype(0), cx.shape(0).cloned());
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.input(0);
        let y = match self.row.name {
            "Celu" => l.activation("celu", x),
            "Gelu" => l.gelu(x, false),
            "HardSwish" => l.activation("hard_swish", x),
            "Mish" => l.activation("mish", x),
            "Shrink" | "ThresholdedRelu" => {
                let mask = l.test("Greater", x);
                l.select(mask, x)
            }
            name => l.unary(name, x),
        };
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let row = self.row;
        let (function, keeps) = match row.function.strip_suffix('_').filter(|_| self.out_of_place) {
            Some(function) => (function, INPUT),
            None => (row.function, row.keeps),
        };
        let call = Call::new(function)
            .autocast(row.autocast)
            .input(Operand::Input(0), Grad::Pointwise)
            .output(l.out_shape(0), OutDtype::Promoted, Place::Pointwise)
            .saves([keeps]);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attributes;
    use crate::ops::testing::{calls, float};

    #[test]
    fn the_leaky_one_keeps_its_result_and_the_others_what_their_formula_reads() {
        let saved = |op| calls(op, i64::MAX, Attributes::default(), &[float(&[2, 3])], 1).remove(0).saved;
        assert_eq!(saved("LeakyRelu")[..], [OUTPUT]);
        assert_eq!(saved("Elu")[..], [INPUT]);
        assert_eq!(saved("Gelu")[..], [INPUT]);
        assert_eq!(saved("Tanh")[..], [OUTPUT]);
    }
}
