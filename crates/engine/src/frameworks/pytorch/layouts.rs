//! Shapes and strides of a step's tensors, each written down once.
//!
//! Tensors, gradients and autograd nodes name a layout by a number. Most of them share one: a pointwise function gives its
//! input's, a gradient its tensor's.

use super::strides::{self, Dims};
use memfit_graph::{elements, times};

/// The number of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout(u32);

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u32,
    /// How many of the numbers at `start` are dims; strides follow.
    rank: u32,
    end: u32,
    elements: u64,
    /// Row-major, to each stride; neither empty nor absurdly large.
    is_row_major: bool,
}

/// Sizes above this saturate somewhere, and are looked at in full.
const LARGEST: u64 = 1 << 60;

/// All layouts of a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layouts {
    numbers: Vec<u64>,
    entries: Vec<Entry>,
}

impl Layouts {
    /// Makes room for so many layouts of four dims.
    pub(super) fn reserve(&mut self, layouts: usize) {
        self.numbers.reserve(layouts.saturating_mul(8));
        self.entries.reserve(layouts);
    }

    fn push(&mut self, shape: &[u64], strides: &[u64], elements: u64, is_row_major: bool) -> Layout {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let start = number(self.numbers.len());
        self.numbers.extend_from_slice(shape);
        self.numbers.extend_from_slice(strides);
        let end = number(self.numbers.len());
        self.entries.push(Entry { start, rank: number(shape.len()), end, elements, is_row_major });
        Layout(number(self.entries.len() - 1))
    }

    /// A shape with these strides.
    pub(super) fn add(&mut self, shape: &[u64], strides: &[u64]) -> Layout {
        let elements = elements(shape);
        let mut next = 1_u64;
        let is_row_major = is_plain_size(elements)
            && shape.len() == strides.len()
            && shape.iter().zip(strides).rev().all(|(dim, stride)| {
                let fits = *stride == next;
                next = times(next, *dim);
                fits
            });
        self.push(shape, strides, elements, is_row_major)
    }

    /// A shape in row-major order.
    pub(crate) fn contiguous(&mut self, shape: &[u64]) -> Layout {
        let elements = elements(shape);
        let layout = self.push(shape, shape, elements, is_plain_size(elements));
        let strides = self.numbers.len() - shape.len();
        strides::make_contiguous(&mut self.numbers[strides..]);
        layout
    }

    fn entry(&self, layout: Layout) -> &Entry {
        &self.entries[layout.0 as usize]
    }

    /// Dims.
    pub(super) fn shape(&self, layout: Layout) -> &[u64] {
        let entry = self.entry(layout);
        &self.numbers[entry.start as usize..(entry.start + entry.rank) as usize]
    }

    /// Strides, in elements.
    pub(super) fn strides(&self, layout: Layout) -> &[u64] {
        let entry = self.entry(layout);
        &self.numbers[(entry.start + entry.rank) as usize..entry.end as usize]
    }

    /// How many elements, saturating.
    pub(super) fn elements(&self, layout: Layout) -> u64 {
        self.entry(layout).elements
    }

    /// Whether it is row-major, and as many elements as `shape` says: then it can be seen in that shape, row-major again.
    pub(super) fn is_row_major_of(&self, layout: Layout, shape: &[u64]) -> bool {
        let entry = self.entry(layout);
        entry.is_row_major && entry.elements == elements(shape)
    }

    /// Whether two have the same dims.
    pub(super) fn same_shape(&self, a: Layout, b: Layout) -> bool {
        a == b || self.shape(a) == self.shape(b)
    }

    /// The same dims in row-major order.
    pub(super) fn made_contiguous(&mut self, layout: Layout) -> Layout {
        if self.entry(layout).is_row_major {
            return layout;
        }
        let shape = Dims::from_slice(self.shape(layout));
        self.contiguous(&shape)
    }

    /// The layout of a new tensor made like this one.
    pub(super) fn like(&mut self, layout: Layout) -> Layout {
        if self.entry(layout).is_row_major || self.is_dense(layout) {
            return layout;
        }
        let shape = Dims::from_slice(self.shape(layout));
        let strides = strides::like(&shape, self.strides(layout));
        self.add(&shape, &strides)
    }

