//! Where. ONNX 9, 16.
//!
//! Autograd keeps the condition only (derivatives.yaml: `where(condition, grad, 0)`).

use super::{fold, rebatch};
use crate::kernels::TfLowering;
use crate::value::indices;
use crate::{Call, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Value};
use std::sync::Arc;

/// Elements of input 1 where input 0 is true, else of input 2; all three broadcast.
#[derive(Clone, Copy, Debug)]
pub struct Where;

/// How Where is found.
pub const SPECS: &[OpSpec] =
    &[OpSpec { domain: "", name: "Where", since: &[9, 16], build: |_, _| Ok(Arc::new(Where)) }];

impl Where {
    fn fold(cx: &Infer<'_>, shape: &[u64]) -> Option<Value> {
        let condition = cx.value(0)?;
        let expanded = |i| cx.value(i).and_then(|v| fold::expanded(v, shape));
        let (yes, no) = (expanded(1), expanded(2));
        if yes.is_none() && no.is_none() {
            return None;
        }
        let mut out = Value::unknown(cx.dtype(1), shape)?;
        for (k, index) in indices(shape).enumerate() {
            let at =
                |v: &Option<Value>| v.as_ref().and_then(|v| v.data.get(k)).cloned().unwrap_or(Num::Unknown);
            // While a batch is being replaced, the condition may still have the old one.
            let chosen = condition.data.get(condition.broadcast_index(&index));
            out.data[k] = match chosen.and_then(Num::as_i64) {
                Some(0) => at(&no),
                Some(_) => at(&yes),
                None if at(&yes) == at(&no) => at(&yes),
                None => Num::Unknown,
            };
        }
        Some(out)
    }
}

impl Op for Where {
    fn name(&self) -> &str {
        "Where"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        for i in 0..3 {
            cx.require(i)?;
        }
        let shape = match (cx.shape(0), cx.shape(1), cx.shape(2)) {
            (Some(c), Some(x), Some(y)) => {
                let all = rebatch::broadcast(cx, x, y).and_then(|s| rebatch::broadcast(cx, &s, c));
                let found = || format!("{c}, {x} and {y}");
                Some(all.ok_or_else(|| OpError::mismatch("shapes that broadcast together", found()))?)
            }
            _ => None,
        };
        let folded = shape.as_ref().and_then(|s| Where::fold(cx, &s.known()?));
        cx.set(0, cx.dtype(1), shape);
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let mask = l.raw(0);
        let y = match (l.is_constant(1), l.is_constant(2)) {
            (false, true) => {
                let x = l.input(1);
                l.select(mask, x)
            }
            (true, false) => {
                let x = l.input(2);
                l.select(mask, x)
            }
            _ => {
                let (a, b) = (l.input(1), l.input(2));
                l.choose(mask, a, b)
            }
        };
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call = Call::new("where")
            .input(Operand::Input(0), Grad::None)
            .input(Operand::Input(1), Grad::Pointwise)
            .input(Operand::Input(2), Grad::Pointwise)
            .output(l.out_shape(0), OutDtype::Promoted, Place::Pointwise)
            .saves([Saved::Input(0)]);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, int, ints, run, shape};
    use super::*;
    use crate::{Attributes, DType, Dim};

    #[test]
    fn three_shapes_broadcast() {
        let of = |c, x, y| shape("Where", 16, Attributes::default(), &[c, x, y]);
        assert_eq!(of(float(&[4, 1]), float(&[3]), float(&[])).unwrap(), "4x3");
        assert!(of(float(&[4]), float(&[3]), float(&[])).is_err());
    }

    #[test]
    fn a_choice_folds_element_by_element() {
        let bools = Value::vector(DType::Bool, [Num::Int(1), Num::Int(0), Num::Unknown, Num::Unknown]);
        let sizes = [Num::Dim(Dim::symbol("batch")), Num::Int(8), Num::Int(1), Num::Int(9)];
        let inputs = [In::Value(bools), In::Value(Value::vector(DType::Int64, sizes)), int(1)];
        let out = run("Where", 16, Attributes::default(), &inputs, 1).unwrap().remove(0).1.unwrap();
        assert_eq!(out.data, [Num::Dim(Dim::symbol("batch")), Num::Int(1), Num::Int(1), Num::Unknown]);
        // One side alone is enough where the condition never takes the other.
        let yes = In::Value(Value::vector(DType::Bool, [Num::Int(1)]));
        let out = run("Where", 16, Attributes::default(), &[yes, ints(&[5]), float(&[1])], 1).unwrap();
        assert_eq!(out[0].1.as_ref().unwrap().ints().unwrap(), [5]);
    }
}
