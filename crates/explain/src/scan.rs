//! Streams a log: finds the few lines that matter among gigabytes.
//!
//! Each chunk ([`crate::chunks`]) is searched for words that messages have ([`crate::pieces`]); a line that holds one is read in
//! full, and so are the lines that follow a failure, which explain it. What stands before a failure is looked up in the bytes
//! still held. A line is what ends in a line feed or, as progress bars do, in a carriage return; only the former are counted.
//!
//! Memory is a few chunks and what was found, whatever the log's size, and so is the work on what a log repeats: a line that says what many
//! before it said is counted; of a run that survives failure after failure the first failures and the last are kept, the last
//! one of each chunk being found first and read then. A line longer than a chunk is read in parts.

mod episodes;
mod part;

use crate::Log;
use crate::chunks::{self, Chunk};
use crate::context;
use crate::course::{Course, Words};
use crate::families::{self, FAMILIES};
use crate::line::{BACKSPACE, ESCAPE, around, newlines};
use crate::pieces::Class;
use crate::search::Search;
use crate::shapes::Shapes;
use std::io::{self, Read};
use std::sync::OnceLock;

/// Lines after a failure that may explain it: an allocator's dump has thousands, its summary stands at the end.
const FOLLOWING: u64 = 20_000;
/// Lines that are read in all because they follow a failure; after that many, only some after each.
const FOLLOWED: u64 = 100_000;
/// As many after each then.
const FOLLOWING_LATE: u64 = 200;
/// How many messages are kept.
const MESSAGES: usize = 400;
/// How many failures that were survived are kept, the last not counted.
const EPISODES: u32 = 64;
/// How many readings are kept; of more, every second.
const READINGS: usize = 1024;
/// Lines of progress after a failure that settle that the run went on.
const WENT_ON: u64 = 64;
/// Lines after a failure in which progress or an end is looked for.
const WATCHED: u64 = 100_000;
/// Repetitions of a message whose following lines are still read.
const REPETITIONS: u64 = 16;
/// Lines of one shape that are read; more are only counted.
const OFTEN: u16 = 64;
/// Lines over which a message may be broken, by a terminal or a logger with a width.
const BROKEN_OVER: u64 = 6;
/// Lines after a failure that are kept for its context.
const TELLING: usize = 64;
/// How much of a message is quoted.
const QUOTED: usize = 300;

/// Reads a log to its end.
///
/// # Errors
/// What the reader reports.
pub fn read(reader: impl Read + Send) -> io::Result<Log> {
    let mut scan = Scan::new();
    chunks::each(reader, |chunk| scan.lines(chunk, chunk.from))?;
    Ok(scan.finish())
}

struct Scan {
    words: &'static Words,
    shapes: Shapes,
    log: Log,
    /// Whether a failure was seen, and whether a message that makes the rest of interest.
    failed: bool,
    watching: bool,
    /// How many more lines are read whole, and how many were.
    following: u64,
    followed: u64,
    stride: u64,
    seen_readings: u64,
    /// Lines since the last failure in which progress or an end was looked for, and the last epoch in them.
    watched: u64,
    epoch: Option<u64>,
    /// A message that may go on below: its place, its text so far, and the last line that may belong to it.
    broken: Option<(usize, String, u64)>,
    /// Failures that were survived so far.
    episode: u32,
    /// The last failure of this chunk that is read when the chunk is at its end: where it is, and the lines before it.
    deferred: Option<(usize, u64)>,
    /// Whether the next line is such a failure.
    resumes: bool,
    /// What stood before the failure, its own line, and what told more of it below.
    before: Vec<u8>,
    /// Whether that holds a traceback.
    traced: bool,
    /// Where the last failure is in the bytes that are read now: what is before it was searched for a traceback.
    asked: usize,
    first: String,
    telling: Vec<String>,
    /// Whether the last line had no end yet.
    open: bool,
    /// The last line of which the shape was looked up, in the bytes that are read now, and the place of the shape.
    last: Option<(usize, usize, usize)>,
}

impl Scan {
    fn new() -> Scan {
        static WORDS: OnceLock<Words> = OnceLock::new();
        Scan {
            words: WORDS.get_or_init(Words::new),
            shapes: Shapes::new(),
            log: Log::default(),
            failed: false,
            watching: false,
            following: 0,
            followed: 0,
            stride: 1,
            seen_readings: 0,
            watched: 0,
            epoch: None,
            broken: None,
            episode: 0,
            deferred: None,
            resumes: false,
            before: Vec::new(),
            traced: false,
            asked: 0,
            first: String::new(),
            telling: Vec::new(),
            open: false,
            last: None,
        }
    }

