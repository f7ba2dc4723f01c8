//! Dropout. ONNX 1, 6 (`is_test`), 7, 10, 12 (`training_mode`), 13, 22; Keras `Dropout`.
//!
//! On CUDA it is `native_dropout`, which keeps a mask of one byte an element and nothing else (derivatives.yaml;
//! aten/src/ATen/native/Dropout.cpp: the fused kernel runs for 0 < p < 1). In evaluation or with a ratio of zero it is the
//! input itself.

use super::identity;
use crate::kernels::TfLowering;
use crate::{
    Call, DType, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved,
    TensorType, Type, Value,
};
use std::sync::Arc;

/// Zeroes elements at random.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// The ratio, where it is an attribute.
    pub ratio: Option<f64>,
    /// Whether the file says that it does nothing.
    pub is_test: bool,
    /// Whether the mask is boolean, as it is since opset 10.
    pub bool_mask: bool,
}

/// How Dropout is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Dropout",
    since: &[1, 6, 7, 10, 12, 13, 22],
    build: |a, version| {
        let is_test = version < 7 && a.flag("is_test")?;
        Ok(Arc::new(Dropout { ratio: a.float("ratio")?, is_test, bool_mask: version >= 10 }))
    },
}];

impl Dropout {
    /// Whether elements are dropped in a training step. A file without `training_mode` was exported from a model that drops
    /// in training; one that sets it to false says that this one does not.
    fn drops(&self, ratio: Option<&Value>, training_mode: Option<&Value>, training: bool) -> bool {
        let ratio = self.ratio.or_else(|| ratio.and_then(Value::single).and_then(Num::as_f64)).unwrap_or(0.5);
        let off = training_mode.and_then(Value::single).and_then(Num::as_i64) == Some(0);
        training && !self.is_test && !off && ratio != 0.0
    }
}

impl Op for Dropout {
    fn name(&self) -> &str {
        "Dropout"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?.clone();
        let mask = TensorType {
            dtype: if self.bool_mask { DType::Bool } else { cx.dtype(0) },
            shape: x.shape().cloned(),
        };
        cx.set_type(0, x);
        cx.set_type(1, Type::Tensor(mask));
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.input(0);
        if self.drops(l.value(1), l.value(2), l.compute.training) {
            let shape = l.out_shape(0);
            let y = l.dropout(x, shape);
            l.bind(0, y);
        } else {
            l.bind(0, x);
        }
        if l.wants(1) {
            let (shape, dtype) = (l.out_shape(1), l.out_dtype(1));
            let mask = l.make("OnesLike", &[], shape, dtype, None);
            l.bind(1, mask);
        }
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let shape = l.out_shape(0);
        if !self.drops(l.value(1), l.value(2), l.training) {
            l.finish(identity::alias(l));
            if l.wants(1) {
                let mask = Call::new("ones_like").input(Operand::Input(0), Grad::None);
                let mask = l.call(mask.output(shape, OutDtype::Is(l.out_dtype(1)), Place::Pointwise));
                l.bind(1, mask);
            }
            return;
        }
        let call = Call::new("native_dropout")
            .input(Operand::Input(0), Grad::New)
            .output(shape, OutDtype::Like(0), Place::Pointwise)
            .output(shape, OutDtype::Is(DType::Bool), Place::Pointwise)
            .saves([Saved::Output(1)]);
        super::bind_used(l, call);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, calls, float, run};
    use super::*;
    use crate::{Attribute, Attributes};

    fn value(dtype: DType, n: impl Into<Num>) -> In {
        In::Value(Value::scalar(dtype, n))
    }

    #[test]
    fn the_mask_has_a_type_of_its_own() {
        let mask =
            |version| run("Dropout", version, Attributes::default(), &[float(&[2])], 2).unwrap()[1].0.dtype();
        assert_eq!(mask(10), Some(DType::Bool));
        assert_eq!(mask(7), Some(DType::Float32));
    }

    #[test]
    fn only_training_with_a_ratio_draws_a_mask() {
        let name = |version, a, rest: &[In]| {
            calls("Dropout", version, a, &[&[float(&[2])], rest].concat(), 1)[0].function
        };
        let none = Attributes::default;
        let ratio = |x: f64| value(DType::Float32, x);
        let training = |n: i64| value(DType::Bool, n);
        assert_eq!(name(13, none(), &[ratio(0.1), training(1)]), "native_dropout");
        assert_eq!(name(13, none(), &[ratio(0.1), training(0)]), "alias");
        assert_eq!(name(13, none(), &[ratio(0.0), training(1)]), "alias");
        assert_eq!(name(13, none(), &[]), "native_dropout");
        assert_eq!(name(6, Attributes::from([("is_test", Attribute::Int(1))]), &[]), "alias");
        assert_eq!(name(6, none(), &[]), "native_dropout");
        let kept = calls("Dropout", 13, none(), &[float(&[2])], 2);
        assert_eq!(kept[0].saved[..], [Saved::Output(1)]);
    }
}
