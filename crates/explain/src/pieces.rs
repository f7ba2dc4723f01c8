//! Finds the words that matter, many bytes at once, and tells from them what a line may be.
//!
//! The words that messages and readings have are too many for one fast search. So a search of short pieces of them skips what no
//! family speaks of, and what stands around a piece says whether it is part of a word: `memory:` is, `remember` isn't.

use crate::context;
use crate::families::{After, FAMILIES};
use crate::search::Search;
use crate::shapes::mixed;
use memchr::memmem;
use std::ops::BitOrAssign;

/// Every needle of a family and every sign of a reading contains one of these. The search looks for their first three bytes and reads
/// on where it finds them, so a piece begins with three that are rare in logs: `unable to ` rather than `o mmap`.
const PIECES: &[&str] = &[
    "mem",
    "MEM",
    "OOM",
    "oom",
    "vram",
    "VRAM",
    "_STATUS_",
    "miopenStatus",
    "XHAUSTED",
    "ExhaustedE",
    "_ALLOC",
    "Unable to alloc",
    "Unable to find a v",
    "failed to alloc",
    "Created ",
    "Dst tensor",
    "bad_alloc",
    "kille",
    "Kille",
    "signal 9",
    "SIGKILL",
    "A error",
    "a runtime er",
    "CPUAlloc",
    "DNN fail",
    "NVML_SUCC",
    "e RAM",
    "OUT_OF",
    "Success (2",
    "unable to ",
    "'/torch_",
    "requested by",
    "Mem",
    "paging f",
    "Invalid buf",
    "] Error",
    "xit",
    "-zero",
    "SIGBUS",
    "Assertion `",
    "CuDNN lib",
    "cublas runt",
    "abruptly",
];

/// What a line may be, by its words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Class {
    /// A bit for each family that has a needle in it.
    pub(crate) families: u8,
    /// It may print the memory used so far.
    pub(crate) reading: bool,
    /// Not the same for lines that differ in numbers on which it depends what they say: `exit code 137`.
    pub(crate) numbers: u64,
}

impl BitOrAssign for Class {
    fn bitor_assign(&mut self, other: Class) {
        self.families |= other.families;
        self.reading |= other.reading;
        self.numbers = self.numbers.wrapping_add(other.numbers);
    }
}

/// A place where words that matter stand, and what they make of a line.
#[derive(Clone, Copy)]
pub(crate) struct Hit {
    pub(crate) at: usize,
    pub(crate) class: Class,
}

/// All words that matter, the needles of the families and the signs of readings: what each makes of a line, and what must stand after it.
fn words() -> impl Iterator<Item = (&'static str, Class, Option<After>)> {
    let needles = FAMILIES.iter().zip(0..u8::BITS).flat_map(|(family, bit)| {
        family.needles.iter().map(move |needle| {
            let number = needle.bytes().any(|byte| byte.is_ascii_digit());
            let numbers = needle.bytes().filter(|_| number).fold(0, |sum, byte| mixed(sum ^ u64::from(byte)));
            (*needle, Class { families: 1 << bit, numbers, reading: false }, family.after)
        })
    });
    let reading = Class { reading: true, ..Class::default() };
    let numbered =
        context::READINGS_BEFORE_A_NUMBER.iter().map(move |word| (*word, reading, Some(digit as After)));
    needles.chain(context::READINGS.iter().map(move |word| (*word, reading, None))).chain(numbered)
}

/// Whether a digit follows; which one is nothing to the line.
fn digit(after: &[u8]) -> Option<i64> {
    after.iter().find(|byte| **byte != b' ').filter(|byte| byte.is_ascii_digit()).map(|_| 0)
}

/// Finds the words that matter.
pub(crate) struct Pieces {
    search: Search,
    around: Vec<Around>,
}

impl Pieces {
    pub(crate) fn new() -> Pieces {
        let mut around: Vec<Around> = PIECES.iter().copied().map(Around::new).collect();
        for (word, class, number) in words() {
            let part = around.iter_mut().find_map(|a| Some((memmem::find(word.as_bytes(), a.piece)?, a)));
            if let Some((at, around)) = part {
                around.add(word, at, class, number);
            }
        }
        Pieces { search: Search::new(PIECES), around }
    }

    /// Where the next piece of a word that matters stands, from `at` on.
    pub(crate) fn next(&self, bytes: &[u8], mut at: usize) -> Option<Hit> {
        loop {
            let found = self.search.find(bytes, at)?;
            let class = self.around[found.pattern()].class(bytes, found.start());
            if class != Class::default() {
                return Some(Hit { at: found.start(), class });
            }
            at = found.start() + 1;
        }
    }
}

