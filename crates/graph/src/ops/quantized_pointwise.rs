//! com.microsoft's quantised pointwise operators and pools: QLinearAdd, QLinearMul, QLinearSigmoid, QLinearLeakyRelu,
//! QLinearSoftmax, QLinearConcat, QLinearWhere, QLinearAveragePool, QLinearGlobalAveragePool.
//!
//! Made for inference: integer operands have no gradient and nothing is kept.

use super::pool::{ones, pooled_shape};
use super::quantize::without_gradient;
use super::spatial::Window;
use crate::{Attributes, DType, Infer, Lowering, Op, OpError, OpSpec, Shape};
use std::sync::Arc;

/// A quantised operator that makes one tensor.
#[derive(Clone, Debug)]
pub struct QuantizedPointwise {
    /// The operator's name.
    pub name: &'static str,
    /// What it makes.
    pub form: Form,
}

/// How the result's shape follows.
#[derive(Clone, Debug)]
pub enum Form {
    /// That of input 0.
    Same,
    /// Inputs at these positions, broadcast; the type is that of the last.
    Broadcast(&'static [usize]),
    /// Every third input from this one on, joined along an axis.
    Concat(i64),
    /// Input 0 under a window.
    Pool(Box<Window>, bool),
    /// Input 0 with its spatial axes one.
    GlobalPool(bool),
}

const fn spec(name: &'static str, build: crate::Build) -> OpSpec {
    OpSpec { domain: "com.microsoft", name, since: &[1], build }
}

fn form(name: &'static str, form: Form) -> Result<Arc<dyn Op>, OpError> {
    Ok(Arc::new(QuantizedPointwise { name, form }))
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    spec("QLinearAdd", |_, _| form("com.microsoft.QLinearAdd", Form::Broadcast(&[0, 3]))),
    spec("QLinearMul", |_, _| form("com.microsoft.QLinearMul", Form::Broadcast(&[0, 3]))),
    spec("QLinearSigmoid", |_, _| form("com.microsoft.QLinearSigmoid", Form::Same)),
    spec("QLinearLeakyRelu", |_, _| form("com.microsoft.QLinearLeakyRelu", Form::Same)),
    spec("QLinearSoftmax", |_, _| form("com.microsoft.QLinearSoftmax", Form::Same)),
    spec("QLinearWhere", |_, _| form("com.microsoft.QLinearWhere", Form::Broadcast(&[0, 1, 4]))),
    spec("QLinearConcat", |a, _| {
        let axis = a.int("axis")?.ok_or_else(|| OpError::missing_attribute("axis"))?;
        form("com.microsoft.QLinearConcat", Form::Concat(axis))
    }),
    spec("QLinearAveragePool", |a, _| {
        let window = Box::new(Window::read(a)?);
        form("com.microsoft.QLinearAveragePool", Form::Pool(window, last(a)?))
    }),
    spec("QLinearGlobalAveragePool", |a, _| {
        form("com.microsoft.QLinearGlobalAveragePool", Form::GlobalPool(last(a)?))
    }),
];

fn last(a: &Attributes) -> Result<bool, OpError> {
    a.flag("channels_last")
}

impl QuantizedPointwise {
    fn result(&self, cx: &Infer<'_>) -> Result<(DType, Option<Shape>), OpError> {
        let dtype = cx.dtype(0);
        Ok(match &self.form {
            Form::Same => (dtype, cx.shape(0).cloned()),
            Form::Broadcast(at) => {
                let mut shape = Some(Shape::scalar());
                for i in at.iter().copied() {
                    cx.require(i)?;
                    shape = match (shape, cx.shape(i)) {
                        (Some(a), Some(b)) => Some(a.broadcast(b).ok_or_else(|| {
                            OpError::input(
                                i,
                                format!("a shape that broadcasts with {a}"),
                                format!("shape {b}"),
                            )
                        })?),
                        _ => None,
                    };
                }
                (at.last().map_or(dtype, |i| cx.dtype(*i)), shape)
            }
            Form::Concat(axis) => {
                let parts: Vec<usize> = (2..cx.input_count()).step_by(3).collect();
                let dtype = cx.dtype(2);
                let mut joined: Option<Shape> = None;
                for i in parts {
                    let Some(part) = cx.shape(i) else { return Ok((dtype, None)) };
                    let at = part.axis(*axis).ok_or_else(|| {
                        OpError::input(i, format!("a rank that has axis {axis}"), format!("shape {part}"))
                    })?;
                    match &mut joined {
                        None => joined = Some(part.clone()),
                        Some(joined) if joined.rank() == part.rank() => {
                            joined.dims_mut()[at] = joined[at]
                                .add(&part[at])
                                .ok_or_else(|| OpError::overflow("the joined size"))?;
                        }
                        Some(joined) => {
                            return Err(OpError::input(i, format!("rank {}", joined.rank()), part));
                        }
                    }
                }
                (dtype, joined)
            }
            Form::Pool(window, channels_last) => {
                (dtype, cx.shape(0).map(|x| pooled_shape(window, x, *channels_last)).transpose()?)
            }
            Form::GlobalPool(false) => (dtype, cx.shape(0).map(ones)),
            Form::GlobalPool(true) => {
                let spatial = |x: &Shape| {
                    let end = x.rank().saturating_sub(1);
                    let dims = x.dims().iter().enumerate();
                    dims.map(|(i, d)| if (1..end).contains(&i) { 1.into() } else { d.clone() }).collect()
                };
                (dtype, cx.shape(0).map(spatial))
            }
        })
    }
}

impl Op for QuantizedPointwise {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let (dtype, shape) = self.result(cx)?;
        cx.set(0, dtype, shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        without_gradient(l, "quantized");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Binding, Graph, Role, Type, infer};

    fn shape(name: &str, attributes: Attributes, inputs: &[&[u64]]) -> Option<String> {
        let mut g = Graph::default();
        let op = SPECS.iter().find(|s| s.name == name)?.build(attributes, 1).ok()?;
        let add = |(i, dims): (usize, &&[u64])| {
            g.add_tensor(format!("x{i}"), Type::tensor(DType::Uint8, Shape::from(*dims)), Role::Input)
        };
        g.inputs = inputs.iter().enumerate().map(add).collect();
        let y = g.add_tensor("y", Type::Unknown, Role::Intermediate);
        let ids = g.inputs.iter().copied().map(Some).collect();
        g.add_node("node", op, ids, vec![Some(y)]);
        Some(infer(&g, &Binding::default()).ok()?.shape(y)?.to_string())
    }

    #[test]
    fn scales_and_zero_points_are_skipped() {
        let none = Attributes::default;
        let s: &[u64] = &[];
        let add: [&[u64]; 8] = [&[2, 3], s, s, &[3], s, s, s, s];
        assert_eq!(shape("QLinearAdd", none(), &add).unwrap(), "2x3");
        let axis = Attributes::from([("axis", Attribute::Int(1))]);
        let joined: [&[u64]; 8] = [s, s, &[2, 3], s, s, &[2, 4], s, s];
        assert_eq!(shape("QLinearConcat", axis, &joined).unwrap(), "2x7");
        let last = Attributes::from([("channels_last", Attribute::Int(1))]);
        assert_eq!(shape("QLinearGlobalAveragePool", last, &[&[2, 7, 7, 64]]).unwrap(), "2x1x1x64");
    }
}
