//! Convolution, pooling and resizing: kernels of `burn-cubecl` that want channels last, so that a tensor with channels first is
//! copied (`kernel/{conv/direct,conv/backward_weight/fallback,conv/backward_data/fallback,pool/*,interpolate/base}.rs`, the strategies
//! that are the defaults without autotuning).

use super::super::program::{Kind, Range, Window};
use super::memory::{Device, Tensor};

fn to_last(rank: usize) -> Vec<usize> {
    [0].into_iter().chain(2..rank).chain([1]).collect()
}

fn to_first(rank: usize) -> Vec<usize> {
    [0, rank - 1].into_iter().chain(1..rank - 1).collect()
}

/// Sizes of a window's output.
fn sizes(window: &Window, kernel: &[usize], input: &[usize]) -> Vec<usize> {
    let size = |i: usize| {
        let extent = kernel[i].saturating_sub(1).saturating_mul(window.dilation[i]).saturating_add(1);
        let seen = input[i].saturating_add(window.padding[i].saturating_mul(2));
        seen.saturating_sub(extent) / window.stride[i].max(1) + 1
    };
    (0..kernel.len()).map(size).collect()
}

impl Device {
    fn channels_last(&self, x: Tensor) -> Tensor {
        let axes = to_last(x.rank());
        self.permute(x, &axes)
    }

    fn channels_first(&self, x: Tensor) -> Tensor {
        let axes = to_first(x.rank());
        self.permute(x, &axes)
    }

    /// `into_contiguous_aligned`.
    fn aligned(&self, x: Tensor) -> Tensor {
        let reads = if self.backend.pitched { x.is_pitched() } else { x.is_contiguous() };
        if reads { x } else { self.copy(&x) }
    }

    /// `conv_direct`: inputs with channels last; copied where these do not lie together.
    fn direct(&self, x: Tensor, weight: Tensor, window: &Window) -> Tensor {
        let last = x.rank() - 1;
        let packed = |t: Tensor| if t.strides[last] == 1 { t } else { self.aligned(t) };
        let (x, weight) = (packed(x), packed(weight));
        let mut shape = vec![x.shape[0]];
        shape.extend(sizes(window, &weight.shape[1..last], &x.shape[1..last]));
        shape.push(weight.shape[0]);
        self.make(x.kind, &shape, "convolution")
    }

    pub(super) fn conv(&self, x: Tensor, weight: Tensor, window: &Window) -> Tensor {
        let (x, weight) = (self.channels_last(x), self.channels_last(weight));
        let y = self.direct(x, weight, window);
        self.channels_first(y)
    }

    /// A transposed convolution of the gradient; `shape` is the input's.
    pub(super) fn conv_data(&self, grad: Tensor, weight: Tensor, shape: &[usize]) -> Tensor {
        let kind = grad.kind;
        drop((grad, weight));
        self.make(kind, shape, "convolution")
    }

    /// A convolution of the input by the gradient, group by group.
    pub(super) fn conv_weight(
        &self,
        x: Tensor,
        grad: Tensor,
        shape: &[usize],
        window: &Window,
        groups: usize,
    ) -> Tensor {
        let turned =
            Window { stride: window.dilation.clone(), dilation: window.stride.clone(), ..window.clone() };
        let last = x.rank() - 1;
        let (x, grad) = (self.channels_last(x), self.channels_last(grad));
        let (x, grad) = (self.swap(x, 0, last), self.swap(grad, 0, last));
        let mut want: Vec<usize> = to_last(shape.len()).iter().map(|a| shape[*a]).collect();
        if groups == 1 {
            let y = self.direct(x, grad, &turned);
            let mut y = self.swap(y, 0, last);
            if y.shape != want {
                y = self.slice_to(y, &want);
            }
            return self.channels_first(y);
        }
        let mut all = self.make(x.kind, &want, "convolution");
        let (inner, outer) = (want[last], want[0] / groups.max(1));
        want[0] = outer;
        let piece = |t: &Tensor, from: usize, to: usize| {
            let mut ranges: Vec<Range> =
                t.shape.iter().map(|n| Range { start: 0, end: *n, step: 1 }).collect();
            ranges[0] = Range { start: from, end: to, step: 1 };
            self.slice(t.clone(), &ranges)
        };
        for g in 0..groups {
            let part = piece(&x, g * inner, (g + 1) * inner);
            let by = piece(&grad, g * outer, (g + 1) * outer);
            let y = self.direct(part, by, &turned);
            let mut y = self.swap(y, 0, last);
            if y.shape[1..last] != want[1..last] {
                y = self.slice_to(y, &want);
            }
            all = self.assign(all, y);
        }
        self.channels_first(all)
    }

    /// Over everything but channels.
    pub(super) fn conv_bias(&self, grad: Tensor) -> Tensor {
        let channels = grad.shape[1];
        let flat = grad.elements() / channels.max(1);
        let grad = self.swap(grad, 0, 1);
        let grad = self.reshape(grad, &[channels, flat]);
        let grad = self.reduce(grad, 1);
        self.reshape(grad, &[channels])
    }

    /// The weight's gradient of a transposed convolution: a convolution of the gradient by the input.
    pub(super) fn transposed_weight(
        &self,
        x: Tensor,
        grad: Tensor,
        shape: &[usize],
        window: &Window,
    ) -> Tensor {
        let turned =
            Window { stride: window.dilation.clone(), dilation: window.stride.clone(), ..window.clone() };
        let (x, grad) = (self.swap(x, 0, 1), self.swap(grad, 0, 1));
        let y = self.conv(grad, x, &turned);
        let y = self.swap(y, 0, 1);
        if y.shape == shape { y } else { self.slice_to(y, shape) }
    }

    fn plane(&self, x: &Tensor, size: &[usize], kind: Kind) -> Tensor {
        let y = self.make(kind, &[x.shape[0], size[0], size[1], x.shape[1]], "pooling");
        self.channels_first(y)
    }

    /// A kernel that reads a copy with channels last; with the indices of maxima, where asked for.
    pub(super) fn pool(&self, x: Tensor, size: &[usize], indices: bool) -> (Tensor, Option<Tensor>) {
        let packed = self.channels_last(x);
        let packed = self.aligned(packed);
        let packed = self.channels_first(packed);
        let y = self.plane(&packed, size, packed.kind);
        let indices = indices.then(|| self.plane(&packed, size, Kind::Int));
        (y, indices)
    }

    /// The gradient's copy with channels last, then the input's gradient.
    pub(super) fn pool_backward(
        &self,
        x: Tensor,
        grad: Tensor,
        indices: Option<Tensor>,
        copies: bool,
    ) -> Tensor {
        let grad = self.channels_last(grad);
        let grad = if copies { self.aligned(grad) } else { grad };
        let indices = indices.map(|i| {
            let i = self.channels_last(i);
            self.aligned(i)
        });
        let y = self.plane(&x, &x.shape[2..], x.kind);
        drop((grad, indices));
        y
    }
}
