//! Range. ONNX 11, 27.

use crate::kernels::TfLowering;
use crate::{Call, DType, Dim, Infer, Lowering, Num, Op, OpError, OpSpec, OutDtype, Place, Value};
use std::sync::Arc;

/// `start, start + delta, …` below `limit` (above it for a negative `delta`).
#[derive(Clone, Copy, Debug)]
pub struct Range;

/// How Range is found.
pub const SPECS: &[OpSpec] =
    &[OpSpec { domain: "", name: "Range", since: &[11, 27], build: |_, _| Ok(Arc::new(Range)) }];

impl Range {
    /// How far back a size is looked for behind the limit.
    const STEPS: usize = 16;

    /// `max(ceil((limit - start) / delta), 0)`.
    fn length(start: &Num, limit: &Num, delta: &Num) -> Result<Option<Dim>, OpError> {
        if delta.as_f64() == Some(0.0) {
            return Err(OpError::input(2, "a step that is not zero", 0));
        }
        if let (Some(start), Some(limit), Some(delta)) = (start.as_i64(), limit.as_i64(), delta.as_i64()) {
            let (span, delta) = (i128::from(limit) - i128::from(start), i128::from(delta));
            let (span, delta) = if delta < 0 { (-span, -delta) } else { (span, delta) };
            let count = u64::try_from(span.max(0) / delta + i128::from(span > 0 && span % delta != 0));
            return count.map(|n| Some(Dim::Known(n))).map_err(|_| OpError::overflow("the length"));
        }
        if let (Some(start), Some(limit), Some(delta)) = (start.as_f64(), limit.as_f64(), delta.as_f64()) {
            let count = ((limit - start) / delta).ceil().max(0.0);
            return if count < 9.0e15 {
                Ok(Num::Float(count).as_dim())
            } else {
                Err(OpError::overflow("the length"))
            };
        }
        Ok(Range::symbolic(start, limit, delta))
    }

    /// Sizes that are not numbers yet: `0..seq`, `past..past + seq`.
    fn symbolic(start: &Num, limit: &Num, delta: &Num) -> Option<Dim> {
        let step = delta.as_dim().filter(|d| d.known().is_some_and(|n| n > 0))?;
        let span = match (start.as_dim()?, limit.as_dim()?) {
            (Dim::Known(0), limit) => limit,
            (start, limit) => limit.sub(&start)?,
        };
        span.offset(i64::try_from(step.known()? - 1).ok()?).div_floor(&step)
    }

    fn elements(dtype: DType, start: &Num, delta: &Num, count: u64) -> Option<Value> {
        let mut out = Value::unknown(dtype, &[count])?;
        for (slot, i) in out.data.iter_mut().zip(0_i64..) {
            *slot = match (start, delta) {
                (Num::Int(start), Num::Int(delta)) => delta
                    .checked_mul(i)
                    .and_then(|step| step.checked_add(*start))
                    .map_or(Num::Unknown, Num::Int),
                (start, delta) => start
                    .as_f64()
                    .zip(delta.as_f64())
                    .map_or(Num::Unknown, |(s, d)| Num::Float(s + d * i as f64)),
            };
        }
        Some(out)
    }
}

impl Op for Range {
    fn name(&self) -> &str {
        "Range"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        for i in 0..3 {
            cx.require(i)?;
        }
        let at = |i| cx.value(i).and_then(Value::single);
        let (Some(start), Some(limit), Some(delta)) = (at(0), at(1), at(2)) else {
            cx.set(0, cx.dtype(0), Some([cx.fresh_dim("length", None)].into_iter().collect()));
            return Ok(());
        };
        // `arange(batch)`, with the exported batch as a constant, counts the samples. A limit that was measured follows by itself.
        let measured = || cx.history(1).take(Range::STEPS).any(|step| step.op == "Shape");
        let counted =
            (0..3).all(|i| cx.value(i) == cx.value_before(i)) && start.as_i64() == Some(0) && !measured();
        let limit = match limit.as_dim().and_then(|d| cx.rebatched(d.known()?)) {
            Some(batch) if counted => &Num::from(Dim::Known(batch)),
            _ => limit,
        };
        let length = Range::length(start, limit, delta)?;
        let folded = length.as_ref().and_then(Dim::known);
        let folded = folded.and_then(|n| Range::elements(cx.dtype(0), start, delta, n));
        let length = length.unwrap_or_else(|| cx.fresh_dim("length", None));
        cx.set(0, cx.dtype(0), Some([length].into_iter().collect()));
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        l.allocate("Range");
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        l.finish(Call::new("arange").output(l.out_shape(0), OutDtype::Is(l.out_dtype(0)), Place::New));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(start: impl Into<Num>, limit: impl Into<Num>, delta: impl Into<Num>) -> Option<String> {
        let length = Range::length(&start.into(), &limit.into(), &delta.into());
        Some(length.ok()??.to_string())
    }

    #[test]
    fn lengths_round_up_and_never_go_below_zero() {
        assert_eq!(length(3, 9, 3).unwrap(), "2");
        assert_eq!(length(10, 4, -2).unwrap(), "3");
        assert_eq!(length(10, 4, -4).unwrap(), "2");
        assert_eq!(length(5, 5, 1).unwrap(), "0");
        assert_eq!(length(5, 0, 1).unwrap(), "0");
        assert_eq!(length(0.0, 1.0, 0.3).unwrap(), "4");
        assert_eq!(length(0, 4, 0), None);
        assert_eq!(length(0.0, f64::INFINITY, 1.0), None);
        assert_eq!(length(i64::MIN, i64::MAX, 1).unwrap(), u64::MAX.to_string());
    }

    #[test]
    fn symbols_count() {
        let seq = || Num::Dim(Dim::symbol("seq"));
        assert_eq!(length(0, seq(), 1).unwrap(), "seq");
        assert_eq!(length(2, seq(), 1).unwrap(), "(seq - 2)");
        assert_eq!(length(seq(), seq(), 1).unwrap(), "0");
        let folded = Range::elements(DType::Int64, &Num::Int(5), &Num::Int(-2), 3).unwrap();
        assert_eq!(folded.ints().unwrap(), [5, 3, 1]);
    }

    #[test]
    fn a_constant_batch_counts_samples_and_a_measured_width_does_not() {
        use crate::{Attributes, Binding, Graph, Role, Shape, Type, infer};
        for (measured, expected) in [(false, 8), (true, 1)] {
            let mut g = Graph::default();
            let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([1, 4])), Role::Input);
            g.inputs.push(x);
            let axes = g.add_constant("axes", Value::vector(DType::Int64, [2]));
            let wide = g.push("Unsqueeze", Attributes::default(), &[x, axes], "wide").unwrap();
            let mut number = |name: &str, n: i64| g.add_constant(name, Value::scalar(DType::Int64, n));
            let (zero, one, last) = (number("zero", 0), number("one", 1), number("last", 2));
            let shape = g.push("Shape", Attributes::default(), &[wide], "shape").unwrap();
            let width = g.push("Gather", Attributes::default(), &[shape, last], "width").unwrap();
            let limit = if measured { width } else { one };
            let y = g.push("Range", Attributes::default(), &[zero, limit, one], "y").unwrap();
            let inferred = infer(&g, &Binding { batch: Some(8), ..Binding::default() }).unwrap();
            assert_eq!(inferred.shape(y), Some(&Shape::from([expected])));
        }
    }
}
