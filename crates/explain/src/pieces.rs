//! Finds the lines that may matter, many bytes at once.
//!
//! The words that messages and readings have are too many for one fast search. So a search of short pieces of them skips what no
//! family speaks of, and what stands around a piece says whether it is part of a word: `memory:` is, `remember` isn't.

use crate::context;
use crate::families::FAMILIES;
use aho_corasick::Span;
use aho_corasick::packed::Searcher;
use memchr::memmem;

/// Every needle of a family and every sign of a reading contains one of these.
const PIECES: &[&str] = &[
    "mem",
    "MEM",
    "OOM",
    "oom",
    "OutOf",
    "_OUT_OF_",
    "vram",
    "VRAM",
    "ut of GPU",
    "_STATUS_",
    "miopenStatus",
    "XHAUSTED",
    "ExhaustedE",
    "_ALLOC",
    "to alloc",
    "Unable to",
    "Created ",
    "Dst tensor",
    "bad_alloc",
    "Killed",
    "killed",
    "signal 9",
    "SIGKILL",
    "error 2",
    "error (2)",
    "CPUAlloc",
    "to initialize",
    "NVML_SUCC",
    "BufferCallback",
    "of mem",
    "Of Mem",
    "available RAM",
    "OUT_OF",
    "(2 vs. 0)",
    "an engine",
    "file </torch_",
    "'/torch_",
    "o mmap",
    "requested bytes",
    "Mem",
    "ging file",
    "buffer size",
    "rror 137",
    "on startup is",
    "xit",
    "zero code",
    "SIGBUS",
    "Assertion `",
    "CuDNN lib",
    "cublas runtime",
    "abruptly",
];

/// All words that matter: the needles of the families and the signs of readings.
pub(crate) fn words() -> impl Iterator<Item = &'static &'static str> {
    FAMILIES.iter().flat_map(|family| family.needles).chain(context::READINGS)
}

/// Finds the words that matter.
pub(crate) struct Pieces {
    search: Option<Searcher>,
    around: Vec<Around>,
}

impl Pieces {
    pub(crate) fn new() -> Pieces {
        let mut around: Vec<Around> = PIECES.iter().copied().map(Around::new).collect();
        for word in words() {
            let part = around.iter_mut().find_map(|a| Some((memmem::find(word.as_bytes(), a.piece)?, a)));
            if let Some((at, around)) = part {
                around.add(word, at);
            }
        }
        Pieces { search: Searcher::new(PIECES), around }
    }

    /// Where the next piece of a word that matters stands, from `at` on.
    pub(crate) fn next(&self, bytes: &[u8], mut at: usize) -> Option<usize> {
        // Without vector instructions every line is judged.
        let Some(search) = &self.search else { return (at < bytes.len()).then_some(at) };
        loop {
            let found = search.find_in(bytes, Span::from(at..bytes.len()))?;
            if self.around[found.pattern()].holds(bytes, found.start()) {
                return Some(found.start());
            }
            at = found.start() + 1;
        }
    }
}

/// The words that contain a piece, at most [`u128::BITS`]: each what stands before the piece and what stands after it.
struct Around {
    piece: &'static [u8],
    words: Vec<(&'static [u8], &'static [u8])>,
    /// For each byte before or after the piece the words, as bits, that may be there.
    before: [u128; 256],
    after: [u128; 256],
}

impl Around {
    fn new(piece: &'static str) -> Around {
        Around { piece: piece.as_bytes(), words: Vec::new(), before: [0; 256], after: [0; 256] }
    }

    fn add(&mut self, word: &'static str, at: usize) {
        let (before, rest) = word.as_bytes().split_at(at);
        let after = &rest[self.piece.len()..];
        let bit = 1u128 << self.words.len();
        for (masks, next) in [(&mut self.before, before.last()), (&mut self.after, after.first())] {
            let all = 0..masks.len();
            for mask in next.map_or(all, |byte| usize::from(*byte)..usize::from(*byte) + 1) {
                masks[mask] |= bit;
            }
        }
        self.words.push((before, after));
    }

    /// Whether the piece at a place is part of one of its words.
    fn holds(&self, bytes: &[u8], at: usize) -> bool {
        let (before, after) = (&bytes[..at], &bytes[at + self.piece.len()..]);
        let mask =
            |masks: &[u128; 256], byte: Option<&u8>| masks[usize::from(byte.copied().unwrap_or(b'\n'))];
        let mut may = mask(&self.before, before.last()) & mask(&self.after, after.first());
        while may != 0 {
            let (start, end) = self.words[may.trailing_zeros() as usize];
            if before.ends_with(start) && after.starts_with(end) {
                return true;
            }
            may &= may - 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_contains_a_piece() {
        for word in words() {
            assert!(PIECES.iter().any(|piece| word.contains(piece)), "{word}");
        }
        let begins = |piece: &str| PIECES.iter().filter(|other| piece.starts_with(**other)).count() > 1;
        assert_eq!(
            PIECES.iter().find(|piece| begins(piece)),
            None,
            "the search finds one piece at each place"
        );
        assert!(Pieces::new().around.iter().all(|around| around.words.len() <= 128));
    }

    #[test]
    fn a_piece_is_found_where_it_is_part_of_a_word() {
        let pieces = Pieces::new();
        let find = |line: &str| pieces.next(line.as_bytes(), 0).map(|at| line[at..].to_owned());
        assert_eq!(find("a member of zoom, memory\n"), None);
        assert_eq!(find("a member of zoom, memory: 3").as_deref(), Some("memory: 3"));
        assert_eq!(find("mem"), None);
        for word in words() {
            for line in
                [(*word).to_owned(), format!("mem{word}mem"), format!("{word}\n"), format!("OOM {word}")]
            {
                assert!(find(&line).is_some(), "{line}");
            }
        }
    }
}
