//! `TypeProto` as a [`Type`]: symbolic dims by their name, missing ones as unknowns named after tensor and axis.

use crate::messages::{Dimension, TensorShapeProto, TensorTypeProto, TypeProto};
use memfit_graph::{DType, Dim, Problem, Shape, TensorType, Type};

/// No framework has tensors of a higher rank (numpy and PyTorch stop at 64).
pub(crate) const MAX_RANK: usize = 64;

/// The type that the file declares for `name`; problems go to `problems`.
pub(crate) fn declared(name: &str, proto: &TypeProto, problems: &mut Vec<Problem>) -> Type {
    let inner = |t: &Option<Box<TypeProto>>, problems: &mut Vec<Problem>| {
        Box::new(t.as_ref().map_or(Type::Unknown, |t| declared(name, t, problems)))
    };
    if let Some(t) = &proto.tensor_type {
        Type::Tensor(tensor(name, t, problems))
    } else if let Some(t) = &proto.sparse_tensor_type {
        Type::Sparse(tensor(name, t, problems))
    } else if let Some(t) = &proto.sequence_type {
        Type::Sequence { element: inner(&t.elem_type, problems), items: None }
    } else if let Some(t) = &proto.optional_type {
        Type::Optional { element: inner(&t.elem_type, problems), present: None }
    } else if let Some(t) = &proto.map_type {
        Type::Map(inner(&t.value_type, problems))
    } else {
        // An opaque type of a vendor says nothing about memory.
        Type::Unknown
    }
}

fn tensor(name: &str, t: &TensorTypeProto, problems: &mut Vec<Problem>) -> TensorType {
    let dtype = dtype(name, t.elem_type, problems);
    TensorType { dtype, shape: t.shape.as_ref().and_then(|s| dims(name, s, problems)) }
}

/// The dtype with ONNX's number; a number that ONNX does not have is a problem.
pub(crate) fn dtype(name: &str, number: i32, problems: &mut Vec<Problem>) -> DType {
    DType::from_onnx(number).unwrap_or_else(|| {
        let message = format!("expected an element type from 0 to 26, found {number}");
        problems.push(Problem::new(name, message).hint("the file is newer than memfit, or damaged"));
        DType::Undefined
    })
}

fn dims(name: &str, shape: &TensorShapeProto, problems: &mut Vec<Problem>) -> Option<Shape> {
    if shape.dim.len() > MAX_RANK {
        problems.push(too_many_dims(name, shape.dim.len()));
        return None;
    }
    let dim = |(axis, dim): (usize, &Dimension)| match (dim.dim_value, &dim.dim_param) {
        (Some(n), _) => u64::try_from(n).map(Dim::Known).unwrap_or_else(|_| {
            problems.push(negative_dim(name, axis, n));
            Dim::unknown(&format!("{name}.dim{axis}"), None)
        }),
        (None, Some(symbol)) if !symbol.is_empty() => Dim::symbol(symbol),
        _ => Dim::unknown(&format!("{name}.dim{axis}"), None),
    };
    Some(shape.dim.iter().enumerate().map(dim).collect())
}

/// The problem of a dim below zero.
pub(crate) fn negative_dim(name: &str, axis: usize, n: i64) -> Problem {
    Problem::new(name, format!("expected a size of axis {axis} that is not negative, found {n}"))
        .hint("export the axis with a name (dynamic_axes, dynamic_shapes)")
}

/// The problem of an absurd rank.
pub(crate) fn too_many_dims(name: &str, rank: usize) -> Problem {
    Problem::new(name, format!("expected at most {MAX_RANK} dims, found {rank}"))
}
