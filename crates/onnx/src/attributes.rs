//! `AttributeProto` as an [`Attribute`].

use crate::messages::{AttributeProto, AttributeType};
use crate::tensor::{self, Stored};
use memfit_graph::{Attribute, Problem, TensorAttribute};

/// The kind of an attribute; files of the first IR versions do not write it.
pub(crate) fn kind(a: &AttributeProto) -> AttributeType {
    if let Some(kind) = AttributeType::of(a.type_) {
        return kind;
    }
    let present = [
        (a.t.is_some(), AttributeType::Tensor),
        (a.sparse_tensor.is_some(), AttributeType::SparseTensor),
        (a.g.is_some(), AttributeType::Graph),
        (!a.ints.is_empty(), AttributeType::Ints),
        (!a.floats.is_empty(), AttributeType::Floats),
        (!a.strings.is_empty(), AttributeType::Strings),
        (!a.graphs.is_empty(), AttributeType::Graphs),
        (!a.s.is_empty(), AttributeType::String),
        (a.f != 0.0, AttributeType::Float),
        (a.i != 0, AttributeType::Int),
    ];
    present.iter().find(|(is, _)| *is).map_or(AttributeType::Other, |(_, kind)| *kind)
}

/// The attribute, where it is not a body; `place` is where a problem is reported.
pub(crate) fn plain(place: &str, a: &AttributeProto, problems: &mut Vec<Problem>) -> Attribute {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match kind(a) {
        AttributeType::Int => Attribute::Int(a.i),
        AttributeType::Float => Attribute::Float(f64::from(a.f)),
        AttributeType::String => Attribute::Text(text(&a.s)),
        AttributeType::Ints => Attribute::Ints(a.ints.clone()),
        AttributeType::Floats => Attribute::Floats(a.floats.iter().map(|x| f64::from(*x)).collect()),
        AttributeType::Strings => Attribute::Texts(a.strings.iter().map(|s| text(s)).collect()),
        AttributeType::Tensor => dense(a.t.as_ref().and_then(|t| tensor::read(place, t, problems))),
        // Only `Constant` has one, and its output is dense.
        AttributeType::SparseTensor => {
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
