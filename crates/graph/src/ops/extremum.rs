//! Max, Min: the larger or smaller of any number of tensors. ONNX 1, 6, 8, 12, 13; Keras `Maximum`, `Minimum`.
//!
//! `torch.maximum` keeps both tensors (derivatives.yaml; the gradient goes where `self == other`, halved, and not where
//! `self < other`). More than two are folded from the left. A tensor that is no bool or float has no gradient.

use super::{fold, rebatch};
use crate::kernels::TfLowering;
use crate::{
    Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Shape, Value,
    View,
};
use std::sync::Arc;

/// Max or Min.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Extremum {
    Max,
    Min,
}

/// How both are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec { domain: "", name: "Max", since: &[1, 6, 8, 12, 13], build: |_, _| Ok(Arc::new(Extremum::Max)) },
    OpSpec { domain: "", name: "Min", since: &[1, 6, 8, 12, 13], build: |_, _| Ok(Arc::new(Extremum::Min)) },
];

/// The broadcast shape of all inputs, as output 0 with the first one's dtype.
pub(super) fn infer_variadic(cx: &mut Infer<'_>) -> Result<(), OpError> {
    cx.require(0)?;
    let mut joined = Some(Shape::scalar());
    for i in 0..cx.input_count() {
        cx.require(i)?;
        joined = match (joined, cx.shape(i)) {
            (Some(a), Some(b)) => Some(rebatch::broadcast(cx, &a, b).ok_or_else(|| {
                OpError::input(i, format!("a shape that broadcasts with {a}"), format!("shape {b}"))
            })?),
            _ => None,
        };
    }
    cx.set(0, cx.dtype(0), joined);
    Ok(())
}

/// The elements of all inputs joined by `f`, where all can be folded.
pub(super) fn fold_variadic(
    cx: &Infer<'_>,
    f: impl Fn(&crate::Num, &crate::Num) -> crate::Num,
) -> Option<Value> {
    let first = cx.value(0)?;
    (1..cx.input_count()).try_fold(first.clone(), |acc, i| fold::binary(&acc, cx.value(i)?, first.dtype, &f))
}

/// Numpy's broadcast of two numeric shapes; the larger dim where they conflict.
pub(super) fn broadcast(a: &[u64], b: &[u64]) -> Vec<u64> {
    let rank = a.len().max(b.len());
    let at = |s: &[u64], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |i| s[i]);
    let dim = |i| match (at(a, i), at(b, i)) {
        (1, d) | (d, 1) => d,
        (a, b) => a.max(b),
    };
    (0..rank).map(dim).collect()
}

impl Op for Extremum {
    fn name(&self) -> &str {
        match self {
            Extremum::Max => "Max",
            Extremum::Min => "Min",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        infer_variadic(cx)?;
        if let Some(value) = fold_variadic(cx, |a, b| fold::extremum(a, b, *self == Extremum::Min)) {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let name = if *self == Extremum::Max { "Maximum" } else { "Minimum" };
        let mut y = l.input(0);
        for i in 1..l.input_count() {
            y = if l.is_constant(i) {
                l.clip_side(name, y)
            } else {
                let other = l.input(i);
                l.binary(name, y, other)
            };
        }
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        if l.input_count() < 2 {
            let alias = Call::new("alias").input(Operand::Input(0), Grad::Unview);
            return l.finish(alias.output(l.out_shape(0), OutDtype::Like(0), Place::View(0, View::Alias)));
        }
        let function = if *self == Extremum::Max { "maximum" } else { "minimum" };
        let (mut result, mut shape) = (Operand::Input(0), l.shape(0).to_vec());
        for i in 1..l.input_count() {
            shape = broadcast(&shape, l.shape(i));
            // masked_fill(where(self == other, grad / 2, grad), self < other, 0): the half, and two masks.
            result = l.call(
                Call::new(function)
                    .input(result, Grad::Pointwise)
                    .input(Operand::Input(i), Grad::Pointwise)
                    .output(&shape, OutDtype::Promoted, Place::Pointwise)
                    .saves([Saved::Input(0), Saved::Input(1)])
                    .backward_scratch(&shape, OutDtype::Promoted)
                    .backward_scratch(&shape, OutDtype::Is(DType::Bool))
                    .backward_scratch(&shape, OutDtype::Is(DType::Bool)),
            );
        }
        l.bind(0, result);
    }
}

#[cfg(test)]
mod tests {
    use crate::Attributes;
    use crate::ops::testing::{calls, float, folded, int, ints, shape};

    #[test]
    fn any_number_of_inputs_broadcast() {
        let none = Attributes::default;
        let three = [float(&[2, 1]), float(&[3]), float(&[4, 1, 1])];
        assert_eq!(shape("Max", 13, none(), &three).unwrap(), "4x2x3");
        assert!(shape("Max", 13, none(), &[float(&[2]), float(&[3])]).is_err());
        assert_eq!(folded("Min", none(), &[ints(&[5, 1]), int(3), int(2)]), Some(vec![2, 1]));
        assert_eq!(calls("Max", 13, none(), &three, 1).len(), 2);
    }
}
