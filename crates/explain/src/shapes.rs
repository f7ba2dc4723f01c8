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
pub(crate) struct Shapes {
    seen: Vec<Shape>,
    /// What each pair of bytes adds to a shape.
    pairs: Box<[u32; 1 << 16]>,
}

impl Shapes {
    pub(crate) fn new() -> Shapes {
        let mut pairs = Box::new([0; 1 << 16]);
        for (sum, bytes) in pairs.iter_mut().zip(0..=u16::MAX) {
            *sum = pair(bytes);
        }
        Shapes { seen: vec![Shape::default(); SHAPES], pairs }
    }

    /// What is remembered at a place.
    pub(crate) fn at(&mut self, place: usize) -> &mut Shape {
        &mut self.seen[place]
    }

    /// Where the shape of a line is remembered, with its numbers where they count.
    pub(crate) fn place(&mut self, words: &Words, line: &[u8]) -> usize {
        let shape = self.shape(line);
        let place = self.remembered(shape, || words.judge(line));
        let class = self.seen[place].class;
        if !class.number {
            return place;
        }
        self.remembered(shape ^ numbers(line).rotate_left(1).wrapping_add(1), || class)
    }

    fn remembered(&mut self, shape: u64, class: impl FnOnce() -> Class) -> usize {
        // The highest bits depend on all others.
        let mixed = shape.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - SHAPES.ilog2());
        let place = usize::try_from(mixed).unwrap_or(0) % SHAPES;
        if self.seen[place].shape != shape {
            self.seen[place] = Shape { shape, class: class(), ..Shape::default() };
        }
        place
    }

    /// The shape of a line: the same for lines that differ in numbers only.
    fn shape(&self, line: &[u8]) -> u64 {
        let add = |pair: [u8; 2]| u64::from(self.pairs[usize::from(u16::from_le_bytes(pair))]);
        let first = add([b'\n', line.first().copied().unwrap_or(b'\n')]);
        line.windows(2).fold(first, |sum, pair| sum + add([pair[0], pair[1]]))
    }
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

/// What a pair of bytes, the first the lower, adds to a shape: nothing inside of a number, and all digits are alike.
fn pair(bytes: u16) -> u32 {
    let digits = bytes.to_le_bytes().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
    if digits == [b'0', b'0'] { 0 } else { (mixed(u16::from_le_bytes(digits).into()) >> 32) as u32 }
}

/// A number without a pattern, from one that has (the finaliser of splitmix64).
fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    #[test]
    fn shapes_have_no_numbers() {
        let shapes = super::Shapes::new();
        let shape = |line: &str| shapes.shape(line.as_bytes());
        assert_eq!(shape("step 5 loss 0.1"), shape("step 123 loss 45.678"));
        assert_ne!(shape("step 5 loss 0.1"), shape("step loss 0.1"));
        assert_ne!(shape("it was killed"), shape("killed it was"));
    }
}
