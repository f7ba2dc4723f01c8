//! Constant. ONNX 1, 9, 11 (`sparse_value`), 12 (numbers and texts), 13, 19, 21, 23, 24, 25.
//!
//! Importers turn it into an initializer; this is for those that stay a node.

use crate::kernels::TfLowering;
use crate::{Attributes, DType, Infer, Lowering, Num, Op, OpError, OpSpec, Shape, Type, Value};
use std::sync::Arc;

/// A tensor stored in the file.
#[derive(Clone, Debug)]
pub struct Constant {
    /// Its type.
    pub ty: Type,
    /// Its elements, where they are few.
    pub value: Option<Value>,
}

/// How Constant is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Constant",
    since: &[1, 9, 11, 12, 13, 19, 21, 23, 24, 25],
    build: |a, _| Ok(Arc::new(Constant::read(a)?)),
}];

impl Constant {
    fn read(a: &Attributes) -> Result<Constant, OpError> {
        if let Some(t) = a.tensor("value")? {
            return Ok(Constant { ty: Type::tensor(t.dtype, Shape::from(&t.shape[..])), value: t.value });
        }
        if let Some(n) = a.int("value_int")? {
            return Ok(Constant::of(Value::scalar(DType::Int64, n)));
        }
        if let Some(x) = a.float("value_float")? {
            return Ok(Constant::of(Value::scalar(DType::Float32, x)));
        }
        if let Some(n) = a.ints("value_ints")? {
            return Ok(Constant::of(Value::vector(DType::Int64, n)));
        }
        if let Some(x) = a.floats("value_floats")? {
            return Ok(Constant::of(Value::vector(DType::Float32, x)));
        }
        let texts = a.texts("value_strings")?.map(|t| Shape::from([t.len() as u64]));
        let text = a.text("value_string")?.map(|_| Shape::scalar());
        if let Some(shape) = texts.or(text) {
            return Ok(Constant { ty: Type::tensor(DType::String, shape), value: None });
        }
        if a.has("sparse_value") {
            return Ok(Constant { ty: Type::Unknown, value: None });
        }
        Err(OpError::missing_attribute("value"))
    }

    fn of(value: Value) -> Constant {
        let ty = Type::tensor(value.dtype, value.dims());
        // Too many elements are not folded.
        let value = (value.data.len() as u64 <= Value::MAX_ELEMENTS).then_some(value);
        Constant { ty, value: value.filter(|v| v.data.iter().all(|n| *n != Num::Unknown)) }
    }
}

impl Op for Constant {
    fn name(&self) -> &str {
        "Constant"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        match &self.value {
            Some(value) => cx.set_value(0, value.clone()),
            None => cx.set_type(0, self.ty.clone()),
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        l.allocate("Const");
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        super::allocate(l, "constant");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use crate::Attribute;

    #[test]
    fn every_kind_of_value_is_read() {
        let of = |name: &str, attribute| {
            let (ty, value) = run("Constant", 13, Attributes::from([(name, attribute)]), &[], 1)?.remove(0);
            Ok::<_, String>((ty.dtype(), ty.shape().map(Shape::to_string), value.is_some()))
        };
        let typed = |dtype, shape: &str, known| (Some(dtype), Some(shape.to_owned()), known);
        assert_eq!(of("value_int", Attribute::Int(3)).unwrap(), typed(DType::Int64, "scalar", true));
        assert_eq!(
            of("value_floats", Attribute::Floats(vec![1.0])).unwrap(),
            typed(DType::Float32, "1", true)
        );
        assert_eq!(
            of("value_ints", Attribute::Ints(vec![0; 5000])).unwrap(),
            typed(DType::Int64, "5000", false)
        );
        assert_eq!(
            of("value_string", Attribute::Text("a".into())).unwrap(),
            typed(DType::String, "scalar", false)
        );
        assert!(of("other", Attribute::Int(3)).is_err());
    }
}
