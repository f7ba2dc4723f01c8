//! CumSum (ONNX 11, 14), CumProd (ONNX 26); Keras `keras.ops.cumsum`, `cumprod`.
//!
//! `cumsum` keeps nothing (`grad.flip(dim).cumsum(dim).flip(dim)`: two temporaries); `cumprod` keeps input and result
//! (`cumprod_backward`, FunctionsManual.cpp). On autocast's fp32 list by a `dtype` argument: the kernel casts its input itself.

use super::reduction::multiply;
use super::sum::add;
use crate::shape::normalize_axis;
use crate::{
    Call, DType, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Value,
};
use std::sync::Arc;

/// A running sum or product along the axis that input 1 gives.
#[derive(Clone, Copy, Debug)]
pub struct Cumulative {
    /// Whether it is the product.
    pub product: bool,
    /// Whether an element itself is left out.
    pub exclusive: bool,
    /// Whether it runs from the end.
    pub reverse: bool,
}

/// How both are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec { domain: "", name: "CumProd", since: &[26], build: |a, _| Ok(Arc::new(read(a, true)?)) },
    OpSpec { domain: "", name: "CumSum", since: &[11, 14], build: |a, _| Ok(Arc::new(read(a, false)?)) },
];

fn read(a: &crate::Attributes, product: bool) -> Result<Cumulative, OpError> {
    Ok(Cumulative { product, exclusive: a.flag("exclusive")?, reverse: a.flag("reverse")? })
}

impl Cumulative {
    fn fold(self, value: &Value, axis: usize) -> Value {
        let mut out = value.clone();
        if out.data.is_empty() {
            return out;
        }
        let extent = usize::try_from(value.shape[axis]).unwrap_or(0);
        let inner = value.shape[axis + 1..].iter().product::<u64>();
        let inner = usize::try_from(inner).unwrap_or(1).max(1);
        let start = match (self.product, value.dtype.is_float()) {
            (true, true) => Num::Float(1.0),
            (true, false) => Num::Int(1),
            (false, true) => Num::Float(0.0),
            (false, false) => Num::Int(0),
        };
        let lanes = (0..value.data.len()).filter(|flat| extent > 0 && flat / inner % extent == 0);
        for lane in lanes {
            let mut total = start.clone();
            for k in 0..extent {
                let k = if self.reverse { extent - 1 - k } else { k };
                let at = lane + k * inner;
                let before = total.clone();
                total = match self.product {
                    true => multiply(&total, &value.data[at]),
                    false => add(&total, &value.data[at]),
                };
                out.data[at] = if self.exclusive { before } else { total.clone() };
            }
        }
        out
    }
}

impl Op for Cumulative {
    fn name(&self) -> &str {
        if self.product { "CumProd" } else { "CumSum" }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        cx.set(0, cx.dtype(0), cx.shape(0).cloned());
        let axis = cx.ints(1).and_then(|v| v.first().copied());
        let (Some(axis), Some(shape)) = (axis, cx.shape(0)) else { return Ok(()) };
        let axis = normalize_axis(axis, shape.rank())
            .ok_or_else(|| OpError::input(1, format!("an axis of shape {shape}"), axis))?;
        if let Some(value) = cx.value(0) {
            cx.set_value(0, self.fold(value, axis));
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let shape = l.out_shape(0);
        let raised = l.autocast.is_some() && l.dtype(0).is_half();
        let dtype = if raised { OutDtype::Is(DType::Float32) } else { OutDtype::Promoted };
        let mut call = Call::new(if self.product { "cumprod" } else { "cumsum" })
            .input(Operand::Input(0), Grad::New)
            .output(shape, dtype, Place::New);
        if raised {
            call = call.scratch(shape, DType::Float32);
        }
        let mut temporaries = 2;
        if self.product {
            // result * grad; its reversed running sum (two flips, a sum); where the input is zero
            temporaries = 3;
            call = call
                .saves([Saved::Input(0), Saved::Output(0)])
                .backward_scratch(shape, OutDtype::Is(DType::Bool));
        }
        for _ in 0..temporaries {
            call = call.backward_scratch(shape, OutDtype::Promoted);
        }
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{In, folded, int, ints};
    use crate::{Attribute, Attributes, DType, Value};

    #[test]
    fn running_sums_go_both_ways() {
        let a = |exclusive, reverse| {
            Attributes::from([("exclusive", Attribute::Int(exclusive)), ("reverse", Attribute::Int(reverse))])
        };
        let sum = |a| folded("CumSum", a, &[ints(&[1, 2, 3]), int(0)]).unwrap();
        assert_eq!(sum(a(0, 0)), [1, 3, 6]);
        assert_eq!(sum(a(1, 0)), [0, 1, 3]);
        assert_eq!(sum(a(0, 1)), [6, 5, 3]);
        assert_eq!(sum(a(1, 1)), [5, 3, 0]);
        assert_eq!(folded("CumProd", a(0, 0), &[ints(&[2, 3, 4]), int(-1)]), Some(vec![2, 6, 24]));
        let matrix = Value { shape: vec![2, 2], ..Value::vector(DType::Int64, [1_i64, 2, 3, 4]) };
        assert_eq!(folded("CumSum", a(0, 0), &[In::Value(matrix), int(0)]), Some(vec![1, 2, 4, 6]));
        assert_eq!(folded("CumSum", a(0, 0), &[ints(&[1]), int(1)]), None);
    }
}
