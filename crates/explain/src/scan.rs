//! Streams a log: finds the few lines that matter among gigabytes.
//!
//! A chunk is searched for the needles of all families at once; a line that holds one is read in full, and so are the lines
//! that follow a failure, which explain it. What stands before a failure is looked up in the bytes still held. Memory is a
//! chunk and what was found, whatever the log's size; a line longer than a chunk is read in parts.

use crate::context::{self, Progress};
use crate::families::{self, FAMILIES};
use crate::message::Kind;
use crate::{Log, context::Context};
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use std::io::{self, Read};
use std::sync::OnceLock;

/// Bytes searched at once.
const CHUNK: usize = 1 << 20;
/// Bytes kept from before, to look back in.
const BEHIND: usize = 1 << 16;
/// The longest line that is read; of a longer one this much around the needle.
const LINE: usize = 1 << 13;
/// Lines after a failure that may explain it: an allocator's dump has thousands, its summary stands at the end.
const FOLLOWING: u64 = 20_000;
/// How many messages are kept.
const MESSAGES: usize = 400;
/// How many readings are kept; of more, every second.
const READINGS: usize = 4096;
/// Lines of progress after a failure that settle that the run went on.
const WENT_ON: u64 = 64;
/// Lines after a failure in which progress or an end is looked for.
const WATCHED: u64 = 100_000;
/// Repetitions of a message whose following lines are still read.
const REPETITIONS: u64 = 16;
/// Lines over which a message may be broken, by a terminal or a logger with a width.
const BROKEN_OVER: u64 = 6;