    /// Reads the lines of a chunk, from one on; what is before stays to look back in, and a line may go on after. [`Log::lines`]
    /// counts line ends meanwhile.
    fn lines(&mut self, chunk: &Chunk, from: usize) {
        let (bytes, to) = (&chunk.bytes[..], chunk.to);
        let mut at = from;
        self.last = None;
        self.asked = 0;
        let mut hits = &chunk.hits[chunk.hits.partition_point(|hit| hit.at < from)..];
        while at < to {
            let all = self.following > 0 || self.watches();
            let hit = if all { Some(at) } else { hits.first().map(|hit| hit.at) };
            let Some(hit) = hit.filter(|hit| *hit < to) else { break };
            let (start, end) = around(bytes, at, hit);
            self.log.lines += newlines(&bytes[at..start]);
            let mut class = Class::default();
            while let Some((hit, rest)) = hits.split_first().filter(|(hit, _)| hit.at < end) {
                class |= hit.class;
                hits = rest;
            }
            self.line(bytes, (start, end), class);
            at = match bytes.get(end) {
                Some(b'\n') => {
                    self.log.lines += 1;
                    end + 1
                }
                Some(b'\r') => end + 1,
                _ => end,
            };
        }
        self.log.lines += bytes.get(at..to).map_or(0, newlines);
        if to > from {
            self.open = bytes[to - 1] != b'\n';
        }
        if let Some((at, lines)) = self.deferred.take() {
            self.log.lines = lines;
            self.resumes = true;
            self.lines(chunk, at);
        }
    }

    /// Whether the end of the run is still open after a failure, so that every line is looked at.
    fn watches(&self) -> bool {
        let log = &self.log;
        self.watching && log.progress_after < WENT_ON && !log.died_after && self.watched < WATCHED
    }

    /// Reads a line.
    fn line(&mut self, bytes: &[u8], (start, end): (usize, usize), class: Class) {
        let line = &bytes[start..end];
        if self.following > 0
            && let Some(free) = families::dumped(line)
        {
            // JAX's allocator is asked for all of a program at once.
            for message in self.log.messages.iter_mut().rev().take(8).filter(|m| m.family != "jax") {
                message.largest_free = message.largest_free.max(free);
            }
            return;
        }
        let place = (class.families > 0 || self.watches()).then(|| self.place(bytes, (start, end), class));
        if let Some(place) = place.filter(|_| self.watches()) {
            let words = self.words;
            let course = *self.shapes.at(place).course.get_or_insert_with(|| words.judge(line));
            self.watched += 1;
            self.log.progress_after += u64::from(course.progress);
            self.log.finished_after |= course.finished || course.progress && self.next_epoch(line, course);
            self.log.died_after |= course.end;
        }
        let following = self.following > 0;
        self.following = self.following.saturating_sub(1);
        self.followed += u64::from(following);
        if let Some(place) = place.filter(|_| class.families > 0) {
            self.message(bytes, (start, end), class, following, place);
        } else if following && self.adds(line) || class.reading && self.wants_reading() {
            self.part(bytes, (start, end), class, following);
        }
    }

    /// Whether a line of progress is of a later epoch than one before it since the failure: the steps between were done. Below a
    /// traceback only a bar's is believed, since what a program that died had printed may come after it.
    fn next_epoch(&mut self, line: &[u8], course: Course) -> bool {
        let Some(epoch) = context::epoch_of(&String::from_utf8_lossy(line)) else { return false };
        let before = self.epoch.replace(epoch);
        before.is_some_and(|before| epoch > before) && (course.bar || !self.traced)
    }

    /// Where the shape of a line is remembered. Logs repeat themselves to the letter, too.
    fn place(&mut self, bytes: &[u8], (start, end): (usize, usize), class: Class) -> usize {
        let line = &bytes[start..end];
        let again = self.last.filter(|(first, end, _)| &bytes[*first..*end] == line);
        let place = again.map_or_else(|| self.shapes.place(class, line), |(_, _, place)| place);
        self.last = Some((start, end, place));
        place
    }

