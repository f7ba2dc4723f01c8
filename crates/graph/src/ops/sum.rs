//! Sum, Mean: of any number of tensors. ONNX 1, 6, 8, 13; Keras `Add`, `Average`.
//!
//! `a + b + c`, and for Mean a division by a number: autograd keeps nothing, and each input's gradient is the incoming one.

use super::extremum::{broadcast, fold_variadic, infer_variadic};
use crate::kernels::TfLowering;
use crate::{Call, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Value, View};
use std::sync::Arc;

/// Sum or Mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Sum {
    Sum,
    Mean,
}

/// How both are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec { domain: "", name: "Mean", since: &[1, 6, 8, 13], build: |_, _| Ok(Arc::new(Sum::Mean)) },
    OpSpec { domain: "", name: "Sum", since: &[1, 6, 8, 13], build: |_, _| Ok(Arc::new(Sum::Sum)) },
];

/// Two elements added: numbers, or sizes.
pub(super) fn add(a: &Num, b: &Num) -> Num {
    let sum = match (a, b) {
        (Num::Int(a), Num::Int(b)) => a.checked_add(*b).map(Num::Int),
        (Num::Dim(d), Num::Int(n)) | (Num::Int(n), Num::Dim(d)) => Some(d.offset(*n).into()),
        (Num::Dim(a), Num::Dim(b)) => a.add(b).map(Num::from),
        _ => a.as_f64().zip(b.as_f64()).map(|(a, b)| Num::Float(a + b)),
    };
    sum.unwrap_or(Num::Unknown)
}

impl Op for Sum {
    fn name(&self) -> &str {
        match self {
            Sum::Sum => "Sum",
            Sum::Mean => "Mean",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        infer_variadic(cx)?;
        let Some(mut value) = fold_variadic(cx, add) else { return Ok(()) };
        if *self == Sum::Mean {
            let n = cx.input_count() as f64;
            value = divided(&value, n);
        }
        cx.set_value(0, value);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let mut y = l.input(0);
        for i in 1..l.input_count() {
            let term = l.input(i);
            y = l.binary("AddV2", y, term);
        }
        if *self == Sum::Mean && l.input_count() > 1 {
            y = l.scaled("RealDiv", y);
        }
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (mut result, mut shape) = (Operand::Input(0), l.shape(0).to_vec());
        for i in 1..l.input_count() {
            shape = broadcast(&shape, l.shape(i));
            let add = Call::new("add").input(result, Grad::Pass).input(Operand::Input(i), Grad::Pass);
            result = l.call(add.output(&shape, OutDtype::Promoted, Place::Pointwise));
        }
        if *self == Sum::Mean && l.input_count() > 1 {
            let div = Call::new("div").input(result, Grad::Pointwise);
            result = l.call(div.output(&shape, OutDtype::Promoted, Place::Pointwise));
        }
        if l.input_count() < 2 {
            let alias = Call::new("alias").input(Operand::Input(0), Grad::Unview);
            result = l.call(alias.output(l.out_shape(0), OutDtype::Like(0), Place::View(0, View::Alias)));
        }
        l.bind(0, result);
    }
}

fn divided(value: &Value, n: f64) -> Value {
    super::fold::unary(value, value.dtype, |x| x.as_f64().map_or(Num::Unknown, |x| Num::Float(x / n)))
}

#[cfg(test)]
mod tests {
    use crate::Attributes;
    use crate::ops::testing::{calls, float, folded, ints};

    #[test]
    fn sums_chain_and_keep_nothing() {
        let none = Attributes::default;
        assert_eq!(folded("Sum", none(), &[ints(&[1, 2]), ints(&[3]), ints(&[4])]), Some(vec![8, 9]));
        let mean = calls("Mean", 13, none(), &[float(&[2]), float(&[2]), float(&[2])], 1);
        assert_eq!(mean.iter().map(|c| c.function).collect::<Vec<_>>(), ["add", "add", "div"]);
        assert!(mean.iter().all(|c| c.saved.is_empty()));
    }
}
