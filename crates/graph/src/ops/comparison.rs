//! Comparisons and logic of two tensors: Equal, Greater, GreaterOrEqual, Less, LessOrEqual, And, Or, Xor, BitShift,
//! BitwiseAnd, BitwiseOr, BitwiseXor. Keras has them as `keras.ops`.
//!
//! The result is a truth value or an integer, which has no gradient (derivatives.yaml: `output_differentiability: [False]`),
//! so nothing is kept: one byte per element of a bool is all that they cost.

use super::{fold, legacy};
use crate::kernels::TfLowering;
use crate::{Call, DType, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place};
use std::cmp::Ordering;
use std::sync::Arc;

/// A row of the table: one ONNX operator.
#[derive(Debug)]
struct Row {
    name: &'static str,
    /// ATen's name.
    function: &'static str,
    fold: Fold,
}

/// How a pair of elements is folded.
#[derive(Clone, Copy, Debug)]
enum Fold {
    /// A truth value from the order of the two.
    Order(fn(Ordering) -> bool),
    /// Two integers or truth values.
    Int(fn(i64, i64) -> i64),
    Never,
}

/// A comparison or a logical operation.
#[derive(Clone, Copy, Debug)]
pub struct Comparison(&'static Row);

macro_rules! comparison {
    ($($name:literal $since:tt $function:literal $fold:expr;)*) => {
        /// How each row is found.
        pub const SPECS: &[OpSpec] = &[$(OpSpec {
            domain: "",
            name: $name,
            since: &$since,
            build: |a, version| {
                const ROW: Row = Row { name: $name, function: $function, fold: $fold };
                legacy::wrap(Arc::new(Comparison(&ROW)), ROW.dtype(), a, version)
            },
        }),*];
    };
}

comparison! {
    "And"            [1, 7]            "logical_and" Fold::Int(|a, b| a & b);
    "BitShift"       [11, 28]          "bitwise_left_shift" Fold::Never;
    "BitwiseAnd"     [18]              "bitwise_and" Fold::Int(|a, b| a & b);
    "BitwiseOr"      [18]              "bitwise_or"  Fold::Int(|a, b| a | b);
    "BitwiseXor"     [18]              "bitwise_xor" Fold::Int(|a, b| a ^ b);
    "Equal"          [1, 7, 11, 13, 19] "eq" Fold::Order(Ordering::is_eq);
    "Greater"        [1, 7, 9, 13]     "gt" Fold::Order(Ordering::is_gt);
    "GreaterOrEqual" [12, 16]          "ge" Fold::Order(Ordering::is_ge);
    "Less"           [1, 7, 9, 13]     "lt" Fold::Order(Ordering::is_lt);
    "LessOrEqual"    [12, 16]          "le" Fold::Order(Ordering::is_le);
    "Or"             [1, 7]            "logical_or"  Fold::Int(|a, b| a | b);
    "Xor"            [1, 7]            "logical_xor" Fold::Int(|a, b| a ^ b);
}

/// How two elements compare, where that is certain: a size is never negative, and equals itself.
fn order(a: &Num, b: &Num) -> Option<Ordering> {
    match (a, b) {
        (Num::Unknown, _) | (_, Num::Unknown) => None,
        (Num::Int(a), Num::Int(b)) => Some(a.cmp(b)),
        (Num::Dim(a), Num::Dim(b)) if a == b => Some(Ordering::Equal),
        (Num::Dim(_), n) if n.as_f64().is_some_and(|x| x < 0.0) => Some(Ordering::Greater),
        (n, Num::Dim(_)) if n.as_f64().is_some_and(|x| x < 0.0) => Some(Ordering::Less),
        (Num::Dim(d), n) if d.upper().zip(n.as_f64()).is_some_and(|(u, x)| (u as f64) < x) => {
            Some(Ordering::Less)
        }
        (n, Num::Dim(d)) if d.upper().zip(n.as_f64()).is_some_and(|(u, x)| (u as f64) < x) => {
            Some(Ordering::Greater)
        }
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

impl Fold {
    fn apply(self, a: &Num, b: &Num) -> Num {
        let folded = match self {
            Fold::Order(f) => order(a, b).map(|o| i64::from(f(o))),
            Fold::Int(f) => a.as_i64().zip(b.as_i64()).map(|(a, b)| f(a, b)),
            Fold::Never => None,
        };
        folded.map_or(Num::Unknown, Num::Int)
    }
}

impl Row {
    /// The dtype of the result, where it is not that of the inputs.
    fn dtype(&self) -> Option<DType> {
        matches!(self.fold, Fold::Order(_)).then_some(DType::Bool)
    }
}

impl Op for Comparison {
    fn name(&self) -> &str {
        self.0.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let dtype = self.0.dtype().unwrap_or(cx.dtype(0));
        super::infer_broadcast(cx, Some(dtype))?;
        if let (Some(a), Some(b)) = (cx.value(0), cx.value(1))
            && let Some(value) = fold::binary(a, b, dtype, |a, b| self.0.fold.apply(a, b))
        {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        l.allocate(self.0.name);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call = Call::new(self.0.function)
            .input(Operand::Input(0), Grad::None)
            .input(Operand::Input(1), Grad::None)
            .output(l.out_shape(0), OutDtype::Is(l.out_dtype(0)), Place::Pointwise);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{In, run};
    use crate::{Attributes, Dim, Value};

    fn compare(op: &str, a: Num, b: Num) -> Num {
        let inputs = [In::Value(Value::scalar(DType::Int64, a)), In::Value(Value::scalar(DType::Int64, b))];
        run(op, i64::MAX, Attributes::default(), &inputs, 1).unwrap().remove(0).1.unwrap().data.remove(0)
    }

    #[test]
    fn symbolic_sizes_compare_where_it_is_certain() {
        let (batch, small) = (|| Num::Dim(Dim::symbol("batch")), || Num::Dim(Dim::unknown("n", Some(4))));
        assert_eq!(compare("Equal", batch(), batch()), Num::Int(1));
        assert_eq!(compare("Equal", batch(), Num::Int(1)), Num::Unknown);
        assert_eq!(compare("Equal", batch(), Num::Int(-1)), Num::Int(0));
        assert_eq!(compare("Less", small(), Num::Int(5)), Num::Int(1));
        assert_eq!(compare("GreaterOrEqual", Num::Int(5), small()), Num::Int(1));
        assert_eq!(compare("LessOrEqual", Num::Int(4), small()), Num::Unknown);
        assert_eq!(compare("And", Num::Int(1), Num::Int(0)), Num::Int(0));
    }

    #[test]
    fn an_old_opset_lays_the_second_input_at_an_axis() {
        use crate::Attribute;
        let attributes = Attributes::from([("broadcast", Attribute::Int(1)), ("axis", Attribute::Int(1))]);
        let inputs = [crate::ops::testing::float(&[2, 3, 4]), crate::ops::testing::float(&[3])];
        let out = run("Greater", 6, attributes, &inputs, 1).unwrap().remove(0).0;
        assert_eq!((out.dtype(), out.shape().unwrap().to_string()), (Some(DType::Bool), "2x3x4".into()));
    }
}
