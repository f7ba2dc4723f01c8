//! `AttributeProto` as an [`Attribute`].

use crate::tensor::{self, Stored};
use memfit_graph::{Attribute, Problem, TensorAttribute};
use onnx_protobuf::AttributeProto;
use onnx_protobuf::attribute_proto::AttributeType;

/// The kind of an attribute; files of the first IR versions do not write it.
pub(crate) fn kind(a: &AttributeProto) -> AttributeType {
    match a.type_.enum_value() {
        Ok(AttributeType::UNDEFINED) | Err(_) => {}
        Ok(kind) => return kind,
    }
    let present = [
        (a.t.is_some(), AttributeType::TENSOR),
        (a.sparse_tensor.is_some(), AttributeType::SPARSE_TENSOR),
        (a.g.is_some(), AttributeType::GRAPH),
        (!a.ints.is_empty(), AttributeType::INTS),
        (!a.floats.is_empty(), AttributeType::FLOATS),
        (!a.strings.is_empty(), AttributeType::STRINGS),
        (!a.graphs.is_empty(), AttributeType::GRAPHS),
        (!a.s.is_empty(), AttributeType::STRING),
        (a.f != 0.0, AttributeType::FLOAT),
        (a.i != 0, AttributeType::INT),
    ];
    present.iter().find(|(is, _)| *is).map_or(AttributeType::UNDEFINED, |(_, kind)| *kind)
}

/// The attribute, where it is not a body; `place` is where a problem is reported.
pub(crate) fn plain(place: &str, a: &AttributeProto, problems: &mut Vec<Problem>) -> Attribute {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match kind(a) {
        AttributeType::INT => Attribute::Int(a.i),
        AttributeType::FLOAT => Attribute::Float(f64::from(a.f)),
        AttributeType::STRING => Attribute::Text(text(&a.s)),
        AttributeType::INTS => Attribute::Ints(a.ints.clone()),
        AttributeType::FLOATS => Attribute::Floats(a.floats.iter().map(|x| f64::from(*x)).collect()),
        AttributeType::STRINGS => Attribute::Texts(a.strings.iter().map(|s| text(s)).collect()),
        AttributeType::TENSOR => dense(a.t.as_ref().and_then(|t| tensor::read(place, t, problems))),
        // Only `Constant` has one, and its output is dense.
        AttributeType::SPARSE_TENSOR => {
            dense(a.sparse_tensor.as_ref().and_then(|t| tensor::read_sparse(place, t, problems)))
        }
        _ => Attribute::Other,
    }
}

fn dense(tensor: Option<Stored>) -> Attribute {
    tensor.map_or(Attribute::Other, |t| {
        Attribute::Tensor(TensorAttribute { dtype: t.dtype, shape: t.shape, value: t.value })
    })
}
