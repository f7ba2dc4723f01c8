//! TopK. ONNX 1 (`k`), 10 (an input), 11, 24.
//!
//! Autograd keeps the indices (derivatives.yaml: `value_selecting_reduction_backward` scatters into a new zero tensor).

use super::fold;
use crate::{
    Call, DType, Dim, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Value,
};
use std::sync::Arc;

/// The `k` largest or smallest elements along an axis, and where they are.
#[derive(Clone, Copy, Debug)]
pub struct TopK {
    /// Counted from the back when negative.
    pub axis: i64,
    /// How many, where it is an attribute.
    pub k: Option<i64>,
    /// Whether the largest are taken.
    pub largest: bool,
}

/// How TopK is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "TopK",
    since: &[1, 10, 11, 24],
    build: |a, _| {
        let largest = a.int("largest")?.unwrap_or(1) != 0;
        Ok(Arc::new(TopK { axis: a.int("axis")?.unwrap_or(-1), k: a.int("k")?, largest }))
    },
}];

impl TopK {
    /// Elements and positions of a known vector, the first of equal ones first.
    fn fold(&self, x: &Value, k: u64) -> Option<(Value, Value)> {
        let keys = fold::keys(x)?;
        if x.shape.len() != 1 {
            return None;
        }
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by(|a, b| if self.largest { keys[*b].cmp(&keys[*a]) } else { keys[*a].cmp(&keys[*b]) });
        order.truncate(usize::try_from(k).ok()?);
        let values = order.iter().map(|i| x.data[*i].clone());
        let positions = order.iter().map(|i| Num::from(Dim::Known(*i as u64)));
        Some((Value::vector(x.dtype, values), Value::vector(DType::Int64, positions)))
    }
}

impl Op for TopK {
    fn name(&self) -> &str {
        "TopK"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let k = match self.k {
            Some(k) => Some(Num::Int(k)),
            None => {
                cx.require(1)?;
                cx.value(1).and_then(Value::single).cloned()
            }
        };
        if let Some(n) = k.as_ref().and_then(Num::as_i64).filter(|n| *n < 0) {
            return Err(OpError::mismatch("a count that is not negative", n));
        }
        let Some(x) = cx.shape(0) else {
            cx.set(0, cx.dtype(0), None);
            cx.set(1, DType::Int64, None);
            return Ok(());
        };
        let axis = x.axis(self.axis).ok_or_else(|| {
            OpError::input(0, format!("a rank that has axis {}", self.axis), format!("shape {x}"))
        })?;
        let count = k.and_then(|k| k.as_dim()).unwrap_or_else(|| cx.fresh_dim("k", x[axis].upper()));
        if let (Some(k), Some(size)) = (count.known(), x[axis].known())
            && k > size
        {
            return Err(OpError::input(0, format!("{k} elements along axis {axis}"), format!("shape {x}")));
        }
        let folded = cx.value(0).zip(count.known()).and_then(|(v, k)| self.fold(v, k));
        let mut shape = x.clone();
        shape.dims_mut()[axis] = count;
        cx.set(0, cx.dtype(0), Some(shape.clone()));
        cx.set(1, DType::Int64, Some(shape));
        if let Some((values, positions)) = folded {
            cx.set_value(0, values);
            cx.set_value(1, positions);
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let shape = if l.wants(0) { l.out_shape(0) } else { l.out_shape(1) };
        let call = Call::new("topk")
            .input(Operand::Input(0), Grad::New)
            .output(shape, OutDtype::Like(0), Place::New)
            .output(shape, OutDtype::Is(DType::Int64), Place::New)
            .saves([Saved::Output(1)]);
        super::bind_used(l, call);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{calls, float, int, ints, run, shape};
    use super::*;
    use crate::{Attribute, Attributes};

    #[test]
    fn the_axis_shrinks_to_k() {
        let axis = |n| Attributes::from([("axis", Attribute::Int(n))]);
        assert_eq!(shape("TopK", 11, axis(-2), &[float(&[2, 5, 3]), ints(&[4])]).unwrap(), "2x4x3");
        assert!(shape("TopK", 11, axis(1), &[float(&[2, 5]), ints(&[6])]).is_err());
        assert_eq!(shape("TopK", 11, axis(1), &[float(&[2, 5]), float(&[1])]).unwrap(), "2xy0.k");
        let old = Attributes::from([("k", Attribute::Int(2))]);
        assert_eq!(shape("TopK", 1, old, &[float(&[2, 5])]).unwrap(), "2x2");
    }

    #[test]
    fn known_elements_are_sorted() {
        let out = run("TopK", 11, Attributes::default(), &[ints(&[3, 9, 9, 1]), int(3)], 2).unwrap();
        assert_eq!(out[0].1.as_ref().unwrap().ints().unwrap(), [9, 9, 3]);
        assert_eq!(out[1].1.as_ref().unwrap().ints().unwrap(), [1, 2, 0]);
        let calls = calls("TopK", 11, Attributes::default(), &[float(&[5]), int(3)], 2);
        assert_eq!(calls[0].saved[..], [Saved::Output(1)]);
    }
}