/// Reads a log to its end.
///
/// # Errors
/// What the reader reports.
pub fn read(mut reader: impl Read) -> io::Result<Log> {
    let mut scan = Scan::new();
    let (mut buffer, mut start, mut end) = (vec![0u8; BEHIND + CHUNK], 0usize, 0usize);
    loop {
        if buffer.len() - end < CHUNK / 2 {
            let keep = start.saturating_sub(BEHIND);
            buffer.copy_within(keep..end, 0);
            (start, end) = (start - keep, end - keep);
            if buffer.len() == end {
                // One line fills all of it: what was read of it so far is taken as a line.
                scan.lines(&buffer[..end], start);
                buffer.copy_within(end - BEHIND..end, 0);
                (start, end) = (BEHIND, BEHIND);
            }
        }
        let count = match reader.read(&mut buffer[end..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        end += count;
        let whole = match (count, memchr::memrchr(b'\n', &buffer[start..end])) {
            (0, _) => end,
            (_, Some(newline)) => start + newline + 1,
            (_, None) => continue,
        };
        scan.lines(&buffer[..whole], start);
        start = whole;
        if count == 0 {
            return Ok(scan.finish());
        }
    }
}

struct Scan {
    needles: &'static AhoCorasick,
    progress: Progress,
    log: Log,
    /// How many more lines are read whole.
    following: u64,
    stride: u64,
    seen_readings: u64,
    /// Lines since the last failure in which progress or an end was looked for.
    watched: u64,
    /// A message that may go on below: its place, its text so far, and the last line that may belong to it.
    broken: Option<(usize, String, u64)>,
    /// Whether the last line had no end yet.
    open: bool,
}

impl Scan {
    fn new() -> Scan {
        static NEEDLES: OnceLock<AhoCorasick> = OnceLock::new();
        let needles = NEEDLES.get_or_init(|| {
            let needles = FAMILIES.iter().flat_map(|f| f.needles).chain(context::READINGS);
            let dense = AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(needles);
            dense.unwrap_or_else(|_| unreachable!("the needles are constants"))
        });
        let progress = Progress::new();
        Scan {
            needles,
            progress,
            log: Log::default(),
            following: 0,
            stride: 1,
            seen_readings: 0,
            watched: 0,
            broken: None,
            open: false,
        }
    }

    /// Reads the lines of `bytes[from..]`; what is before stays to look back in. [`Log::lines`] counts line ends meanwhile.
    fn lines(&mut self, bytes: &[u8], from: usize) {
        let mut at = from;
        while at < bytes.len() {
            let hit = if self.following > 0 || self.watches() {
                at
            } else {
                match self.needles.find(&bytes[at..]) {
                    Some(found) => at + found.start(),
                    None => break,
                }
            };
            let start = memchr::memrchr(b'\n', &bytes[at..hit]).map_or(at, |n| at + n + 1);
            let end = memchr::memchr(b'\n', &bytes[hit..]).map_or(bytes.len(), |n| hit + n);
            self.log.lines += newlines(&bytes[at..start]);
            self.line(bytes, start, end, hit - start);
            self.log.lines += u64::from(end < bytes.len());
            at = end + 1;
        }
        self.log.lines += bytes.get(at..).map_or(0, newlines);
        self.open = bytes.last().is_some_and(|last| *last != b'\n');
    }

    /// Whether the end of the run is still open after a failure, so that every line is looked at.
    fn watches(&self) -> bool {
        let log = &self.log;
        let settled = log.progress_after >= WENT_ON || log.died_after || self.watched >= WATCHED;
        !settled && log.messages.iter().any(|m| m.kind != Kind::Taken)
    }

    fn line(&mut self, bytes: &[u8], start: usize, end: usize, hit: usize) {
        let whole = &bytes[start..end];
        if self.watches() {
            self.watched += 1;
            self.log.progress_after += u64::from(self.progress.is_progress(whole));
            self.log.died_after |= context::is_end(whole);
        }
        let following = self.following > 0;
        self.following = self.following.saturating_sub(1);
        let Some(first) = self.needles.find(whole) else {
            if following {
                self.read_line(whole, hit, &bytes[..start]);
            }
            return;
        };
        // What only prints the memory used so far is taken as often as it is kept.
        let messages = self.needles.patterns_len() - context::READINGS.len();
        if !following
            && self.needles.find_overlapping_iter(whole).all(|found| found.pattern().as_usize() >= messages)
        {
            self.seen_readings += 1;
            if self.log.failure().is_some() || !self.seen_readings.is_multiple_of(self.stride) {
                return;
            }
        }
        self.read_line(whole, first.start(), &bytes[..start]);
    }

    fn read_line(&mut self, whole: &[u8], hit: usize, before: &[u8]) {
        let around = &whole[hit.saturating_sub(LINE / 2)..whole.len().min(hit + LINE / 2)];
        let plain = plain(around);
        // A progress bar overwrites itself: what stands between two returns is a line of its own.
        for part in plain.split('\r').filter(|part| !part.trim().is_empty()) {
            self.part(part.trim(), before);
        }
    }

    fn part(&mut self, line: &str, before: &[u8]) {
        let number = self.log.lines + 1;
        if self.following > 0 {
            for message in self.log.messages.iter_mut().rev().take(8) {
                families::follow(message, line);
            }
            context::follow(&mut self.log.context, line);
        }
        if self.log.failure().is_none()
            && let Some(reading) = context::reading(line)
        {
            self.reading(number, reading);
        }
        let Some(mut message) = families::parse(line) else { return self.continues(number, line) };
        message.line = number;
        message.text = line.chars().take(300).collect();
        if message.kind.is_failure() {
            if self.log.went_on() {
                // That one was survived; this one is another.
                self.log.survived = self.log.messages.len();
            }
            if self.log.survived == self.log.messages.len() || self.log.failure().is_none() {
                let tail = &before[before.len().saturating_sub(BEHIND)..];
                self.log.context = Context::before(&plain(tail), line);
            }
            self.log.progress_after = 0;
            self.log.died_after = false;
            self.watched = 0;
        }
        let survived = self.log.survived;
        let messages = &mut self.log.messages;
        let place = messages.iter().skip(survived).position(|m| m.repeats(&message)).map(|n| n + survived);
        match place {
            Some(first) => {
                messages[first].absorb(message);
                if messages[first].count <= REPETITIONS {
                    self.following = FOLLOWING;
                }
            }
            None if messages.len() < MESSAGES => {
                self.broken = Some((messages.len(), line.to_owned(), number + BROKEN_OVER));
                messages.push(message);
                self.following = FOLLOWING;
            }
            None => {}
        }
    }

    /// Reads a line as the rest of the message before it, where that one may be broken.
    fn continues(&mut self, number: u64, line: &str) {
        let Some((place, text, last)) = &mut self.broken else { return };
        if number > *last {
            self.broken = None;
            return;
        }
        text.push(' ');
        text.push_str(line);
        if let (Some(message), Some(whole)) = (self.log.messages.get_mut(*place), families::parse(text))
            && message.family == whole.family
            && message.kind == whole.kind
        {
            message.fill(whole);
        }
    }

    fn reading(&mut self, line: u64, reading: u64) {
        self.log.readings.push((line, reading));
        if self.log.readings.len() == READINGS {
            self.stride = self.stride.saturating_mul(2);
            let mut odd = false;
            self.log.readings.retain(|_| {
                odd = !odd;
                odd
            });
        }
    }

    fn finish(mut self) -> Log {
        self.log.lines += u64::from(self.open);
        self.log
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// Text without the sequences that colour it.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.contains('\u{1b}') {
        return text.into_owned();
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.next_if_eq(&'[').is_some() => {
                while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
            }
            '\u{1b}' => {}
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
