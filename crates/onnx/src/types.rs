//! `TypeProto` as a [`Type`]: symbolic dims by their name, missing ones as unknowns named after tensor and axis.

use memfit_graph::{DType, Dim, Problem, Shape, TensorType, Type};
use onnx_protobuf::tensor_shape_proto::dimension;
use onnx_protobuf::{TensorShapeProto, TypeProto, type_proto};

/// No framework has tensors of a higher rank (numpy and PyTorch stop at 64).
pub(crate) const MAX_RANK: usize = 64;

/// The type that the file declares for `name`; problems go to `problems`.
pub(crate) fn declared(name: &str, proto: &TypeProto, problems: &mut Vec<Problem>) -> Type {
    use type_proto::Value;
    let inner = |t: &protobuf::MessageField<TypeProto>, problems: &mut Vec<Problem>| {
        Box::new(t.as_ref().map_or(Type::Unknown, |t| declared(name, t, problems)))
    };
    match &proto.value {
        Some(Value::TensorType(t)) => Type::Tensor(tensor(name, t.elem_type, t.shape.as_ref(), problems)),
        Some(Value::SparseTensorType(t)) => {
            Type::Sparse(tensor(name, t.elem_type, t.shape.as_ref(), problems))
        }
        Some(Value::SequenceType(t)) => {
            Type::Sequence { element: inner(&t.elem_type, problems), items: None }
        }
        Some(Value::OptionalType(t)) => {
            Type::Optional { element: inner(&t.elem_type, problems), present: None }
        }
        Some(Value::MapType(t)) => Type::Map(inner(&t.value_type, problems)),
        // An opaque type of a vendor says nothing about memory.
        None | Some(_) => Type::Unknown,
    }
}

fn tensor(
    name: &str,
    elem_type: i32,
    shape: Option<&TensorShapeProto>,
    problems: &mut Vec<Problem>,
) -> TensorType {
    TensorType { dtype: dtype(name, elem_type, problems), shape: shape.and_then(|s| dims(name, s, problems)) }
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
    let dim = |(axis, dim): (usize, &onnx_protobuf::tensor_shape_proto::Dimension)| match &dim.value {
        Some(dimension::Value::DimValue(n)) => u64::try_from(*n).map(Dim::Known).unwrap_or_else(|_| {
            problems.push(negative_dim(name, axis, *n));
            Dim::unknown(&format!("{name}.dim{axis}"), None)
        }),
        Some(dimension::Value::DimParam(symbol)) if !symbol.is_empty() => Dim::symbol(symbol),
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
