//! Shapes and strides: which views need no copy, and how new tensors are laid out.
//!
//! Sources: aten/src/ATen/TensorUtils.cpp (`computeStride`), c10/core/TensorImpl.h (contiguity and density),
//! aten/src/ATen/ExpandUtils.cpp (`infer_dense_strides`), PyTorch 2.15.

use memfit_graph::{elements, times};
use smallvec::SmallVec;

/// Dims or strides.
pub(super) type Dims = SmallVec<[u64; 6]>;

/// Row-major strides of a shape.
pub(super) fn contiguous(shape: &[u64]) -> Dims {
    let mut strides = Dims::from_slice(shape);
    make_contiguous(&mut strides);
    strides
}

/// Puts row-major strides in the stead of dims.
pub(super) fn make_contiguous(dims: &mut [u64]) {
    let mut next = 1_u64;
    for dim in dims.iter_mut().rev() {
        let stride = next;
        next = times(next, (*dim).max(1));
        *dim = stride;
    }
}

/// Whether the elements lie in row-major order without gaps.
pub(super) fn is_contiguous(shape: &[u64], strides: &[u64]) -> bool {
    let mut next = 1_u64;
    for (dim, stride) in shape.iter().zip(strides).rev() {
        if *dim != 1 && *stride != next {
            return false;
        }
        next = times(next, *dim);
    }
    true
}

/// Sorts axes by a key; equal ones stay in order.
fn sort(axes: &mut [usize], key: &dyn Fn(usize) -> u64) {
    axes.sort_by_key(|axis| key(*axis));
}

/// Whether the elements fill their storage without gaps or overlaps, in any order of axes.
pub(super) fn is_dense(shape: &[u64], strides: &[u64]) -> bool {
    let mut order: SmallVec<[usize; 6]> = (0..shape.len()).filter(|k| shape[*k] != 1).collect();
    sort(&mut order, &|k| strides[k]);
    let mut next = 1_u64;
    order.into_iter().all(|k| {
        let fits = strides[k] == next;
        next = times(next, shape[k]);
        fits
    })
}

/// The layout of a new tensor made like this one: the same strides where they are dense, else the same order of axes.
pub(super) fn like(shape: &[u64], strides: &[u64]) -> Dims {
    if is_dense(shape, strides) {
        return Dims::from_slice(strides);
    }
    let mut order: SmallVec<[usize; 6]> = (0..shape.len()).collect();
    // Stable, so that axes of equal stride (expanded ones) keep their order; innermost first.
    order.reverse();
    sort(&mut order, &|k| if strides[k] == 0 { u64::MAX } else { strides[k] });
    let mut out = Dims::from_slice(shape);
    let mut next = 1_u64;
    for k in order {
        out[k] = next;
        next = times(next, shape[k].max(1));
    }
    out
}

/// The strides of a view of the same elements in another shape; `None` where it needs a copy.
pub(super) fn view(shape: &[u64], strides: &[u64], new: &[u64]) -> Option<Dims> {
    if elements(shape) == 0 {
        return Some(contiguous(new));
    }
    let mut out = Dims::from_slice(new);
    let mut at = new.len();
    let (mut chunk, mut base) = (1_u64, strides.last().copied().unwrap_or(1));
    if shape.is_empty() {
        return new.iter().all(|d| *d == 1).then(|| contiguous(new));
    }
    for k in (0..shape.len()).rev() {
        chunk = times(chunk, shape[k]);
        let breaks = k == 0 || (shape[k - 1] != 1 && strides[k - 1] != times(chunk, base));
        if !breaks {
            continue;
        }
        let mut filled = 1_u64;
        while at > 0 && (filled < chunk || new[at - 1] == 1) {
            at -= 1;
            out[at] = times(filled, base);
            filled = times(filled, new[at]);
        }
        if filled != chunk {
            return None;
        }
        if k > 0 {
            chunk = 1;
            base = strides[k - 1];
        }
    }
    (at == 0).then_some(out)
}

/// The strides after repeating axes of extent one (aligned from the right): zero where repeated.
pub(super) fn expand(shape: &[u64], strides: &[u64], new: &[u64]) -> Dims {
    let skip = new.len().saturating_sub(shape.len());
    (0..new.len())
        .map(|k| match k.checked_sub(skip) {
            Some(i) if shape[i] == new[k] => strides[i],
            _ => 0,
        })
        .collect()
}

