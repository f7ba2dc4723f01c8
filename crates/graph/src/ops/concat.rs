//! Concat. ONNX 1, 4, 11, 13; Keras `Concatenate`.
//!
//! Autograd keeps nothing (derivatives.yaml: `cat_tensors_backward` narrows the gradient): each input's gradient is a
//! view of the incoming one. On none of autocast's lists in 2.15: the kernel itself reads mixed dtypes.

use crate::kernels::TfLowering;
use crate::{
    Call, Dim, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Shape, Value,
};
use std::sync::Arc;

/// Joins tensors along one axis.
#[derive(Clone, Copy, Debug)]
pub struct Concat {
    /// Counted from the back when negative.
    pub axis: i64,
}

/// How Concat is found. Opset 1 defaults to axis 1.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Concat",
    since: &[1, 4, 11, 13],
    build: |a, version| match a.int("axis")? {
        Some(axis) => Ok(Arc::new(Concat { axis })),
        None if version < 4 => Ok(Arc::new(Concat { axis: 1 })),
        None => Err(OpError::missing_attribute("axis")),
    },
}];

impl Concat {
    /// The joined size of the known inputs' shapes. While a fixed batch is being replaced, a constant that still has the
    /// exported batch is taken as expanded to the new one (a class token baked for one sample).
    fn shape(&self, cx: &Infer<'_>) -> Result<Option<Shape>, OpError> {
        let mut joined: Option<Shape> = None;
        for i in 0..cx.input_count() {
            let Some(shape) = cx.shape(i) else { return Ok(None) };
            let axis = shape.axis(self.axis).ok_or_else(|| {
                OpError::input(i, format!("a rank that has axis {}", self.axis), format!("shape {shape}"))
            })?;
            let Some(joined) = &mut joined else {
                joined = Some(shape.clone());
                continue;
            };
            if joined.rank() != shape.rank() {
                return Err(OpError::input(i, format!("rank {}", joined.rank()), format!("shape {shape}")));
            }
            for (k, (have, new)) in joined.dims_mut().iter_mut().zip(shape.dims()).enumerate() {
                if k == axis {
                    *have = have.add(new).ok_or_else(|| OpError::overflow("the joined size"))?;
                } else if let (Some(a), Some(b)) = (have.known(), new.known()) {
                    if a != b && cx.before(i, 0).is_none() {
                        return Err(OpError::input(
                            i,
                            format!("{a} along axis {k}"),
                            format!("shape {shape}"),
                        ));
                    }
                    *have = Dim::Known(a.max(b));
                } else if have.known().is_none() && new.known().is_some() {
                    *have = new.clone();
                }
            }
        }
        Ok(joined)
    }

    fn value(cx: &Infer<'_>) -> Option<Value> {
        let all = || (0..cx.input_count()).map(|i| cx.value(i));
        all().flatten().next()?;
        let mut data = Vec::new();
        for (i, value) in all().enumerate() {
            match value {
                Some(v) if v.shape.len() == 1 => data.extend_from_slice(&v.data),
                Some(_) => return None,
                None => {
                    let n = cx
                        .shape(i)
                        .filter(|s| s.rank() == 1)?
                        .elements()
                        .filter(|n| *n <= Value::MAX_ELEMENTS)?;
                    data.extend(std::iter::repeat_n(Num::Unknown, usize::try_from(n).ok()?));
                }
            }
        }
        (data.len() as u64 <= Value::MAX_ELEMENTS).then(|| Value::vector(cx.dtype(0), data))
    }
}

impl Op for Concat {
    fn name(&self) -> &str {
        "Concat"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        (1..cx.input_count()).try_for_each(|i| cx.require(i).map(|_| ()))?;
        let shape = self.shape(cx)?;
        cx.set(0, cx.dtype(0), shape);
        if let Some(value) = Concat::value(cx) {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let parts: Vec<_> = (0..l.input_count()).filter(|i| l.has(*i)).collect();
        let parts: Vec<_> = parts.into_iter().map(|i| l.input(i)).collect();
        let shape = l.out_shape(0);
        let y = l.concat(&parts, shape);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let mut call = Call::new("cat");
        for i in (0..l.input_count()).filter(|i| l.state(*i).is_some()) {
            call = call.input(Operand::Input(i), Grad::Narrow);
        }
        l.finish(call.output(l.out_shape(0), OutDtype::Promoted, Place::New));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Attributes, Binding, DType, Graph, Role, Type, infer};

    #[test]
    fn sizes_add_up_along_the_axis() {
        let mut g = Graph::default();
        let dims = |n: u64| [Dim::symbol("batch"), Dim::Known(n)].into_iter().collect();
        let a = g.add_tensor("a", Type::tensor(DType::Float32, dims(3)), Role::Input);
        let b = g.add_tensor("b", Type::tensor(DType::Float32, dims(4)), Role::Input);
        g.inputs = vec![a, b];
        let y = g.push("Concat", Attributes::from([("axis", Attribute::Int(-1))]), &[a, b], "y").unwrap();
        assert_eq!(infer(&g, &Binding::default()).unwrap().shape(y).unwrap().to_string(), "batchx7");
    }
}
