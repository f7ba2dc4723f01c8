//! Cast, CastLike, BitCast. ONNX Cast 1, 6, 9, 13, 19, 21, 23, 24, 25, 28; CastLike 15, 19, 21, 23, 24, 25; BitCast 26.
//!
//! Autograd keeps nothing (derivatives.yaml: `_to_copy_backward` casts the gradient back); a cast to the same type is
//! the same tensor. There is no gradient through integers.

use super::{fold, identity};
use crate::kernels::TfLowering;
use crate::{Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, View};
use std::sync::Arc;

/// Changes the element type by value or by bits.
#[derive(Clone, Copy, Debug)]
pub enum Cast {
    /// To this type.
    To(DType),
    /// To the type of input 1.
    Like,
    /// The same bits seen as this type.
    Bits(DType),
}

/// How the three are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "BitCast",
        since: &[26],
        build: |a, _| {
            let to = super::dtype_attribute(a, "to")?.ok_or_else(|| OpError::missing_attribute("to"))?;
            Ok(Arc::new(Cast::Bits(to)))
        },
    },
    OpSpec {
        domain: "",
        name: "Cast",
        since: &[1, 6, 9, 13, 19, 21, 23, 24, 25, 28],
        build: |a, version| {
            if version < 6
                && let Ok(Some(name)) = a.text("to")
            {
                return Ok(Arc::new(Cast::To(named(&name)?)));
            }
            let to = super::dtype_attribute(a, "to")?.ok_or_else(|| OpError::missing_attribute("to"))?;
            Ok(Arc::new(Cast::To(to)))
        },
    },
    OpSpec {
        domain: "",
        name: "CastLike",
        since: &[15, 19, 21, 23, 24, 25],
        build: |_, _| Ok(Arc::new(Cast::Like)),
    },
];

/// The type that opset 1 gives by its upper-case name; `FLOAT` and `DOUBLE` are the only ones unlike ours.
fn named(name: &str) -> Result<DType, OpError> {
    let lower = name.to_ascii_lowercase();
    let lower = match &*lower {
        "float" => "float32",
        "double" => "float64",
        other => other,
    };
    let found = DType::ALL.into_iter().find(|d| d.name() == lower);
    found.ok_or_else(|| OpError::attribute("to", "the name of an element type", name))
}

impl Op for Cast {
    fn name(&self) -> &str {
        match self {
            Cast::To(_) => "Cast",
            Cast::Like => "CastLike",
            Cast::Bits(_) => "BitCast",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let to = match self {
            Cast::To(to) => *to,
            Cast::Like => cx.require(1)?.dtype().unwrap_or(DType::Undefined),
            Cast::Bits(to) => {
                let from = cx.dtype(0);
                if from != DType::Undefined && from.bits() != to.bits() {
                    return Err(OpError::input(0, format!("a type as wide as {to}"), from));
                }
                *to
            }
        };
        cx.set(0, to, cx.shape(0).cloned());
        if let (Some(value), Cast::To(_) | Cast::Like) = (cx.value(0), self) {
            cx.set_value(0, fold::unary(value, to, |n| fold::cast(n, to)));
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, dtype) = (l.raw(0), l.out_dtype(0));
        let y = l.cast(x, dtype);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (from, to) = (l.dtype(0), l.out_dtype(0));
        if from == to {
            return l.finish(identity::alias(l));
        }
        if let Cast::Bits(_) = self {
            let call = Call::new("view").input(Operand::Input(0), Grad::None);
            return l.finish(call.output(l.out_shape(0), OutDtype::Is(to), Place::View(0, View::Alias)));
        }
        let grad = if from.is_float() && to.is_float() { Grad::Pointwise } else { Grad::None };
        let call = Call::new("_to_copy").input(Operand::Input(0), grad);
        l.finish(call.output(l.out_shape(0), OutDtype::Is(to), Place::Pointwise));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, calls, float, folded, run};
    use super::*;
    use crate::{Attribute, Attributes, Value};

    fn to(n: i64) -> Attributes {
        Attributes::from([("to", Attribute::Int(n))])
    }

    #[test]
    fn the_type_changes_and_values_follow() {
        let out = run("Cast", 13, to(10), &[float(&[2, 3])], 1).unwrap();
        assert_eq!(
            (out[0].0.dtype(), out[0].0.shape().unwrap().to_string()),
            (Some(DType::Float16), "2x3".into())
        );
        let floats = In::Value(Value::vector(DType::Float32, [1.9, -1.9]));
        assert_eq!(folded("Cast", to(7), std::slice::from_ref(&floats)).unwrap(), [1, -1]);
        assert!(run("Cast", 13, to(99), &[float(&[2])], 1).is_err());
        assert!(run("Cast", 13, Attributes::default(), &[float(&[2])], 1).is_err());
        let old = Attributes::from([("to", Attribute::Text("DOUBLE".into()))]);
        assert_eq!(run("Cast", 1, old, &[float(&[2])], 1).unwrap()[0].0.dtype(), Some(DType::Float64));
        assert_eq!(
            run("CastLike", 15, to(1), &[float(&[2]), floats], 1).unwrap()[0].0.dtype(),
            Some(DType::Float32)
        );
    }

    #[test]
    fn bits_keep_their_width() {
        assert_eq!(run("BitCast", 26, to(6), &[float(&[2])], 1).unwrap()[0].0.dtype(), Some(DType::Int32));
        assert!(run("BitCast", 26, to(7), &[float(&[2])], 1).is_err());
    }

    #[test]
    fn only_a_change_of_type_copies() {
        assert_eq!(calls("Cast", 13, to(1), &[float(&[2])], 1)[0].function, "alias");
        assert_eq!(calls("Cast", 13, to(10), &[float(&[2])], 1)[0].grads[..], [Grad::Pointwise]);
        assert_eq!(calls("Cast", 13, to(7), &[float(&[2])], 1)[0].grads[..], [Grad::None]);
    }
}
