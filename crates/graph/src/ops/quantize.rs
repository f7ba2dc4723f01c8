//! QuantizeLinear, DequantizeLinear (ONNX 10, 13, 19, 21, 23, 24, 25, 28), DynamicQuantizeLinear (11), and the same in
//! com.microsoft.
//!
//! Integers have no gradient, so nothing is kept: a model with these nodes was quantised for inference. Training that
//! imitates quantisation runs other operators.

use super::dtype_attribute;
use crate::{
    Attributes, Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Shape,
};
use std::sync::Arc;

/// Between floats and scaled integers.
#[derive(Clone, Copy, Debug)]
pub struct Quantize {
    /// The operator's name.
    pub name: &'static str,
    /// Which of the three.
    pub kind: QuantizeKind,
    /// The result's type, where the file gives it.
    pub output: Option<DType>,
}

/// Which of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantizeKind {
    /// Floats to integers with a given scale.
    To,
    /// Integers to floats.
    From,
    /// Floats to integers with a scale of their own.
    Dynamic,
}

const SINCE: &[i64] = &[10, 13, 19, 21, 23, 24, 25, 28];

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "QuantizeLinear",
        since: SINCE,
        build: |a, _| build(a, "QuantizeLinear", QuantizeKind::To),
    },
    OpSpec {
        domain: "",
        name: "DequantizeLinear",
        since: SINCE,
        build: |a, _| build(a, "DequantizeLinear", QuantizeKind::From),
    },
    OpSpec {
        domain: "",
        name: "DynamicQuantizeLinear",
        since: &[11],
        build: |a, _| build(a, "DynamicQuantizeLinear", QuantizeKind::Dynamic),
    },
    OpSpec {
        domain: "com.microsoft",
        name: "QuantizeLinear",
        since: &[1],
        build: |a, _| build(a, "com.microsoft.QuantizeLinear", QuantizeKind::To),
    },
    OpSpec {
        domain: "com.microsoft",
        name: "DequantizeLinear",
        since: &[1],
        build: |a, _| build(a, "com.microsoft.DequantizeLinear", QuantizeKind::From),
    },
];

fn build(a: &mut Attributes, name: &'static str, kind: QuantizeKind) -> Result<Arc<dyn Op>, OpError> {
    let given = a.int("output_dtype")?.is_some_and(|n| n != 0);
    let output = if given { dtype_attribute(a, "output_dtype")? } else { None };
    Ok(Arc::new(Quantize { name, kind, output }))
}

impl Op for Quantize {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let shape = cx.shape(0).cloned();
        match self.kind {
            QuantizeKind::To => {
                cx.require(1)?;
                let zero_point = if cx.has(2) { Some(cx.dtype(2)) } else { self.output };
                cx.set(0, zero_point.unwrap_or(DType::Uint8), shape);
            }
            QuantizeKind::From => {
                cx.require(1)?;
                cx.set(0, self.output.unwrap_or(cx.dtype(1)), shape);
            }
            QuantizeKind::Dynamic => {
                cx.set(0, DType::Uint8, shape);
                cx.set(1, DType::Float32, Some(Shape::scalar()));
                cx.set(2, DType::Uint8, Some(Shape::scalar()));
            }
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        without_gradient(
            l,
            if self.kind == QuantizeKind::From { "dequantize" } else { "quantize_per_tensor" },
        );
    }
}

/// One call that reads all inputs, makes all outputs and has no gradient: what a quantised operator is to training.
pub(super) fn without_gradient(l: &mut Lowering<'_>, name: &'static str) {
    let mut call = Call::new(name);
    for i in (0..l.input_count()).filter(|i| l.state(*i).is_some()) {
        call = call.input(Operand::Input(i), Grad::None);
    }
    let used: Vec<usize> = (0..l.output_count()).filter(|j| l.wants(*j)).collect();
    for j in &used {
        call = call.output(l.out_shape(*j), OutDtype::Is(l.out_dtype(*j)), Place::New);
    }
    if let Operand::Result { call, .. } = l.call(call) {
        for (output, j) in used.into_iter().enumerate() {
            l.bind(j, Operand::Result { call, output });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, In, float};
    use super::*;
    use crate::{Attribute, Type};

    #[test]
    fn the_zero_point_gives_the_type() {
        let int8 = In::Typed(Type::tensor(DType::Int8, Shape::scalar()));
        let dtype = |attributes, inputs: &[In]| {
            testing::run("QuantizeLinear", 21, attributes, inputs, 1).unwrap()[0].0.dtype().unwrap()
        };
        let plain = [float(&[2, 3]), float(&[])];
        assert_eq!(dtype(Attributes::default(), &plain), DType::Uint8);
        assert_eq!(dtype(Attributes::default(), &[float(&[2, 3]), float(&[]), int8]), DType::Int8);
        assert_eq!(dtype(Attributes::from([("output_dtype", Attribute::Int(16))]), &plain), DType::Bfloat16);
    }

    #[test]
    fn all_outputs_are_made_and_nothing_is_kept() {
        let calls = testing::calls("DynamicQuantizeLinear", 11, Attributes::default(), &[float(&[8])], 3);
        assert_eq!((calls.len(), calls[0].outputs.len()), (1, 3));
        assert!(calls[0].saved.is_empty());
    }
}
