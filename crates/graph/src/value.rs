//! Small constants that shapes depend on.
//!
//! Inference folds the integers and scalars that flow through `Shape → Slice → Concat → Reshape` chains. An element
//! may be symbolic (`batch`) or unknown, so a chain stays foldable where only one of its numbers is not known.

use crate::{DType, Dim, Shape, elements, times};
use std::fmt;

/// One element of a folded value.
#[derive(Clone, Debug, PartialEq)]
pub enum Num {
    /// An integer or a truth value (0, 1).
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A size that is not a number yet.
    Dim(Dim),
    /// Not known.
    Unknown,
}

impl Num {
    /// As an integer; a float only where it is whole.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Num::Int(n) => Some(*n),
            // A float outside of i64 fails the round trip below, since `as` saturates.
            Num::Float(x) if x.fract() == 0.0 && x.abs() < 9.0e18 => Some(*x as i64),
            Num::Dim(Dim::Known(n)) => i64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// As a float.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Num::Int(n) => Some(*n as f64),
            Num::Float(x) => Some(*x),
            Num::Dim(Dim::Known(n)) => Some(*n as f64),
            _ => None,
        }
    }

    /// As a dim: a non-negative integer or a symbolic size.
    pub fn as_dim(&self) -> Option<Dim> {
        match self {
            Num::Dim(d) => Some(d.clone()),
            other => other.as_i64().and_then(|n| u64::try_from(n).ok()).map(Dim::Known),
        }
    }
}

impl fmt::Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Num::Int(n) => n.fmt(f),
            Num::Float(x) => x.fmt(f),
            Num::Dim(dim) => dim.fmt(f),
            Num::Unknown => f.pad("?"),
        }
    }
}

/// Elements as a message shows them: `[-1, 2]`.
pub(crate) fn listed(elements: &[Num]) -> String {
    let elements: Vec<String> = elements.iter().map(Num::to_string).collect();
    format!("[{}]", elements.join(", "))
}

impl From<Dim> for Num {
    fn from(dim: Dim) -> Num {
        match dim {
            Dim::Known(n) => i64::try_from(n).map_or(Num::Unknown, Num::Int),
            symbolic => Num::Dim(symbolic),
        }
    }
}

impl From<i64> for Num {
    fn from(n: i64) -> Num {
        Num::Int(n)
    }
}

impl From<f64> for Num {
    fn from(x: f64) -> Num {
        Num::Float(x)
    }
}

/// A small tensor whose elements are (partly) known, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Element type.
    pub dtype: DType,
    /// Dims; all are numbers.
    pub shape: Vec<u64>,
    /// Elements; as many as the product of `shape`.
    pub data: Vec<Num>,
}

impl Value {
    /// Values with more elements than this are not folded: no shape depends on that many numbers.
    pub const MAX_ELEMENTS: u64 = 4096;

    /// A scalar.
    pub fn scalar(dtype: DType, element: impl Into<Num>) -> Value {
        Value { dtype, shape: Vec::new(), data: vec![element.into()] }
    }

    /// A vector.
    pub fn vector<N: Into<Num>>(dtype: DType, elements: impl IntoIterator<Item = N>) -> Value {
        let data: Vec<Num> = elements.into_iter().map(Into::into).collect();
        Value { dtype, shape: vec![data.len() as u64], data }
    }

    /// All elements unknown; `None` where there would be too many.
    pub fn unknown(dtype: DType, shape: &[u64]) -> Option<Value> {
        Value::filled(dtype, shape, Num::Unknown)
    }

    /// All elements the same; `None` where there would be too many.
    pub fn filled(dtype: DType, shape: &[u64], element: Num) -> Option<Value> {
        let count = shape.iter().try_fold(1_u64, |acc, d| acc.checked_mul(*d))?;
        let count = usize::try_from(count).ok().filter(|n| *n as u64 <= Self::MAX_ELEMENTS)?;
        Some(Value { dtype, shape: shape.to_vec(), data: vec![element; count] })
    }

    /// The only element of a scalar or one-element tensor.
    pub fn single(&self) -> Option<&Num> {
        match &self.data[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    /// All elements as integers.
    pub fn ints(&self) -> Option<Vec<i64>> {
        self.data.iter().map(Num::as_i64).collect()
    }

    /// All elements as floats.
    pub fn floats(&self) -> Option<Vec<f64>> {
        self.data.iter().map(Num::as_f64).collect()
    }

    /// Whether every element is a number.
    pub fn is_known(&self) -> bool {
        self.data.iter().all(|n| matches!(n, Num::Int(_) | Num::Float(_)))
    }

    /// The shape as dims.
    pub fn dims(&self) -> Shape {
        Shape::from(&self.shape[..])
    }

    /// The flat index of the element at `index`, whose axes of extent one are repeated (broadcasting from the right).
    pub fn broadcast_index(&self, index: &[u64]) -> usize {
        let skip = index.len().saturating_sub(self.shape.len());
        let flat =
            self.shape.iter().zip(index.get(skip..).unwrap_or_default()).fold(0, |acc: u64, (dim, i)| {
                times(acc, *dim).saturating_add(if *dim == 1 { 0 } else { *i })
            });
        usize::try_from(flat).unwrap_or(usize::MAX)
    }
}

/// All indices of a row-major tensor of this shape, in order.
pub(crate) fn indices(shape: &[u64]) -> impl Iterator<Item = Vec<u64>> + use<> {
    let shape = shape.to_vec();
    // Nothing times anything is nothing, whatever overflows before.
    let count = if shape.contains(&0) { 0 } else { elements(&shape) };
    (0..count).map(move |mut flat| {
        let mut index = vec![0; shape.len()];
        for (i, dim) in index.iter_mut().zip(&shape).rev() {
            *i = flat % dim;
            flat /= dim;
        }
        index
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_convert_only_where_exact() {
        assert_eq!(Num::Float(3.0).as_i64(), Some(3));
        assert_eq!(Num::Float(3.5).as_i64(), None);
        assert_eq!(Num::Int(-1).as_dim(), None);
        assert_eq!(Num::Dim(Dim::symbol("b")).as_dim(), Some(Dim::symbol("b")));
        assert_eq!(Num::Float(f64::INFINITY).as_i64(), None);
    }

    #[test]
    fn large_values_are_not_folded() {
        assert!(Value::unknown(DType::Int64, &[1 << 40, 1 << 40]).is_none());
        assert!(Value::unknown(DType::Int64, &[4096]).is_some());
        assert!(Value::unknown(DType::Int64, &[4097]).is_none());
    }

    #[test]
    fn indices_walk_in_row_major_order() {
        assert_eq!(indices(&[1 << 32, 1 << 32, 0]).count(), 0);
        assert!(indices(&[1 << 32, 1 << 32]).next().is_some());
        let all: Vec<_> = indices(&[2, 2]).collect();
        assert_eq!(all, [[0, 0], [0, 1], [1, 0], [1, 1]]);
        assert_eq!(indices(&[]).count(), 1);
        assert_eq!(indices(&[0, 3]).count(), 0);
        assert_eq!(Value::vector(DType::Int64, [7_i64]).broadcast_index(&[3, 5]), 0);
    }
}
