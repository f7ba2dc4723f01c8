//! Trilu. ONNX 14.
//!
//! Autograd keeps nothing (derivatives.yaml: the gradient of `tril` is its `tril`).

use crate::kernels::TfLowering;
use crate::value::indices;
use crate::{Call, DType, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Value};
use std::sync::Arc;

/// The upper or lower triangle of the last two axes, zeros elsewhere; input 1 is the diagonal.
#[derive(Clone, Copy, Debug)]
pub struct Trilu {
    /// Whether the upper triangle stays.
    pub upper: bool,
}

/// How Trilu is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Trilu",
    since: &[14],
    build: |a, _| Ok(Arc::new(Trilu { upper: a.int("upper")?.unwrap_or(1) != 0 })),
}];

impl Op for Trilu {
    fn name(&self) -> &str {
        "Trilu"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?;
        if let Some(shape) = x.shape().filter(|s| s.rank() < 2) {
            return Err(OpError::input(0, "a matrix or a batch of them", format!("shape {shape}")));
        }
        cx.set_type(0, x.clone());
        let diagonal = if cx.has(1) { cx.value(1).and_then(|v| v.single()?.as_i64()) } else { Some(0) };
        let (Some(value), Some(diagonal)) = (cx.value(0), diagonal) else { return Ok(()) };
        let mut out: Value = value.clone();
        let zero = if value.dtype.is_float() { Num::Float(0.0) } else { Num::Int(0) };
        for (slot, index) in out.data.iter_mut().zip(indices(&value.shape)) {
            if let [.., row, column] = index[..] {
                let offset = i128::from(column) - i128::from(row) - i128::from(diagonal);
                if if self.upper { offset < 0 } else { offset > 0 } {
                    *slot = zero.clone();
                }
            }
        }
        cx.set_value(0, out);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, shape) = (l.raw(0), l.out_shape(0));
        let y = l.moved("MatrixBandPart", x, shape);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let grad = if l.dtype(0) == DType::Bool { Grad::None } else { Grad::New };
        let call = Call::new(if self.upper { "triu" } else { "tril" }).input(Operand::Input(0), grad);
        l.finish(call.output(l.out_shape(0), OutDtype::Like(0), Place::New));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, folded, int, shape};
    use super::*;
    use crate::{Attribute, Attributes};

    #[test]
    fn one_triangle_stays() {
        let ones = In::Value(Value::filled(DType::Int64, &[2, 3], Num::Int(1)).unwrap());
        let of = |upper, k| {
            let a = Attributes::from([("upper", Attribute::Int(upper))]);
            folded("Trilu", a, &[ones.clone(), int(k)]).unwrap()
        };
        assert_eq!(of(1, 0), [1, 1, 1, 0, 1, 1]);
        assert_eq!(of(0, 1), [1, 1, 0, 1, 1, 1]);
        assert_eq!(of(1, i64::MAX), [0; 6]);
        assert!(shape("Trilu", 14, Attributes::default(), &[float(&[3])]).is_err());
    }
}
