//! What is remembered of the shapes of lines, so that a line like many before it costs no second reading. Of constant size: a shape
//! whose place another takes is judged again.

use crate::words::{Class, Words};

/// Shapes that are remembered.
const SHAPES: usize = 1 << 14;

/// What a line of some shape turned out to be.
#[derive(Clone, Copy, Default)]
pub(crate) struct Shape {
    shape: u64,
    pub(crate) class: Class,
    /// How often it was read.
    pub(crate) times: u16,
    /// The message that it was, and in which episode.
    pub(crate) message: Option<u16>,
    pub(crate) episode: u32,
    pub(crate) failure: bool,
}

/// The shapes seen, each at a place that follows from it.
pub(crate) struct Shapes(Vec<Shape>);

impl Shapes {
    pub(crate) fn new() -> Shapes {
        Shapes(vec![Shape::default(); SHAPES])
    }

    /// What is remembered at a place.
    pub(crate) fn at(&mut self, place: usize) -> &mut Shape {
        &mut self.0[place]
    }

    /// Where the shape of a line is remembered, with its numbers where they count.
    pub(crate) fn place(&mut self, words: &Words, line: &[u8]) -> usize {
        let shape = Words::shape(line);
        let place = self.remembered(words, shape, line);
        if !self.0[place].class.number {
            return place;
        }
        self.remembered(words, shape ^ Words::numbers(line).rotate_left(1).wrapping_add(1), line)
    }

    fn remembered(&mut self, words: &Words, shape: u64, line: &[u8]) -> usize {
        // The highest bits depend on all others.
        let mixed = shape.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - SHAPES.ilog2());
        let place = usize::try_from(mixed).unwrap_or(0) % SHAPES;
        if self.0[place].shape != shape {
            self.0[place] = Shape { shape, class: words.judge(line), ..Shape::default() };
        }
        place
    }
}
