//! What is remembered of the shapes of lines, so that a line like many before it costs no second reading: logs print the same few
//! shapes over and over. A shape is the line without its numbers. Of constant size: a shape whose place another takes is judged again.

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
        let shape = shape(line);
        let place = self.remembered(words, shape, line);
        if !self.0[place].class.number {
            return place;
        }
        self.remembered(words, shape ^ numbers(line).rotate_left(1).wrapping_add(1), line)
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

/// The shape of a line: the same for lines that differ in numbers only.
fn shape(line: &[u8]) -> u64 {
    let mut sum = 1u64;
    let mut before = 0usize;
    for &byte in line {
        let this = usize::from(FOLD[usize::from(byte)]);
        sum += u64::from(PAIRS[before << 7 | this]);
        before = this;
    }
    sum
}

/// Which numbers of a line may be those of a needle, and where among its numbers: with its shape, all that a verdict rests on.
pub(crate) fn numbers(line: &[u8]) -> u64 {
    let (mut sum, mut place, mut at) = (0u64, 0u64, 0);
    while at < line.len() {
        if !line[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let rest = &line[at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        place += 1;
        let number: u64 = match &rest[..digits] {
            b"2" => 2,
            b"7" => 7,
            b"9" => 9,
            b"135" => 135,
            b"137" => 137,
            b"247" => 247,
            _ => 0,
        };
        if number > 0 {
            sum = sum.wrapping_add(mixed(place << 32 | number));
        }
        at += digits;
    }
    sum
}

/// Bytes as shapes see them: all digits alike, all that is not ASCII alike.
const FOLD: [u8; 256] = {
    let mut fold = [127u8; 256];
    let mut byte = 0;
    while byte < 127 {
        let digit = byte >= b'0' as usize && byte <= b'9' as usize;
        fold[byte] = if digit { b'0' } else { byte as u8 };
        byte += 1;
    }
    fold
};

/// What a pair of bytes adds to a shape: nothing inside of a number.
static PAIRS: [u32; 1 << 14] = {
    let mut pairs = [0u32; 1 << 14];
    let mut pair = 0;
    while pair < pairs.len() {
        let zero = b'0' as usize;
        pairs[pair] = if pair == zero << 7 | zero { 0 } else { (mixed(pair as u64) >> 32) as u32 };
        pair += 1;
    }
    pairs
};

/// A number without a pattern, from one that has (the finaliser of splitmix64).
const fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    #[test]
    fn shapes_have_no_numbers() {
        let shape = |line: &str| super::shape(line.as_bytes());
        assert_eq!(shape("step 5 loss 0.1"), shape("step 123 loss 45.678"));
        assert_ne!(shape("step 5 loss 0.1"), shape("step loss 0.1"));
        assert_ne!(shape("it was killed"), shape("killed it was"));
    }
}
