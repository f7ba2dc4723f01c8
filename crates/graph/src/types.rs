//! What is known of a value that flows along an edge of the graph.

use crate::{DType, Shape};
use std::fmt;

/// A tensor's dtype and, where its rank is known, its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorType {
    /// Element type; [`DType::Undefined`] where nothing says it.
    pub dtype: DType,
    /// `None` where not even the rank is known.
    pub shape: Option<Shape>,
}

/// The type of a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Type {
    /// Nothing is known.
    #[default]
    Unknown,
    /// A dense tensor.
    Tensor(TensorType),
    /// A sparse tensor of this dense shape.
    Sparse(TensorType),
    /// A list of values; `items` where each one is known (shapes may differ from item to item).
    Sequence {
        /// The type that all items share, as far as they do.
        element: Box<Type>,
        /// Each item, where the length is known.
        items: Option<Vec<Type>>,
    },
    /// A value that may be absent. `present` is `None` where that is not known.
    Optional {
        /// The type if there is a value.
        element: Box<Type>,
        /// Whether there is one.
        present: Option<bool>,
    },
    /// A map; memfit sizes only its values.
    Map(Box<Type>),
}

impl Type {
    /// A tensor of `dtype` and `shape`.
    pub fn tensor(dtype: DType, shape: Shape) -> Type {
        Type::Tensor(TensorType { dtype, shape: Some(shape) })
    }

    /// The tensor inside, dense or sparse.
    #[inline]
    pub fn as_tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(t) | Type::Sparse(t) => Some(t),
            _ => None,
        }
    }

    /// The shape, where it is a tensor of known rank.
    #[inline]
    pub fn shape(&self) -> Option<&Shape> {
        self.as_tensor()?.shape.as_ref()
    }

    /// The dtype, where it is a tensor.
    #[inline]
    pub fn dtype(&self) -> Option<DType> {
        self.as_tensor().map(|t| t.dtype)
    }

    /// A sequence of exactly these items.
    pub fn sequence(items: Vec<Type>) -> Type {
        let element = items.iter().cloned().reduce(|a, b| a.join(&b)).unwrap_or_default();
        Type::Sequence { element: Box::new(element), items: Some(items) }
    }

    /// What is true of both: equal dims stay, different ones become unknown, different ranks lose the shape.
    pub fn join(&self, other: &Type) -> Type {
        match (self, other) {
            (a, b) if a == b => a.clone(),
            (Type::Tensor(a), Type::Tensor(b)) => Type::Tensor(TensorType {
                dtype: if a.dtype == b.dtype { a.dtype } else { DType::Undefined },
                shape: a.shape.as_ref().zip(b.shape.as_ref()).and_then(|(a, b)| a.join(b)),
            }),
            (Type::Sequence { element: a, .. }, Type::Sequence { element: b, .. }) => {
                Type::Sequence { element: Box::new(a.join(b)), items: None }
            }
            (Type::Optional { element: a, .. }, Type::Optional { element: b, .. }) => {
                Type::Optional { element: Box::new(a.join(b)), present: None }
            }
            _ => Type::Unknown,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Unknown => f.pad("an unknown type"),
            Type::Tensor(TensorType { dtype, shape }) | Type::Sparse(TensorType { dtype, shape }) => {
                write!(f, "a tensor of {dtype}")?;
                shape.as_ref().map_or(Ok(()), |shape| write!(f, ", {shape}"))
            }
            Type::Sequence { .. } => f.pad("a sequence"),
            Type::Optional { .. } => f.pad("an optional value"),
            Type::Map(_) => f.pad("a map"),
        }
    }
}

impl Shape {
    /// The shape of a value that has either of two shapes: dims that differ become an unknown bounded by the larger.
    pub fn join(&self, other: &Shape) -> Option<Shape> {
        (self.rank() == other.rank()).then(|| {
            let either = |(a, b): (&crate::Dim, &crate::Dim)| {
                if a == b {
                    return a.clone();
                }
                let upper = a.upper().zip(b.upper()).map(|(a, b)| a.max(b));
                crate::Dim::expression(&format!("either({a}, {b})"), upper)
            };
            self.dims().iter().zip(other.dims()).map(either).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_said_in_words() {
        let tensor = Type::tensor(DType::Int64, Shape::from([2, 3]));
        assert_eq!(tensor.to_string(), "a tensor of int64, 2x3");
        assert_eq!(Type::sequence(vec![tensor]).to_string(), "a sequence");
    }

    #[test]
    fn join_keeps_what_both_share() {
        let a = Type::tensor(DType::Float32, Shape::from([2, 3]));
        let b = Type::tensor(DType::Float32, Shape::from([4, 3]));
        let joined = a.join(&b);
        let shape = joined.shape().unwrap();
        assert_eq!((shape[0].known(), shape[0].upper(), shape[1].known()), (None, Some(4), Some(3)));
        assert_eq!(a.join(&Type::Unknown), Type::Unknown);
        assert_eq!(Type::sequence(vec![a.clone(), a.clone()]), {
            Type::Sequence { element: Box::new(a.clone()), items: Some(vec![a.clone(), a]) }
        });
    }
}