    /// Whether a line may add something to the messages before it: those that do have certain words, unless something stands within
    /// the words.
    fn adds(&self, line: &[u8]) -> bool {
        static ADDING: OnceLock<Search> = OnceLock::new();
        let adding = ADDING.get_or_init(|| {
            let words = FAMILIES.iter().flat_map(|family| family.more).chain(&context::TELLING);
            Search::new(&words.copied().collect::<Vec<_>>())
        });
        self.broken.as_ref().is_some_and(|(_, _, last)| self.log.lines < *last)
            || adding.find(line, 0).is_some()
            || memchr::memchr2(ESCAPE, BACKSPACE, line).is_some()
    }

    /// Whether this reading is one of those that are kept; of many, every second, fourth…
    fn wants_reading(&mut self) -> bool {
        self.seen_readings += 1;
        !self.failed && self.seen_readings.is_multiple_of(self.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Run;
    use crate::chunks::{BEHIND, CHUNK};
    use crate::line::LINE;
    use memfit_graph::Bytes;

    const FAILURE: &str =
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.92 GiB total capacity)";

    #[test]
    fn lines_are_counted_across_chunks() {
        let mut log = "step 1 loss 0.5\n".repeat(200_000);
        log.push_str(FAILURE);
        let read = read(log.as_bytes()).unwrap();
        assert_eq!(read.lines, 200_001);
        assert_eq!(read.messages[0].line, 200_001);
    }

    #[test]
    fn a_line_without_an_end_is_bounded() {
        let mut log = "x".repeat(5 << 20);
        log.push_str(&format!("\n{FAILURE}\n"));
        assert_eq!(read(log.as_bytes()).unwrap().messages.len(), 1);
    }

    #[test]
    fn colours_and_progress_bars_are_no_hindrance() {
        let log = format!(
            "epoch 1: 10%\r\u{1b}[31m{}\u{1b}[0m\r\n",
            FAILURE.replace("CUDA out", "CUDA \u{1b}[1mout")
        );
        let log = log.replace("\u{1b}[1m", "");
        assert_eq!(read(log.as_bytes()).unwrap().messages.len(), 1);
    }

    /// Failures that were survived, over many chunks: the first are kept and the last, which it died of.
    #[test]
    fn of_many_failures_the_last_is_read() {
        let steps: String = (0..6).map(|i| format!("step {i} loss 0.5\n")).collect();
        let mut log = format!("{FAILURE}\n{steps}").repeat(10_000);
        let lines = log.lines().count() as u64;
        log.push_str("Traceback (most recent call last):\n  File \"t.py\", line 1, in validate\n");
        log.push_str(&FAILURE.replace("20.00", "77.00"));
        let read = read(log.as_bytes()).unwrap();
        assert_eq!(read.failure().map(|m| (m.line, m.requested)), Some((lines + 3, Some(Bytes::mib(77)))));
        assert_eq!((read.context.run, read.lines), (Some(Run::Validation), lines + 3));
        assert!(read.messages.len() <= MESSAGES);
    }

    #[test]
    fn a_dump_of_any_length_is_read_to_its_summary() {
        let mut log = String::from(
            "W bfc_allocator.cc:1] Allocator (GPU_0_bfc) ran out of memory trying to allocate 392.00MiB (rounded to 411041792)requested by op Conv2D\n",
        );
        for i in 0..50_000 {
            let word = if i == 40_000 { "Free " } else { "InUse" };
            log.push_str(&format!(
                "I bfc_allocator.cc:2] {word} at 7f{i:x} of size {} next {i}\n",
                256 * (i % 9 + 1)
            ));
        }
        log.push_str("Limit:      8000000000\nInUse:      7900000000\n");
        let read = read(log.as_bytes()).unwrap();
        let failure = read.failure().unwrap();
        assert_eq!((failure.limit, failure.largest_free), (Some(Bytes(8_000_000_000)), Some(Bytes(256 * 5))));
    }

    #[test]
    fn a_failure_within_a_very_long_line_is_found() {
        for at in [0, LINE - 30, CHUNK, CHUNK + BEHIND - LINE - 40, 2 * CHUNK + 77] {
            let log = format!("{}{FAILURE}{}", "x".repeat(at), "y".repeat(3 * CHUNK));
            let read = read(log.as_bytes()).unwrap();
            assert_eq!(read.failure().and_then(|m| m.requested), Some(Bytes::mib(20)), "{at}");
        }
    }
}