    /// The dims of `shape` with the strides of `strides`.
    pub(super) fn joined(&mut self, shape: Layout, strides: Layout) -> Layout {
        if shape == strides {
            return shape;
        }
        let dims = Dims::from_slice(self.shape(shape));
        let steps = Dims::from_slice(self.strides(strides));
        self.add(&dims, &steps)
    }

    /// A reduced tensor seen in the dims that it had before.
    pub(super) fn expanded(&mut self, layout: Layout, before: Layout) -> Layout {
        let shape = Dims::from_slice(self.shape(before));
        let strides = strides::expand_reduced(self.shape(layout), self.strides(layout), &shape);
        self.add(&shape, &strides)
    }

    /// A view of the same elements in the dims of `new`; `None` where it needs a copy.
    pub(super) fn viewed(&mut self, layout: Layout, new: Layout) -> Option<Layout> {
        let (from, to) = (self.entry(layout), self.entry(new));
        if from.is_row_major && to.is_row_major && from.elements == to.elements {
            return Some(new);
        }
        let shape = Dims::from_slice(self.shape(new));
        let strides = strides::view(self.shape(layout), self.strides(layout), &shape)?;
        Some(self.add(&shape, &strides))
    }

    /// Whether the elements lie in row-major order without gaps.
    pub(super) fn is_contiguous(&self, layout: Layout) -> bool {
        self.entry(layout).is_row_major || strides::is_contiguous(self.shape(layout), self.strides(layout))
    }

    /// Whether an image's channels lie innermost, with or without gaps.
    pub(super) fn is_channels_last(&self, layout: Layout) -> bool {
        !self.entry(layout).is_row_major
            && strides::is_channels_last(self.shape(layout), self.strides(layout))
    }

    /// Whether the elements fill their storage, in any order of axes.
    pub(super) fn is_dense(&self, layout: Layout) -> bool {
        self.entry(layout).is_row_major || strides::is_dense(self.shape(layout), self.strides(layout))
    }

    /// Contiguous, or dense with the channels innermost.
    pub(super) fn is_plain(&self, layout: Layout) -> bool {
        self.entry(layout).is_row_major || strides::is_plain(self.shape(layout), self.strides(layout))
    }
}

fn is_plain_size(elements: u64) -> bool {
    elements > 0 && elements < LARGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortcuts_give_what_strides_say() {
        let shapes: [&[u64]; 8] = [&[], &[1], &[6], &[2, 3], &[3, 1, 2], &[2, 0, 3], &[3, 0], &[1, 2, 1, 3]];
        let mut l = Layouts::default();
        for shape in shapes {
            let row_major = l.contiguous(shape);
            let reversed: Vec<u64> = l.strides(row_major).iter().rev().copied().collect();
            for layout in [row_major, l.add(shape, &reversed)] {
                let (dims, steps): (Dims, Dims) = (l.shape(layout).into(), l.strides(layout).into());
                assert_eq!(l.is_contiguous(layout), strides::is_contiguous(&dims, &steps), "{shape:?}");
                assert_eq!(l.is_dense(layout), strides::is_dense(&dims, &steps), "{shape:?}");
                assert_eq!(l.is_plain(layout), strides::is_plain(&dims, &steps), "{shape:?}");
                let like = l.like(layout);
                assert_eq!(l.strides(like), &strides::like(&dims, &steps)[..], "{shape:?}");
                let plain = l.made_contiguous(layout);
                assert_eq!(l.strides(plain), &strides::contiguous(shape)[..], "{shape:?}");
                for new in shapes.iter().filter(|new| elements(new) == elements(shape)) {
                    let target = l.contiguous(new);
                    let expected = strides::view(&dims, &steps, new);
                    let viewed = l.viewed(layout, target);
                    assert_eq!(viewed.map(|v| l.strides(v).into()), expected, "{shape:?} {new:?}");
                }
            }
        }
    }
}