/// Which bytes before a piece, from its start, and after it, from its end, are looked at first. They tell most words apart.
const BEFORE: [usize; 3] = [0, 1, 8];
const AFTER: [usize; 3] = [0, 3, 4];

/// For each byte at some place the words, as bits, that may have it there.
type Mask = [u128; 256];

/// The words that contain a piece, at most [`u128::BITS`].
struct Around {
    piece: &'static [u8],
    words: Vec<Word>,
    before: [Mask; BEFORE.len()],
    after: [Mask; AFTER.len()],
}

/// A word around a piece: what stands before the piece, and after it.
struct Word {
    before: &'static [u8],
    after: &'static [u8],
    class: Class,
    number: Option<After>,
}

impl Around {
    fn new(piece: &'static str) -> Around {
        let piece = piece.as_bytes();
        Around { piece, words: Vec::new(), before: [[0; 256]; BEFORE.len()], after: [[0; 256]; AFTER.len()] }
    }

    fn add(&mut self, word: &'static str, at: usize, class: Class, number: Option<After>) {
        let (before, rest) = word.as_bytes().split_at(at);
        let after = &rest[self.piece.len()..];
        let bit = 1u128 << self.words.len();
        let befores = self.before.iter_mut().zip(BEFORE.map(|i| before.iter().rev().nth(i)));
        let afters = self.after.iter_mut().zip(AFTER.map(|i| after.get(i)));
        for (mask, byte) in befores.chain(afters) {
            match byte {
                Some(byte) => mask[usize::from(*byte)] |= bit,
                None => mask.iter_mut().for_each(|words| *words |= bit),
            }
        }
        self.words.push(Word { before, after, class, number });
    }

    /// What the words make of a line that the piece at a place is part of: nothing where it is part of none.
    fn class(&self, bytes: &[u8], at: usize) -> Class {
        let (before, after) = (&bytes[..at], &bytes[at + self.piece.len()..]);
        let may = |mask: &Mask, byte: Option<&u8>| mask[usize::from(byte.copied().unwrap_or(b'\n'))];
        let mut words = u128::MAX;
        for (mask, i) in self.after.iter().zip(AFTER) {
            words &= may(mask, after.get(i));
        }
        for (mask, i) in self.before.iter().zip(BEFORE) {
            words &= may(mask, at.checked_sub(i + 1).map(|at| &bytes[at]));
        }
        let mut class = Class::default();
        while words != 0 {
            let word = &self.words[words.trailing_zeros() as usize];
            let rest = after.strip_prefix(word.after).filter(|_| before.ends_with(word.before));
            match (rest, word.number) {
                (Some(_), None) => class |= word.class,
                (Some(rest), Some(number)) => {
                    if let Some(number) = number(rest) {
                        class |= Class { numbers: mixed(number.unsigned_abs()), ..word.class };
                    }
                }
                (None, _) => {}
            }
            words &= words - 1;
        }
        class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_contains_a_piece() {
        for (word, ..) in words() {
            assert!(PIECES.iter().any(|piece| word.contains(piece)), "{word}");
        }
        let begins = |piece: &str| PIECES.iter().filter(|other| piece.starts_with(**other)).count() > 1;
        assert_eq!(
            PIECES.iter().find(|piece| begins(piece)),
            None,
            "the search finds one piece at each place"
        );
        for around in Pieces::new().around {
            let piece = String::from_utf8_lossy(around.piece);
            assert!((1..=128).contains(&around.words.len()), "{piece}: {} words", around.words.len());
        }
        assert!(FAMILIES.len() <= 8);
    }

    #[test]
    fn a_piece_is_found_where_it_is_part_of_a_word() {
        let packed = Pieces::new();
        let plain = Pieces { search: Search::automaton(PIECES), ..Pieces::new() };
        for pieces in [packed, plain] {
            let find = |line: &str| {
                pieces.next(line.as_bytes(), 0).map(|hit| (line[hit.at..].to_owned(), hit.class))
            };
            assert_eq!(find("a member of zoom, memory\n"), None);
            let found = find("a member of zoom, memory: 3");
            let reading = Class { reading: true, ..Class::default() };
            assert_eq!(found, Some(("memory: 3".to_owned(), reading)));
            assert_eq!(find("mem"), None);
            for (word, class, number) in words() {
                let word = if number.is_some() { format!("{word} 137") } else { word.to_owned() };
                for line in [word.clone(), format!("mem{word}"), format!("{word}\n"), format!("OOM {word}")] {
                    let mut all = Class::default();
                    let mut at = 0;
                    while let Some(hit) = pieces.next(line.as_bytes(), at) {
                        all |= hit.class;
                        at = hit.at + 1;
                    }
                    assert_eq!(all.families & class.families, class.families, "{line}");
                    assert!(all.reading || !class.reading, "{line}");
                }
            }
        }
    }
}
