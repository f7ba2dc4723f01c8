//! Clip. ONNX 1, 6, 11, 12, 13; Keras `keras.ops.clip`, `ReLU(max_value=6)`.
//!
//! It keeps its **input**. Between 0 and 6 or −1 and 1 it is `hardtanh` (ReLU6, Hardtanh), else `clamp`, whose gradient goes
//! through masks (FunctionsManual.cpp, `clamp_backward`). derivatives.yaml has no row for `hardtanh_`, so in place, which is how
//! torchvision and timm run ReLU6, autograd clones the input before it is overwritten: the same bytes as out of place
//! (MobileNetV2 keeps 35 such copies beside the 52 inputs of its convolutions). Bounds that are tensors with a gradient of
//! their own are not modelled apart from their being kept.

use super::fold;
use crate::kernels::TfLowering;
use crate::{
    Call, DType, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Value,
};
use std::sync::Arc;

/// Elements held between bounds, which inputs 1 and 2 give (attributes before opset 11).
#[derive(Clone, Copy, Debug)]
pub struct Clip {
    /// The lower bound, where it is an attribute.
    pub min: Option<f64>,
    /// The upper bound, where it is an attribute.
    pub max: Option<f64>,
}

/// How Clip is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Clip",
    since: &[1, 6, 11, 12, 13],
    build: |a, _| Ok(Arc::new(Clip { min: a.float("min")?, max: a.float("max")? })),
}];

/// One bound.
#[derive(Clone, Debug)]
enum Bound {
    None,
    Number(Num),
    Unknown,
}

impl Clip {
    fn bound(attribute: Option<f64>, given: bool, value: Option<&Value>) -> Bound {
        // Exporters write the largest float for a bound that is not there.
        let is_absent = |n: &Num| matches!(n, Num::Float(x) if x.abs() >= f64::from(f32::MAX));
        match (attribute, value.and_then(Value::single)) {
            (_, Some(Num::Unknown)) => Bound::Unknown,
            (Some(x), _) if is_absent(&Num::Float(x)) => Bound::None,
            (_, Some(n)) if is_absent(n) => Bound::None,
            (_, Some(n)) => Bound::Number(n.clone()),
            (Some(x), None) => Bound::Number(Num::Float(x)),
            (None, None) if given => Bound::Unknown,
            (None, None) => Bound::None,
        }
    }

    fn fold(n: &Num, min: &Bound, max: &Bound) -> Num {
        match (min, max) {
            (Bound::Unknown, _) | (_, Bound::Unknown) => Num::Unknown,
            (Bound::None, Bound::None) => n.clone(),
            (Bound::Number(b), Bound::None) => fold::extremum(n, b, false),
            (Bound::None, Bound::Number(b)) => fold::extremum(n, b, true),
            (Bound::Number(low), Bound::Number(high)) => {
                fold::extremum(&fold::extremum(n, low, false), high, true)
            }
        }
    }
}

/// `clamp` between numbers: `where(self >= min and self <= max, grad, 0)`, one mask a bound.
pub(super) fn clamp(shape: &[u64], x: Operand, has_min: bool, has_max: bool) -> Call {
    let mut call = Call::new("clamp")
        .input(x, Grad::Pointwise)
        .output(shape, OutDtype::Promoted, Place::Pointwise)
        .saves([Saved::Input(0)])
        .backward_scratch(&[], OutDtype::Promoted);
    for _ in 0..usize::from(has_min) + usize::from(has_max) {
        call = call.backward_scratch(shape, OutDtype::Is(DType::Bool));
    }
    call
}

impl Op for Clip {
    fn name(&self) -> &str {
        "Clip"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.set(0, cx.dtype(0), cx.shape(0).cloned());
        let min = Clip::bound(self.min, cx.has(1), cx.value(1));
        let max = Clip::bound(self.max, cx.has(2), cx.value(2));
        if let Some(value) = cx.value(0) {
            cx.set_value(0, fold::unary(value, value.dtype, |n| Clip::fold(n, &min, &max)));
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.input(0);
        let y = l.clipped(x);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let shape = l.out_shape(0);
        let min = Clip::bound(self.min, l.state(1).is_some(), l.value(1));
        let max = Clip::bound(self.max, l.state(2).is_some(), l.value(2));
        let number = |b: &Bound| if let Bound::Number(n) = b { n.as_f64() } else { None };
        let bounds = (number(&min), number(&max));
        if bounds == (Some(0.0), Some(6.0)) || bounds == (Some(-1.0), Some(1.0)) {
            let call = Call::new("hardtanh")
                .input(Operand::Input(0), Grad::Pointwise)
                .output(shape, OutDtype::Promoted, Place::Pointwise)
                .saves([Saved::Input(0)]);
            return l.finish(call);
        }
        let (has_min, has_max) = (!matches!(min, Bound::None), !matches!(max, Bound::None));
        l.finish(clamp(shape, Operand::Input(0), has_min, has_max));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{In, calls, float, folded, int, ints};
    use crate::{Attribute, Attributes};

    #[test]
    fn bounds_come_from_attributes_or_inputs() {
        let none = Attributes::default;
        assert_eq!(folded("Clip", none(), &[ints(&[-3, 2, 9]), int(0), int(6)]), Some(vec![0, 2, 6]));
        assert_eq!(folded("Clip", none(), &[ints(&[-3, 9]), In::Absent, int(6)]), Some(vec![-3, 6]));
        let unknown = In::Typed(crate::Type::tensor(DType::Int64, crate::Shape::scalar()));
        assert_eq!(folded("Clip", none(), &[ints(&[-3, 9]), unknown]), None);
    }

    #[test]
    fn relu6_is_hardtanh_and_keeps_its_input() {
        let bounds =
            |min, max| Attributes::from([("min", Attribute::Float(min)), ("max", Attribute::Float(max))]);
        let call = |min, max| calls("Clip", 6, bounds(min, max), &[float(&[2, 3])], 1).remove(0);
        let relu6 = call(0.0, 6.0);
        assert_eq!((relu6.function, &relu6.saved[..]), ("hardtanh", &[Saved::Input(0)][..]));
        assert_eq!(relu6.backward_scratch.len(), 0);
        // One mask, and the zero it is filled with.
        assert_eq!(call(1e-6, f64::from(f32::MAX)).backward_scratch.len(), 2);
    }
}
