//! ArgMax, ArgMin. ONNX 1, 11, 12, 13; Keras `keras.ops.argmax`.
//!
//! Indices are int64 and have no gradient; nothing is kept.

use super::reduction::{groups, reduced};
use crate::kernels::TfLowering;
use crate::shape::normalize_axis;
use crate::{Call, DType, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Value};
use std::cmp::Ordering;
use std::sync::Arc;

/// The index of the largest or smallest element along an axis.
#[derive(Clone, Copy, Debug)]
pub struct ArgReduce {
    /// Whether the smallest counts.
    pub min: bool,
    /// Counted from the back when negative.
    pub axis: i64,
    /// Whether the axis stays, with one element.
    pub keep_dims: bool,
    /// Whether the last of equal elements counts.
    pub select_last: bool,
}

/// How both are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "ArgMax",
        since: &[1, 11, 12, 13],
        build: |a, _| Ok(Arc::new(read(a, false)?)),
    },
    OpSpec {
        domain: "",
        name: "ArgMin",
        since: &[1, 11, 12, 13],
        build: |a, _| Ok(Arc::new(read(a, true)?)),
    },
];

fn read(a: &crate::Attributes, min: bool) -> Result<ArgReduce, OpError> {
    Ok(ArgReduce {
        min,
        axis: a.int("axis")?.unwrap_or(0),
        keep_dims: a.int("keepdims")?.unwrap_or(1) != 0,
        select_last: a.flag("select_last_index")?,
    })
}

impl ArgReduce {
    fn fold(self, value: &Value, axis: usize, shape: Vec<u64>) -> Value {
        let best = |group: &Vec<Num>| {
            let numbers = group.iter().map(Num::as_f64).collect::<Option<Vec<f64>>>()?;
            let better = |a: f64, b: f64| match a.partial_cmp(&b)? {
                Ordering::Equal => Some(self.select_last),
                order => Some(order.is_lt() == self.min),
            };
            let mut at = 0;
            for (i, x) in numbers.iter().enumerate().skip(1) {
                if better(*x, numbers[at])? {
                    at = i;
                }
            }
            (!numbers.is_empty()).then(|| i64::try_from(at).ok()).flatten()
        };
        let data = groups(value, &[axis]).1.iter().map(|g| best(g).map_or(Num::Unknown, Num::Int)).collect();
        Value { dtype: DType::Int64, shape, data }
    }
}

impl Op for ArgReduce {
    fn name(&self) -> &str {
        if self.min { "ArgMin" } else { "ArgMax" }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let Some(input) = cx.shape(0) else {
            cx.set(0, DType::Int64, None);
            return Ok(());
        };
        let axis = normalize_axis(self.axis, input.rank()).ok_or_else(|| {
            OpError::input(0, format!("a rank that has axis {}", self.axis), format!("shape {input}"))
        })?;
        let shape = reduced(input, &[axis], self.keep_dims);
        let known = shape.known();
        cx.set(0, DType::Int64, Some(shape));
        if let (Some(value), Some(shape)) = (cx.value(0), known)
            && Value::unknown(DType::Int64, &shape).is_some()
        {
            cx.set_value(0, self.fold(value, axis, shape));
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        l.allocate("ArgMax");
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call = Call::new(if self.min { "argmin" } else { "argmax" })
            .input(Operand::Input(0), Grad::None)
            .output(l.out_shape(0), OutDtype::Is(DType::Int64), Place::New);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{float, folded, ints, shape};
    use crate::{Attribute, Attributes};

    #[test]
    fn the_first_of_equals_counts_unless_the_last_is_asked_for() {
        let a = |last| Attributes::from([("select_last_index", Attribute::Int(last))]);
        assert_eq!(folded("ArgMax", a(0), &[ints(&[3, 9, 9, 1])]), Some(vec![1]));
        assert_eq!(folded("ArgMax", a(1), &[ints(&[3, 9, 9, 1])]), Some(vec![2]));
        assert_eq!(folded("ArgMin", a(0), &[ints(&[3, 9, 1, 1])]), Some(vec![2]));
        assert_eq!(shape("ArgMax", 13, a(0), &[float(&[2, 3])]).unwrap(), "1x3");
        assert!(shape("ArgMax", 13, a(0), &[float(&[])]).is_err());
    }
}
