//! What a cubecl backend allocates for one function (`burn-cubecl` 0.21, autotuning and fusion off).
//!
//! An elementwise kernel writes into an input that nobody else holds and that is as large as the output
//! (`kernel/{unary_float,binary,mask/base}.rs`); everything else makes a new tensor. Views share the buffer.

use super::super::program::{Kind, Range};
use super::memory::{Device, Tensor, contiguous};

impl Device {
    pub(super) fn unary(&self, x: Tensor) -> Tensor {
        if x.can_mut() { x } else { self.make(x.kind, &x.shape, "elementwise") }
    }

    pub(super) fn binary(&self, a: Tensor, b: Tensor) -> Tensor {
        if a.can_hold(&b) {
            a
        } else if b.can_hold(&a) {
            b
        } else {
            let shape: Vec<usize> = a.shape.iter().zip(&b.shape).map(|(a, b)| *a.max(b)).collect();
            self.make(a.kind, &shape, "elementwise")
        }
    }

    /// Comparisons write into an input of their own type only.
    pub(super) fn compare(&self, a: Tensor, b: Tensor) -> Tensor {
        if a.kind == Kind::Bool {
            return self.binary(a, b);
        }
        self.make(Kind::Bool, &a.shape, "comparison")
    }

    pub(super) fn compare_scalar(&self, a: Tensor) -> Tensor {
        if a.kind == Kind::Bool { self.unary(a) } else { self.make(Kind::Bool, &a.shape, "comparison") }
    }

    pub(super) fn mask_fill(&self, x: Tensor, mask: Tensor) -> Tensor {
        let y = self.unary(x);
        drop(mask);
        y
    }

    pub(super) fn mask_where(&self, x: Tensor, mask: Tensor, value: Tensor) -> Tensor {
        let y = self.binary(x, value);
        drop(mask);
        y
    }

    pub(super) fn zeros(&self, kind: Kind, shape: &[usize]) -> Tensor {
        self.make(kind, shape, "fill")
    }

    /// `kernel/cast/base.rs`: nothing where it is of that kind.
    pub(super) fn cast(&self, x: Tensor, kind: Kind) -> Tensor {
        if x.kind == kind { x } else { self.make(kind, &x.shape, "cast") }
    }

    pub(super) fn copy(&self, x: &Tensor) -> Tensor {
        self.make(x.kind, &x.shape, "contiguous copy")
    }

    pub(super) fn reduce(&self, x: Tensor, axis: usize) -> Tensor {
        let mut shape = x.shape.clone();
        shape[axis] = 1;
        // `init_reduce_output` asks for no gaps.
        self.make_contiguous(x.kind, &shape, "reduction")
    }

    /// Axis after axis, the smallest first.
    pub(super) fn reduce_all(&self, x: Tensor) -> Tensor {
        let mut axes: Vec<usize> = (0..x.rank()).collect();
        axes.sort_by_key(|a| x.shape[*a]);
        let mut x = x;
        for axis in axes {
            x = self.reduce(x, axis);
        }
        (x.shape, x.strides) = (vec![1], vec![1]);
        x
    }

    pub(super) fn matmul(&self, a: Tensor, b: Tensor) -> Tensor {
        let rank = a.rank();
        let mut shape: Vec<usize> = a.shape.iter().zip(&b.shape).map(|(a, b)| *a.max(b)).collect();
        (shape[rank - 2], shape[rank - 1]) = (a.shape[rank - 2], b.shape[rank - 1]);
        self.make(a.kind, &shape, "matmul")
    }

    /// `reshape_action` (burn-std): a view where the tensor is contiguous, where axes are only split, or where leading ones are put
    /// in; else a copy.
    pub(super) fn reshape(&self, x: Tensor, shape: &[usize]) -> Tensor {
        let mut x = x;
        if x.is_contiguous() {
            (x.shape, x.strides) = (shape.to_vec(), contiguous(shape));
            return x;
        }
        if x.shape == shape {
            return x;
        }
        if shape.len() > x.rank() && splits(&x.shape, shape) {
            x.strides = split_strides(&x.shape, &x.strides, shape);
            x.shape = shape.to_vec();
            return x;
        }
        self.make(x.kind, shape, "reshape")
    }

