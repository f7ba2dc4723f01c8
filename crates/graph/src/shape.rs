//! A tensor's shape: its dims in order, with broadcasting and element counts.

use crate::Dim;
use smallvec::SmallVec;
use std::fmt;

/// Dims from outermost to innermost; a scalar has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape(SmallVec<[Dim; 4]>);

impl Shape {
    /// A scalar's shape.
    pub fn scalar() -> Shape {
        Shape::default()
    }

    /// How many axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The dims as a slice.
    #[inline]
    pub fn dims(&self) -> &[Dim] {
        &self.0
    }

    /// The dims, to change.
    pub fn dims_mut(&mut self) -> &mut [Dim] {
        &mut self.0
    }

    /// Adds an innermost dim.
    pub fn push(&mut self, dim: impl Into<Dim>) {
        self.0.push(dim.into());
    }

    /// Puts a dim at `axis`.
    pub fn insert(&mut self, axis: usize, dim: impl Into<Dim>) {
        self.0.insert(axis, dim.into());
    }

    /// Takes the dim at `axis` away.
    pub fn remove(&mut self, axis: usize) -> Dim {
        self.0.remove(axis)
    }

    /// The product of all dims, symbolic if need be; `None` on overflow.
    pub fn product(&self) -> Option<Dim> {
        self.0.iter().try_fold(Dim::Known(1), |acc, d| acc.mul(d))
    }

    /// How many elements, if every dim is a number and the product fits.
    pub fn elements(&self) -> Option<u64> {
        self.0.iter().try_fold(1_u64, |acc, d| acc.checked_mul(d.known()?))
    }

    /// Every dim as a number, if each is one.
    pub fn known(&self) -> Option<Vec<u64>> {
        self.0.iter().map(Dim::known).collect()
    }

    /// Every dim as a number, unknown ones at their upper bound; `None` where one has no bound.
    pub fn upper(&self) -> Option<Vec<u64>> {
        self.0.iter().map(Dim::upper).collect()
    }

    /// `axis` counted from the front: negative ones count from the back. `None` when out of range.
    pub fn axis(&self, axis: i64) -> Option<usize> {
        normalize_axis(axis, self.rank())
    }

    /// Numpy's broadcast of two shapes. A symbol against a number larger than one takes the number (they must be
    /// equal at run time or the symbol one); two different symbols give a new unknown. `None` on a conflict.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let rank = self.rank().max(other.rank());
        let at = |s: &Shape, i: usize| (i + s.rank()).checked_sub(rank).map(|i| s.0[i].clone());
        (0..rank)
            .map(|i| match (at(self, i), at(other, i)) {
                (Some(a), Some(b)) => broadcast_dim(&a, &b),
                (Some(d), None) | (None, Some(d)) => Some(d),
                (None, None) => None,
            })
            .collect::<Option<_>>()
            .map(Shape)
    }
}

/// `axis` in `0..rank`, counted from the back when negative.
pub(crate) fn normalize_axis(axis: i64, rank: usize) -> Option<usize> {
    let rank_signed = i64::try_from(rank).ok()?;
    let axis = if axis < 0 { axis.checked_add(rank_signed)? } else { axis };
    usize::try_from(axis).ok().filter(|a| *a < rank)
}

fn broadcast_dim(a: &Dim, b: &Dim) -> Option<Dim> {
    match (a, b) {
        (a, b) if a == b => Some(a.clone()),
        (Dim::Known(1), d) | (d, Dim::Known(1)) => Some(d.clone()),
        (Dim::Known(_), Dim::Known(_)) => None,
        (Dim::Known(n), _) | (_, Dim::Known(n)) => Some(Dim::Known(*n)),
        (a, b) => {
            let upper = a.upper().zip(b.upper()).map(|(a, b)| a.max(b));
            Some(Dim::expression(&format!("broadcast({a}, {b})"), upper))
        }
    }
}

impl std::ops::Index<usize> for Shape {
    type Output = Dim;
    fn index(&self, axis: usize) -> &Dim {
        &self.0[axis]
    }
}

impl<D: Into<Dim>> FromIterator<D> for Shape {
    fn from_iter<I: IntoIterator<Item = D>>(dims: I) -> Shape {
        Shape(dims.into_iter().map(Into::into).collect())
    }
}

impl<const N: usize> From<[u64; N]> for Shape {
    fn from(dims: [u64; N]) -> Shape {
        dims.into_iter().collect()
    }
}

impl From<&[u64]> for Shape {
    fn from(dims: &[u64]) -> Shape {
        dims.iter().copied().collect()
    }
}

impl fmt::Display for Shape {
    /// `8x3x224x224`; `scalar` for no dims.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.pad("scalar");
        }
        let dims: Vec<String> = self.0.iter().map(Dim::to_string).collect();
        f.pad(&dims.join("x"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasts_as_numpy_does() {
        let shape = |d: &[u64]| Shape::from(d);
        assert_eq!(shape(&[8, 1, 6, 1]).broadcast(&shape(&[7, 1, 5])), Some(shape(&[8, 7, 6, 5])));
        assert_eq!(shape(&[3]).broadcast(&shape(&[4])), None);
        assert_eq!(shape(&[0]).broadcast(&shape(&[1])), Some(shape(&[0])));
        let batch: Shape = [Dim::symbol("batch"), Dim::Known(4)].into_iter().collect();
        assert_eq!(batch.broadcast(&shape(&[1, 4])), Some(batch.clone()));
        assert_eq!(batch.broadcast(&shape(&[4])), Some(batch));
    }

    #[test]
    fn counts_elements_without_wrapping() {
        assert_eq!(Shape::scalar().elements(), Some(1));
        assert_eq!(Shape::from([1 << 40, 1 << 40]).elements(), None);
        assert_eq!(Shape::from([2, 3]).axis(-1), Some(1));
        assert_eq!(Shape::from([2, 3]).axis(2), None);
        assert_eq!(Shape::from([2, 3]).axis(i64::MIN), None);
    }
}
