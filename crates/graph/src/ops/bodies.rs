//! What the operators with bodies share: joining what different runs of a body say, and the types that a state keeps over any
//! number of runs.

use crate::{Dim, Graph, Infer, Lowering, Num, OpError, Shape, TensorType, Type, Value};

/// A type with the elements, where they are known.
pub(super) type Typed = (Type, Option<Value>);

/// What is true of both.
pub(super) fn join(a: &Typed, b: &Typed) -> Typed {
    let value = match (&a.1, &b.1) {
        (Some(a), Some(b)) if a.shape == b.shape && a.dtype == b.dtype => {
            let either = |(a, b): (&Num, &Num)| if a == b { a.clone() } else { Num::Unknown };
            let data = a.data.iter().zip(&b.data).map(either).collect();
            Some(Value { dtype: a.dtype, shape: a.shape.clone(), data })
        }
        _ => None,
    };
    (a.0.join(&b.0), value)
}

/// Sets all outputs of a node.
pub(super) fn set_all(cx: &mut Infer<'_>, outputs: Vec<Typed>) {
    for (j, (ty, value)) in outputs.into_iter().enumerate() {
        match value {
            Some(value) => cx.set_value(j, value),
            None => cx.set_type(j, ty),
        }
    }
}

/// The type and elements of input `i`.
pub(super) fn typed(cx: &Infer<'_>, i: usize) -> Typed {
    (cx.ty(i).clone(), cx.value(i).cloned())
}

/// Infers a body whose state feeds back into it until nothing changes: a dim that one run changes is unknown. Gives
/// the state and all outputs of the last run; `first` is where the state begins among the outputs.
pub(super) fn stable(
    cx: &Infer<'_>,
    body: &Graph,
    mut state: Vec<Typed>,
    first: usize,
    inputs: impl Fn(&[Typed]) -> Vec<Typed>,
) -> Result<(Vec<Typed>, Vec<Typed>), OpError> {
    const PASSES: u32 = 8;
    for pass in 0.. {
        let outputs = cx.body(body, &inputs(&state))?;
        let mut changed = false;
        for (k, held) in state.iter_mut().enumerate() {
            let Some(new) = outputs.get(first + k) else { continue };
            let wide = if pass < PASSES { widened(cx, k, held, new) } else { (Type::Unknown, None) };
            changed |= *held != wide;
            *held = wide;
        }
        if !changed || pass > PASSES {
            return Ok((state, outputs));
        }
    }
    Ok((state, Vec::new()))
}

/// What holds before and after a run. A dim keeps its name once it is unknown, so that this ends.
fn widened(cx: &Infer<'_>, k: usize, held: &Typed, new: &Typed) -> Typed {
    let (Type::Tensor(a), Type::Tensor(b)) = (&held.0, &new.0) else { return join(held, new) };
    let dtype = if a.dtype == b.dtype { a.dtype } else { crate::DType::Undefined };
    let shape = match (&a.shape, &b.shape) {
        (Some(a), Some(b)) if a.rank() == b.rank() => {
            let either = |(j, (a, b)): (usize, (&Dim, &Dim))| {
                if a == b { a.clone() } else { cx.fresh_dim(&format!("state{k}.dim{j}"), None) }
            };
            Some(a.dims().iter().zip(b.dims()).enumerate().map(either).collect::<Shape>())
        }
        _ => None,
    };
    (Type::Tensor(TensorType { dtype, shape }), join(held, new).1)
}

/// `dim` more than this type has: the stack of a scan output.
pub(super) fn stacked(dim: Dim, element: &Type) -> Type {
    let Some(t) = element.as_tensor() else { return Type::Unknown };
    let shape = t.shape.clone().map(|mut shape| {
        shape.insert(0, dim);
        shape
    });
    Type::Tensor(TensorType { dtype: t.dtype, shape })
}

/// Control flow on integers allocates its outputs; on floats it has no rule, since autograd sees the operators of the
/// body and not this one.
pub(super) fn lower(l: &mut Lowering<'_>, name: &'static str) {
    let used: Vec<usize> = (0..l.output_count()).filter(|j| l.wants(*j)).collect();
    if used.iter().any(|j| l.out_dtype(*j).is_float()) {
        return l.not_modelled();
    }
    super::allocate(l, name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn elements_that_differ_are_unknown() {
        let typed = |d: &[i64]| {
            let value = Value::vector(DType::Int64, d.iter().copied());
            (Type::tensor(DType::Int64, value.dims()), Some(value))
        };
        let joined = join(&typed(&[1, 2]), &typed(&[1, 3]));
        assert_eq!(joined.1.unwrap().data, [Num::Int(1), Num::Unknown]);
        assert_eq!(join(&typed(&[1]), &typed(&[1, 3])).1, None);
        assert_eq!(stacked(Dim::Known(7), &typed(&[1, 2]).0).shape(), Some(&Shape::from([7, 2])));
    }
}
