//! Small operators of com.microsoft: those that are the default domain's under another domain (Trilu, Range, GridSample,
//! GatherND, CausalConvWithState, LinearAttention, MaxPool for channels last), and Inverse, ComplexMul, ComplexMulConj, ExpandDims, Unique.
//!
//! `linalg_inv` keeps its result (derivatives.yaml: `linalg_inv_ex`); a complex product keeps both factors.

use super::calls::Traced;
use super::pool::pooled_shape;
use super::quantize::without_gradient;
use super::spatial::Window;
use crate::{
    Attributes, Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved, Shape,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An operator with a rule of its own.
#[derive(Clone, Debug)]
pub enum Microsoft {
    /// The inverse of each matrix.
    Inverse,
    /// A product of complex numbers whose last axis holds both parts.
    ComplexMul(&'static str),
    /// A new axis of one at the position that input 1 gives.
    ExpandDims,
    /// The distinct elements in order, their positions and their counts.
    Unique,
    /// Max pooling of `[N, …, C]`.
    NhwcMaxPool(Box<Window>),
}

const fn spec(name: &'static str, build: crate::Build) -> OpSpec {
    OpSpec { domain: "com.microsoft", name, since: &[1], build }
}

/// The default domain's operator of this name, as its newest opset defines it.
fn twin(name: &str, a: &mut Attributes) -> Result<Arc<dyn Op>, OpError> {
    let spec =
        crate::find_op("", name, i64::MAX).ok_or_else(|| OpError::mismatch("a known operator", name))?;
    spec.build(std::mem::take(a), i64::MAX)
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    spec("Trilu", |a, _| twin("Trilu", a)),
    spec("Range", |a, _| twin("Range", a)),
    spec("GridSample", |a, _| twin("GridSample", a)),
    spec("Pad", |a, _| twin("Pad", a)),
    spec("GatherND", |a, _| twin("GatherND", a)),
    spec("CausalConvWithState", |a, _| twin("CausalConvWithState", a)),
    spec("LinearAttention", |a, _| twin("LinearAttention", a)),
    spec("Inverse", |_, _| Ok(Arc::new(Microsoft::Inverse))),
    spec("ComplexMul", |_, _| Ok(Arc::new(Microsoft::ComplexMul("com.microsoft.ComplexMul")))),
    spec("ComplexMulConj", |_, _| Ok(Arc::new(Microsoft::ComplexMul("com.microsoft.ComplexMulConj")))),
    spec("ExpandDims", |_, _| Ok(Arc::new(Microsoft::ExpandDims))),
    spec("Unique", |_, _| Ok(Arc::new(Microsoft::Unique))),
    spec("NhwcMaxPool", |a, _| Ok(Arc::new(Microsoft::NhwcMaxPool(Box::new(Window::read(a)?))))),
];

/// How many different numbers there are, where all are known.
fn distinct(values: Vec<&crate::Num>) -> Option<u64> {
    let numbers = values.into_iter().map(|n| n.as_f64().filter(|n| n.is_finite()));
    // Zero has two signs.
    let numbers = numbers.map(|n| n.map(|n| (n + 0.0).to_bits()));
    Some(numbers.collect::<Option<BTreeSet<u64>>>()?.len() as u64)
}

impl Op for Microsoft {
    fn name(&self) -> &str {
        match self {
            Microsoft::Inverse => "com.microsoft.Inverse",
            Microsoft::ComplexMul(name) => name,
            Microsoft::ExpandDims => "com.microsoft.ExpandDims",
            Microsoft::Unique => "com.microsoft.Unique",
            Microsoft::NhwcMaxPool(_) => "com.microsoft.NhwcMaxPool",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let dtype = cx.require(0)?.dtype().unwrap_or(DType::Undefined);
        match self {
            Microsoft::Inverse => cx.set(0, dtype, cx.shape(0).cloned()),
            Microsoft::ComplexMul(_) => super::infer_broadcast(cx, None)?,
            Microsoft::ExpandDims => {
                cx.require(1)?;
                let axis = cx.value(1).and_then(|v| v.single()?.as_i64());
                let shape = match (cx.shape(0), axis) {
                    (Some(x), Some(axis)) => {
                        let at = crate::shape::normalize_axis(axis, x.rank() + 1).ok_or_else(|| {
                            OpError::input(1, format!("an axis of rank {}", x.rank() + 1), axis)
                        })?;
                        let mut shape = x.clone();
                        shape.insert(at, 1);
                        Some(shape)
                    }
                    (Some(x), None) => {
                        Some((0..=x.rank()).map(|k| cx.fresh_dim(&format!("dim{k}"), None)).collect())
                    }
                    (None, _) => None,
                };
                cx.set(0, dtype, shape);
            }
            Microsoft::Unique => {
                let count = cx.shape_of_rank(0, 1)?.map(|s| s[0].clone());
                let values = cx.value(0).map(|v| v.data.iter().collect::<Vec<_>>());
                let distinct = match values.and_then(distinct) {
                    Some(n) => n.into(),
                    None => cx.fresh_dim("unique", count.as_ref().and_then(crate::Dim::upper)),
                };
                let vector = |dim: crate::Dim| Some([dim].into_iter().collect::<Shape>());
                cx.set(0, dtype, vector(distinct.clone()));
                cx.set(1, DType::Int64, count.and_then(vector));
                cx.set(2, DType::Int64, vector(distinct));
            }
            Microsoft::NhwcMaxPool(window) => {
                let shape = cx.shape(0).map(|x| pooled_shape(window, x, true)).transpose()?;
                cx.set(0, dtype, shape);
            }
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let x = Traced::input(l, 0);
        match self {
            Microsoft::Inverse => {
                let call = Call::new("linalg_inv_ex").input(x.operand, Grad::New).saves([Saved::Output(0)]);
                let call = call.backward_scratch(&x.shape, OutDtype::Like(0));
                l.finish(call.output(&x.shape, OutDtype::Like(0), Place::New));
            }
            Microsoft::ComplexMul(_) => x.mul(l, &Traced::input(l, 1), l.out_shape(0)).bind(l, 0),
            Microsoft::ExpandDims => x.bind(l, 0),
            Microsoft::Unique | Microsoft::NhwcMaxPool(_) => without_gradient(l, "unique"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Binding, Graph, Role, Type, Value, infer};

    #[test]
    fn an_axis_is_put_in_where_the_input_says() {
        let expanded = |axis: i64| {
            let mut g = Graph::default();
            let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([2, 3])), Role::Input);
            g.inputs = vec![x];
            let axis = g.add_constant("axis", Value::scalar(DType::Int32, axis));
            let y = g.add_tensor("y", Type::Unknown, Role::Intermediate);
            let op =
                crate::find_op("com.microsoft", "ExpandDims", 1).unwrap().build(Attributes::default(), 1);
            g.add_node("node", op.unwrap(), vec![Some(x), Some(axis)], vec![Some(y)]);
            infer(&g, &Binding::default()).ok().and_then(|i| Some(i.shape(y)?.to_string()))
        };
        assert_eq!(expanded(-1).unwrap(), "2x3x1");
        assert_eq!(expanded(0).unwrap(), "1x2x3");
        assert_eq!(expanded(3), None);
    }

    #[test]
    fn twins_are_the_default_domains() {
        for name in ["Trilu", "Range", "GridSample", "GatherND"] {
            let op = crate::find_op("com.microsoft", name, 1).unwrap().build(Attributes::default(), 1);
            assert_eq!(op.unwrap().name(), name);
        }
    }
}
