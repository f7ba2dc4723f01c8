//! Math on one tensor, element by element: Abs, Acos, …, Tan. Keras has them as `keras.ops` of the same names.
//!
//! Each row of the table says what derivatives.yaml (PyTorch 2.15) reads in backward: the input, the result or
//! nothing; and how many tensors of the output's size its formula makes besides the gradient. All temporaries of a
//! C++ expression live until its end, so `grad * -((-self * self + 1).rsqrt())` has five of them. Rounding and signs
//! have a gradient of zeros; tests have none.

use super::fold;
use crate::kernels::TfLowering;
use crate::{
    Autocast, Call, DType, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved,
};
use std::sync::Arc;

/// A row of the table: one ONNX operator.
#[derive(Debug)]
struct Row {
    name: &'static str,
    /// ATen's name.
    function: &'static str,
    keeps: Keeps,
    /// Tensors of the output's size that live in backward beside the gradient.
    temporaries: usize,
    autocast: Autocast,
    fold: Fold,
}

/// What backward reads.
#[derive(Clone, Copy, Debug)]
enum Keeps {
    Input,
    Output,
    Nothing,
    /// The result is a truth value or an integer: no gradient.
    NoGrad,
}

/// How one element is folded.
#[derive(Clone, Copy, Debug)]
enum Fold {
    Float(fn(f64) -> f64),
    /// Leaves whole numbers that are not negative as they are, so symbolic sizes pass.
    Size(fn(i64) -> Option<i64>, fn(f64) -> f64),
    Either(fn(i64) -> Option<i64>, fn(f64) -> f64),
    Int(fn(i64) -> i64),
    /// A question whose answer is no for every integer.
    FloatIs(fn(f64) -> bool),
    Never,
}