    pub(super) fn permute(&self, x: Tensor, axes: &[usize]) -> Tensor {
        let shape = axes.iter().map(|a| x.shape[*a]).collect();
        let strides = axes.iter().map(|a| x.strides[*a]).collect();
        Tensor { shape, strides, ..x }
    }

    pub(super) fn swap(&self, x: Tensor, a: usize, b: usize) -> Tensor {
        let mut x = x;
        x.shape.swap(a, b);
        x.strides.swap(a, b);
        x
    }

    pub(super) fn expand(&self, x: Tensor, shape: &[usize]) -> Tensor {
        let added = shape.len().saturating_sub(x.rank());
        let strides = (0..shape.len())
            .map(|i| match i.checked_sub(added) {
                Some(k) if x.shape[k] == shape[i] => x.strides[k],
                _ => 0,
            })
            .collect();
        Tensor { shape: shape.to_vec(), strides, ..x }
    }

    /// A view where both ends are at multiples of the alignment, else a copy (`kernel/index/slice.rs`).
    pub(super) fn slice(&self, x: Tensor, ranges: &[Range]) -> Tensor {
        let shape: Vec<usize> = ranges
            .iter()
            .map(|r| r.end.saturating_sub(r.start).div_ceil(r.step.unsigned_abs().max(1)))
            .collect();
        let (mut start, mut end) = (0_usize, 0_usize);
        for ((range, stride), size) in ranges.iter().zip(&x.strides).zip(&x.shape) {
            start = start.saturating_add(stride.saturating_mul(range.start));
            end = end.saturating_add(stride.saturating_mul(size.saturating_sub(range.end)));
        }
        let aligned = |n: usize| self.bytes(x.kind, n).0.is_multiple_of(self.backend.alignment);
        if ranges.iter().all(|r| r.step == 1) && aligned(start) && aligned(end) {
            return Tensor { shape, ..x };
        }
        self.make(x.kind, &shape, "slice")
    }

    pub(super) fn slice_to(&self, x: Tensor, shape: &[usize]) -> Tensor {
        let ranges: Vec<Range> = shape.iter().map(|n| Range { start: 0, end: *n, step: 1 }).collect();
        self.slice(x, &ranges)
    }

    /// Into a tensor that is copied if someone else holds it.
    pub(super) fn assign(&self, x: Tensor, value: Tensor) -> Tensor {
        let y = if x.can_mut() { x } else { self.copy(&x) };
        drop(value);
        y
    }

    /// Into zeros of this shape: the gradient of what picked elements.
    pub(super) fn put_back(&self, grad: Tensor, shape: &[usize]) -> Tensor {
        let zeros = self.zeros(grad.kind, shape);
        self.assign(zeros, grad)
    }

    /// Sums the axes that were broadcast.
    pub(super) fn unbroadcast(&self, grad: Tensor, shape: &[usize]) -> Tensor {
        let mut grad = grad;
        for (i, n) in shape.iter().enumerate() {
            if grad.shape[i] != *n {
                grad = self.reduce(grad, i);
            }
        }
        grad
    }
}

fn splits(shape: &[usize], to: &[usize]) -> bool {
    let added = to.len() - shape.len();
    if shape == &to[added..] && to[..added].iter().all(|n| *n == 1) {
        return true;
    }
    let (mut product, mut old) = (1_usize, 0);
    for n in to {
        product = product.saturating_mul(*n);
        if *n == 1 {
            continue;
        }
        let Some(size) = shape.get(old) else { return false };
        if product == *size {
            (product, old) = (1, old + 1);
        } else if product > *size {
            return false;
        }
    }
    true
}

fn split_strides(shape: &[usize], strides: &[usize], to: &[usize]) -> Vec<usize> {
    let mut out = vec![1; to.len()];
    let mut old = shape.len().saturating_sub(1);
    let (mut stride, mut product) = (strides.get(old).copied().unwrap_or(1), 1_usize);
    for (i, n) in to.iter().enumerate().rev() {
        product = product.saturating_mul(*n);
        out[i] = stride;
        if *n == 1 {
            continue;
        }
        if product == shape[old] {
            old = old.saturating_sub(1);
            (stride, product) = (strides[old], 1);
        } else {
            stride = stride.saturating_mul(*n);
        }
    }
    out
}
