//! IsInf. ONNX 10, 20; Keras `keras.ops.isinf`.
//!
//! `x.abs() == inf` in PyTorch: one temporary, and a bool without gradient.

use super::fold;
use crate::{Call, DType, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place};
use std::sync::Arc;

/// Whether each element is infinite.
#[derive(Clone, Copy, Debug)]
pub struct IsInf {
    /// Whether the negative infinity counts.
    pub negative: bool,
    /// Whether the positive infinity counts.
    pub positive: bool,
}

/// How IsInf is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "IsInf",
    since: &[10, 20],
    build: |a, _| {
        let counts = |name| Ok::<_, OpError>(a.int(name)?.unwrap_or(1) != 0);
        Ok(Arc::new(IsInf { negative: counts("detect_negative")?, positive: counts("detect_positive")? }))
    },
}];

impl Op for IsInf {
    fn name(&self) -> &str {
        "IsInf"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.set(0, DType::Bool, cx.shape(0).cloned());
        if let Some(value) = cx.value(0) {
            let is_inf = |x: f64| x.is_infinite() && if x > 0.0 { self.positive } else { self.negative };
            let fold = |n: &Num| match n {
                Num::Dim(_) => Num::Int(0),
                n => n.as_f64().map_or(Num::Unknown, |x| Num::Int(i64::from(is_inf(x)))),
            };
            cx.set_value(0, fold::unary(value, DType::Bool, fold));
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let shape = l.out_shape(0);
        let call = Call::new("isinf")
            .input(Operand::Input(0), Grad::None)
            .output(shape, OutDtype::Is(DType::Bool), Place::Pointwise)
            .scratch(shape, l.dtype(0));
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{In, folded};
    use crate::{Attribute, Attributes, Value};

    #[test]
    fn either_infinity_can_be_left_out() {
        let x = [f64::NEG_INFINITY, 1.0, f64::INFINITY].map(Num::Float);
        let x = || In::Value(Value::vector(DType::Float32, x.clone()));
        let no_negative = Attributes::from([("detect_negative", Attribute::Int(0))]);
        assert_eq!(folded("IsInf", Attributes::default(), &[x()]), Some(vec![1, 0, 1]));
        assert_eq!(folded("IsInf", no_negative, &[x()]), Some(vec![0, 0, 1]));
    }
}
