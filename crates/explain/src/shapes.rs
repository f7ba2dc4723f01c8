//! What is remembered of the shapes of lines, so that a line like many before it costs no second reading: logs print the same few
//! shapes over and over. A shape is the line without its numbers. Of constant size: a shape whose place another takes is judged again.

use crate::course::Course;
use crate::pieces::Class;

/// Shapes that are remembered.
const SHAPES: usize = 1 << 14;

/// What a line of some shape turned out to be.
#[derive(Clone, Copy, Default)]
pub(crate) struct Shape {
    shape: u64,
    /// What it says of the course of a run, if that was asked.
    pub(crate) course: Option<Course>,
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
    pub(crate) fn place(&mut self, class: Class, line: &[u8]) -> usize {
        let shape = self.shape(line) ^ class.numbers;
        // The highest bits depend on all others.
        let mixed = shape.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - SHAPES.ilog2());
        let place = usize::try_from(mixed).unwrap_or(0) % SHAPES;
        if self.seen[place].shape != shape {
            self.seen[place] = Shape { shape, ..Shape::default() };
        }
        place
    }

    /// The shape of a line: the same for lines that differ in numbers only.
    fn shape(&self, line: &[u8]) -> u64 {
        let add = |pair: u16| u64::from(self.pairs[usize::from(pair)]);
        let mut sum = add(u16::from_le_bytes([b'\n', line.first().copied().unwrap_or(b'\n')]));
        let mut rest = line;
        // Eight bytes are seven pairs.
        while let Some(eight) = rest.first_chunk() {
            let eight = u64::from_le_bytes(*eight);
            sum += (0..7).map(|i| add((eight >> (8 * i) & 0xffff) as u16)).sum::<u64>();
            rest = &rest[7..];
        }
        rest.windows(2).fold(sum, |sum, pair| sum + add(u16::from_le_bytes([pair[0], pair[1]])))
    }
}

/// What a pair of bytes, the first the lower, adds to a shape: nothing inside of a number, and all digits are alike.
fn pair(bytes: u16) -> u32 {
    let digits = bytes.to_le_bytes().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
    if digits == [b'0', b'0'] { 0 } else { (mixed(u16::from_le_bytes(digits).into()) >> 32) as u32 }
}

/// A number without a pattern, from one that has (the finaliser of splitmix64).
pub(crate) fn mixed(n: u64) -> u64 {
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
        for len in 0..40 {
            let line = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz".get(..len).unwrap_or_default();
            let pairs = format!("\n{line}").as_bytes().windows(2).fold(0, |sum, two| {
                sum + u64::from(shapes.pairs[usize::from(u16::from_le_bytes([two[0], two[1]]))])
            });
            assert!(len == 0 || shape(line) == pairs, "{len}");
        }
    }
}