/// An elementwise function of one tensor.
#[derive(Clone, Copy, Debug)]
pub struct Unary(&'static Row);

macro_rules! unary {
    ($($name:literal $since:tt $function:literal $keeps:ident $temporaries:literal $autocast:ident $fold:expr;)*) => {
        /// How each row is found.
        pub const SPECS: &[OpSpec] = &[$(OpSpec {
            domain: "",
            name: $name,
            since: &$since,
            build: |_, _| {
                const ROW: Row = Row {
                    name: $name,
                    function: $function,
                    keeps: Keeps::$keeps,
                    temporaries: $temporaries,
                    autocast: Autocast::$autocast,
                    fold: $fold,
                };
                Ok(Arc::new(Unary(&ROW)))
            },
        }),*];
    };
}

// ONNX name, opsets, ATen name, kept, temporaries, autocast, folding; then the formula of the gradient.
unary! {
    "Abs"        [1, 6, 13]  "abs"         Input   1 Keep Fold::Size(i64::checked_abs, f64::abs); // grad * self.sgn()
    "Acos"       [7, 22]     "acos"        Input   5 Fp32 Fold::Float(f64::acos);   // grad * -((-self * self + 1).rsqrt())
    "Acosh"      [9, 22]     "acosh"       Input   3 Keep Fold::Float(f64::acosh);  // grad * (self * self - 1).rsqrt()
    "Asin"       [7, 22]     "asin"        Input   4 Fp32 Fold::Float(f64::asin);   // grad * (-self * self + 1).rsqrt()
    "Asinh"      [9, 22]     "asinh"       Input   3 Keep Fold::Float(f64::asinh);  // grad * (self.pow(2) + 1).rsqrt()
    "Atan"       [7, 22]     "atan"        Input   2 Keep Fold::Float(f64::atan);   // grad / (self * self + 1)
    "Atanh"      [9, 22]     "atanh"       Input   3 Keep Fold::Float(f64::atanh);  // grad * 1 / (1 - self.pow(2))
    "BitwiseNot" [18]        "bitwise_not" NoGrad  0 Keep Fold::Int(|x| !x);
    "Ceil"       [1, 6, 13]  "ceil"        Nothing 0 Keep Fold::Size(Some, f64::ceil);  // zeros_like(grad)
    "Cos"        [7, 22]     "cos"         Input   2 Keep Fold::Float(f64::cos);    // grad * -self.sin()
    "Cosh"       [9, 22]     "cosh"        Input   1 Fp32 Fold::Float(f64::cosh);   // grad * self.sinh()
    "Erf"        [9, 13]     "erf"         Input   4 Keep Fold::Never;  // M_2_SQRTPI * exp(-(self.pow(2))) * grad
    "Exp"        [1, 6, 13]  "exp"         Output  0 Fp32 Fold::Float(f64::exp);    // grad * result
    "Floor"      [1, 6, 13]  "floor"       Nothing 0 Keep Fold::Size(Some, f64::floor); // zeros_like(grad)
    "IsNaN"      [9, 13, 20] "isnan"       NoGrad  0 Keep Fold::FloatIs(f64::is_nan);
    "Log"        [1, 6, 13]  "log"         Input   0 Fp32 Fold::Float(f64::ln);     // grad.div(self)
    "Neg"        [1, 6, 13]  "neg"         Nothing 0 Keep Fold::Either(i64::checked_neg, |x| -x); // grad.neg()
    "Not"        [1]         "logical_not" NoGrad  0 Keep Fold::Int(|x| i64::from(x == 0));
    "Reciprocal" [1, 6, 13]  "reciprocal"  Output  2 Fp32 Fold::Float(f64::recip);  // -grad * (result * result)
    "Round"      [11, 22]    "round"       Nothing 0 Keep Fold::Size(Some, f64::round_ties_even); // zeros_like(grad)
    "Sign"       [9, 13]     "sign"        Nothing 0 Keep Fold::Either(|x| Some(x.signum()), sign); // zeros_like(grad)
    "Sin"        [7, 22]     "sin"         Input   1 Keep Fold::Float(f64::sin);    // grad * self.cos()
    "Sinh"       [9, 22]     "sinh"        Input   1 Fp32 Fold::Float(f64::sinh);   // grad * self.cosh()
    "Sqrt"       [1, 6, 13]  "sqrt"        Output  1 Keep Fold::Float(f64::sqrt);   // grad / (2 * result)
    "Tan"        [7, 22]     "tan"         Output  2 Fp32 Fold::Float(f64::tan);    // grad * (1 + result.pow(2))
}

/// `torch.log1p`, which no file holds: made by recomposition. Its gradient is `grad / (self + 1)`.
pub const LOG1P: Unary = {
    const ROW: Row = Row {
        name: "Log1p",
        function: "log1p",
        keeps: Keeps::Input,
        temporaries: 1,
        autocast: Autocast::Fp32,
        fold: Fold::Float(f64::ln_1p),
    };
    Unary(&ROW)
};

fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

impl Fold {
    fn apply(self, n: &Num) -> Num {
        let whole = |f: fn(i64) -> Option<i64>| n.as_i64().and_then(f).map(Num::Int);
        let float = |f: fn(f64) -> f64| n.as_f64().map(|x| Num::Float(f(x)));
        let folded = match (self, n) {
            (Fold::Never, _) => None,
            (Fold::Size(..), Num::Dim(_)) => Some(n.clone()),
            (Fold::FloatIs(_), Num::Dim(_) | Num::Int(_)) => Some(Num::Int(0)),
            (Fold::Size(_, f) | Fold::Either(_, f), Num::Float(_)) | (Fold::Float(f), _) => float(f),
            (Fold::Size(f, _) | Fold::Either(f, _), _) => whole(f),
            (Fold::Int(f), _) => n.as_i64().map(|x| Num::Int(f(x))),
            (Fold::FloatIs(f), _) => n.as_f64().map(|x| Num::Int(i64::from(f(x)))),
        };
        folded.unwrap_or(Num::Unknown)
    }
}

impl Op for Unary {
    fn name(&self) -> &str {
        self.0.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let dtype = if self.0.name == "IsNaN" { DType::Bool } else { cx.dtype(0) };
        cx.set(0, dtype, cx.shape(0).cloned());
        if let Some(value) = cx.value(0) {
            let folded = fold::unary(value, dtype, |n| self.0.fold.apply(n));
            cx.set_value(0, folded);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        if matches!(self.0.keeps, Keeps::NoGrad) {
            return l.allocate(self.0.name);
        }
        let x = l.input(0);
        let name = if self.0.name == "Round" { "Rint" } else { self.0.name };
        let y = l.unary(name, x);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let row = self.0;
        let shape = l.out_shape(0);
        let (grad, dtype) = match row.keeps {
            Keeps::NoGrad => (Grad::None, OutDtype::Is(l.out_dtype(0))),
            _ => (Grad::Pointwise, OutDtype::Promoted),
        };
        let saved = match row.keeps {
            Keeps::Input => Some(Saved::Input(0)),
            Keeps::Output => Some(Saved::Output(0)),
            Keeps::Nothing | Keeps::NoGrad => None,
        };
        let mut call = Call::new(row.function)
            .autocast(row.autocast)
            .input(Operand::Input(0), grad)
            .output(shape, dtype, Place::Pointwise)
            .saves(saved);
        for _ in 0..row.temporaries {
            call = call.backward_scratch(shape, OutDtype::Promoted);
        }
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{In, calls, float, run};
    use crate::{Attributes, Dim, Value};

    fn fold(op: &str, value: Value) -> Vec<Num> {
        run(op, i64::MAX, Attributes::default(), &[In::Value(value)], 1).unwrap().remove(0).1.unwrap().data
    }

    #[test]
    fn sizes_pass_through_rounding_and_halves_go_to_even() {
        let batch = Num::Dim(Dim::symbol("batch"));
        let sizes = Value::vector(DType::Int64, [batch.clone(), Num::Int(-3)]);
        assert_eq!(fold("Abs", sizes.clone()), [batch.clone(), Num::Int(3)]);
        assert_eq!(fold("Neg", sizes), [Num::Unknown, Num::Int(3)]);
        let floats = Value::vector(DType::Float32, [Num::Float(2.5), Num::Float(-0.5), batch.clone()]);
        assert_eq!(fold("Round", floats.clone()), [Num::Float(2.0), Num::Float(-0.0), batch.clone()]);
        assert_eq!(fold("Floor", floats), [Num::Float(2.0), Num::Float(-1.0), batch]);
        assert_eq!(fold("Not", Value::vector(DType::Bool, [1_i64, 0])), [Num::Int(0), Num::Int(1)]);
        assert_eq!(fold("Abs", Value::scalar(DType::Int64, i64::MIN)), [Num::Unknown]);
        assert_eq!(fold("BitwiseNot", Value::scalar(DType::Uint8, 5_i64)), [Num::Unknown]);
    }

    #[test]
    fn what_is_kept_is_the_table() {
        let call = |op| calls(op, i64::MAX, Attributes::default(), &[float(&[2, 3])], 1).remove(0);
        assert_eq!(call("Exp").saved[..], [Saved::Output(0)]);
        assert_eq!(call("Log").saved[..], [Saved::Input(0)]);
        assert_eq!(call("Acos").backward_scratch.len(), 5);
        assert!(call("Floor").saved.is_empty());
        let test = call("IsNaN");
        assert_eq!((test.outputs[0].dtype, &test.grads[0]), (OutDtype::Is(DType::Bool), &Grad::None));
    }
}