/// The strides of a reduced tensor seen at the shape before the reduction: zero along the reduced axes.
pub(super) fn expand_reduced(shape: &[u64], strides: &[u64], new: &[u64]) -> Dims {
    if shape.len() == new.len() {
        return expand(shape, strides, new);
    }
    let mut rest = shape.iter().zip(strides).peekable();
    new.iter()
        .map(|dim| match rest.next_if(|(have, _)| *have == dim) {
            Some((_, stride)) => *stride,
            None => 0,
        })
        .collect()
}

/// Whether an image's channels lie innermost, in the order of axes C, W, H, N (c10/core/MemoryFormat.h,
/// `is_channels_last_strides_2d`: what could be either counts as row-major).
pub(super) fn is_channels_last(shape: &[u64], strides: &[u64]) -> bool {
    if shape.len() != 4 || strides[1] == 0 {
        return false;
    }
    let mut least = 0;
    [1, 3, 2, 0].into_iter().all(|axis| {
        let fits = shape[axis] != 0 && strides[axis] >= least && !(axis == 0 && least == strides[1]);
        least = times(strides[axis], shape[axis]);
        fits
    })
}

/// The strides of an image with its channels innermost.
pub(super) fn channels_last(shape: &[u64]) -> Dims {
    let mut out = Dims::from_slice(shape);
    let mut next = 1;
    for axis in [1, 3, 2, 0] {
        out[axis] = next;
        next = times(next, shape[axis].max(1));
    }
    out
}

/// Contiguous, or dense with the channels innermost.
pub(super) fn is_plain(shape: &[u64], strides: &[u64]) -> bool {
    is_contiguous(shape, strides)
        || (shape.len() >= 4 && strides.get(1) == Some(&1) && is_dense(shape, strides))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_seen_as_an_image_have_their_channels_innermost() {
        let (tokens, image) = ([2, 16, 8], [2, 8, 4, 4]);
        let turned = [128, 1, 8]; // [N, C, H*W] after a transpose
        let strides = view(&[tokens[0], tokens[2], tokens[1]], &turned, &image).unwrap();
        assert!(is_channels_last(&image, &strides) && strides == channels_last(&image));
        assert!(!is_channels_last(&image, &contiguous(&image)));
        // One pixel, or one channel: either order, so row-major.
        for shape in [[8, 3, 1, 1], [8, 1, 4, 4]] {
            assert!(!is_channels_last(&shape, &contiguous(&shape)), "{shape:?}");
        }
        assert!(!is_channels_last(&[8, 4, 4], &[16, 1, 4]));
    }

    #[test]
    fn a_view_is_free_where_the_order_of_elements_stays() {
        let c = contiguous(&[2, 3, 4]);
        assert_eq!(view(&[2, 3, 4], &c, &[6, 4]).unwrap()[..], [4, 1]);
        assert_eq!(view(&[2, 3, 4], &c, &[2, 1, 12, 1]).unwrap()[..], [12, 12, 1, 1]);
        // [B, S, H, D] seen as [B, H, S, D] cannot be flattened to [B*H, S, D] without a copy…
        let (shape, strides) = ([2, 4, 8, 16], [512, 16, 64, 1]);
        assert!(view(&shape, &strides, &[8, 8, 16]).is_none());
        // …but its batch axis alone can be split.
        assert_eq!(view(&shape, &strides, &[2, 2, 2, 8, 16]).unwrap()[..], [512, 32, 16, 64, 1]);
        assert!(view(&[], &[], &[1, 1]).is_some());
        // What leaves 64 bits does not wrap around to a size that fits.
        let large = [1 << 40, 1 << 40];
        assert!(view(&large, &contiguous(&large), &[1 << 20, 1 << 30, 7]).is_none());
    }

    #[test]
    fn layouts_are_kept_where_dense() {
        let channels_last = [48, 1, 12, 3];
        assert!(is_dense(&[2, 3, 4, 4], &channels_last));
        assert!(!is_contiguous(&[2, 3, 4, 4], &channels_last));
        assert_eq!(like(&[2, 3, 4, 4], &channels_last)[..], channels_last);
        // A slice of every other row: same order, gaps closed.
        assert_eq!(like(&[2, 3], &[6, 1])[..], [3, 1]);
        assert_eq!(like(&[2, 3], &[0, 0])[..], [3, 1]);
        assert_eq!(expand(&[3, 1], &[1, 1], &[2, 3, 5])[..], [0, 1, 0]);
    }
}
