//! Optional, OptionalGetElement, OptionalHasElement. ONNX 15, 18 (also on values that are never absent), 28.

use super::identity;
use crate::{Build, DType, Infer, Lowering, Op, OpError, OpSpec, Shape, Type, Value};
use std::sync::Arc;

/// Which of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Optional {
    Make,
    Get,
    Has,
}

/// How the three are found.
pub const SPECS: &[OpSpec] = &[
    spec("Optional", &[15, 28], |_, _| Ok(Arc::new(Optional::Make))),
    spec("OptionalGetElement", &[15, 18, 28], |_, _| Ok(Arc::new(Optional::Get))),
    spec("OptionalHasElement", &[15, 18, 28], |_, _| Ok(Arc::new(Optional::Has))),
];

const fn spec(name: &'static str, since: &'static [i64], build: Build) -> OpSpec {
    OpSpec { domain: "", name, since, build }
}

impl Op for Optional {
    fn name(&self) -> &str {
        match self {
            Optional::Make => "Optional",
            Optional::Get => "OptionalGetElement",
            Optional::Has => "OptionalHasElement",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        match (self, cx.ty(0)) {
            (Optional::Make, ty) => {
                let element = Box::new(ty.clone());
                cx.set_type(0, Type::Optional { element, present: Some(cx.has(0)) });
            }
            (Optional::Get, Type::Optional { present: Some(false), .. }) => {
                return Err(OpError::input(0, "an optional that has a value", "an empty one"));
            }
            (Optional::Get, Type::Optional { element, .. }) => cx.set_type(0, (**element).clone()),
            (Optional::Get, _) => {
                cx.require(0)?;
                cx.forward(0, 0);
            }
            (Optional::Has, ty) => {
                let present = match ty {
                    Type::Optional { present, .. } => *present,
                    Type::Unknown if cx.has(0) => None,
                    _ => Some(cx.has(0)),
                };
                match present {
                    Some(b) => cx.set_value(0, Value::scalar(DType::Bool, i64::from(b))),
                    None => cx.set(0, DType::Bool, Some(Shape::scalar())),
                }
            }
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        match self {
            Optional::Make | Optional::Get if l.state(0).is_some() => l.finish(identity::alias(l)),
            _ => super::allocate(l, "is_not_none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, run};
    use super::*;
    use crate::Attributes;

    #[test]
    fn presence_is_followed() {
        let one = |op: &str, inputs: &[In]| {
            Ok::<_, String>(run(op, 18, Attributes::default(), inputs, 1)?.remove(0))
        };
        let has = |inputs: &[In]| one("OptionalHasElement", inputs).unwrap().1.and_then(|v| v.ints());
        let tensor = Type::tensor(DType::Float32, Shape::from([2]));
        let optional = |present| In::Typed(Type::Optional { element: Box::new(tensor.clone()), present });
        assert_eq!(has(&[]), Some(vec![0]));
        assert_eq!(has(&[float(&[2])]), Some(vec![1]));
        assert_eq!(has(&[optional(Some(false))]), Some(vec![0]));
        assert_eq!(has(&[optional(None)]), None);
        assert_eq!(one("OptionalGetElement", &[optional(None)]).unwrap().0, tensor);
        assert!(one("OptionalGetElement", &[optional(Some(false))]).is_err());
        assert_eq!(one("Optional", &[float(&[2])]).unwrap().0, {
            Type::Optional { element: Box::new(tensor.clone()), present: Some(true) }
        });
    }
}
