//! What flows between layers: a shape and a dtype, as Keras' own `KerasTensor` has them.

use memfit_graph::{DType, Dim, OpError, Shape};

/// A tensor between two layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Dims, the batch included.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

impl Spec {
    /// A tensor of these dims.
    pub fn new(shape: Shape, dtype: DType) -> Spec {
        Spec { shape, dtype }
    }

    /// The dims from outermost to innermost.
    pub fn dims(&self) -> &[Dim] {
        self.shape.dims()
    }

    /// How many axes.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// The innermost dim.
    pub fn last(&self) -> Result<&Dim, OpError> {
        self.dims().last().ok_or_else(|| OpError::mismatch("at least one axis", "a scalar"))
    }

    /// The same dtype in another shape.
    pub fn with(&self, dims: impl IntoIterator<Item = Dim>) -> Spec {
        Spec { shape: dims.into_iter().collect(), dtype: self.dtype }
    }

    /// `axis` counted from the front.
    pub fn axis(&self, axis: i64) -> Result<usize, OpError> {
        self.shape.axis(axis).ok_or_else(|| {
            OpError::mismatch(format!("an axis of a tensor of rank {}", self.rank()), format!("axis {axis}"))
        })
    }

    /// The same with one dim replaced.
    pub fn replaced(&self, axis: usize, dim: Dim) -> Spec {
        let mut spec = self.clone();
        if let Some(slot) = spec.shape.dims_mut().get_mut(axis) {
            *slot = dim;
        }
        spec
    }
}

/// Input `i` of a layer.
pub(crate) fn input(inputs: &[Spec], i: usize) -> Result<&Spec, OpError> {
    inputs.get(i).ok_or(OpError::MissingInput { index: i })
}

/// Input `i`, which must have `rank` axes.
pub(crate) fn input_of_rank(inputs: &[Spec], i: usize, rank: usize) -> Result<&Spec, OpError> {
    let spec = input(inputs, i)?;
    if spec.rank() == rank {
        Ok(spec)
    } else {
        Err(OpError::input(i, format!("rank {rank}"), format!("shape {}", spec.shape)))
    }
}

/// Input `i`, which must have at least `rank` axes.
pub(crate) fn input_from_rank(inputs: &[Spec], i: usize, rank: usize) -> Result<&Spec, OpError> {
    let spec = input(inputs, i)?;
    if spec.rank() >= rank {
        Ok(spec)
    } else {
        Err(OpError::input(i, format!("at least {rank} axes"), format!("shape {}", spec.shape)))
    }
}

/// A dim that a variable's shape is made of, so it must be a number.
pub(crate) fn number(dim: &Dim) -> Result<u64, OpError> {
    dim.known().ok_or_else(|| OpError::mismatch("a size that the weights can be made for", dim))
}

/// The product of dims.
pub(crate) fn product(dims: &[Dim]) -> Result<Dim, OpError> {
    let too_large = || OpError::overflow("the number of elements");
    dims.iter().try_fold(Dim::Known(1), |acc, d| acc.mul(d)).ok_or_else(too_large)
}

/// The product of numbers.
pub(crate) fn times(a: u64, b: u64) -> Result<u64, OpError> {
    a.checked_mul(b).ok_or_else(|| OpError::overflow("a size"))
}

/// The sum of dims.
pub(crate) fn sum(a: &Dim, b: &Dim) -> Result<Dim, OpError> {
    a.add(b).ok_or_else(|| OpError::overflow("a size"))
}
