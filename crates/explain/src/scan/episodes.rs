//! Reads a failure, counts it with others of its shape, or puts it off: of a run that survives failure after failure the first
//! are read, and of the rest the last of each chunk.

use super::{EPISODES, MESSAGES, OFTEN, Scan};
use crate::families;
use crate::line::plain;
use crate::pieces::Class;
use crate::shapes::Shape;

impl Scan {
    /// Whether the run made steps after the last failure and did not end for it.
    pub(super) fn went_on(&self) -> bool {
        self.failed && self.log.shows_work()
    }

    /// Reads a line that may be a message, or counts it with others of its shape.
    pub(super) fn message(
        &mut self,
        bytes: &[u8],
        (start, end): (usize, usize),
        class: Class,
        following: bool,
        place: usize,
    ) {
        let known = *self.shapes.at(place);
        let often = Some(known).filter(|known| known.times >= OFTEN);
        let another = self.went_on() && often.is_some_and(|known| known.failure);
        let counts = |known: &Shape| known.message.is_none() || known.episode == self.episode;
        if self.deferred.is_some() || another && self.is_late() {
            let failure = match often {
                Some(known) => known.failure,
                None => self.fails(&bytes[start..end], class, place),
            };
            if failure {
                self.defer(start);
            }
        } else if let Some(known) = often.filter(counts).filter(|_| !another && !self.resumes) {
            if let Some(message) = known.message.and_then(|at| self.log.messages.get_mut(usize::from(at))) {
                message.count += 1;
            }
            if known.failure {
                self.failed_again();
            }
        } else {
            let found = self.part(bytes, (start, end), class, following);
            let shape = self.shapes.at(place);
            shape.times = shape.times.saturating_add(1);
            shape.message = found.and_then(|(at, _)| u16::try_from(at).ok());
            shape.failure = found.is_some_and(|(_, failure)| failure);
            shape.episode = self.episode;
        }
    }

    /// Whether so many failures were survived that only the last of a chunk is read.
    pub(super) fn is_late(&self) -> bool {
        !self.resumes && (self.episode >= EPISODES || self.log.messages.len() > MESSAGES / 2)
    }

    /// Whether a line is a failure. Its shape remembers that, but no message: one that says something is read when that counts.
    fn fails(&mut self, line: &[u8], class: Class, place: usize) -> bool {
        let message = families::parse(plain(line).trim(), class.families);
        let shape = self.shapes.at(place);
        shape.times = shape.times.saturating_add(1);
        shape.failure = message.as_ref().is_some_and(|message| message.kind.is_failure());
        (shape.message, shape.episode) = (message.map(|_| u16::MAX), u32::MAX);
        shape.failure
    }

    /// Remembers a failure instead of reading it, if it is the first of another episode.
    fn defer(&mut self, start: usize) {
        if self.went_on() {
            self.deferred = Some((start, self.log.lines));
        }
        self.failed_again();
    }

    pub(super) fn failed_again(&mut self) {
        self.log.progress_after = 0;
        self.log.finished_after = false;
        self.epoch = None;
        self.log.died_after = false;
        self.watched = 0;
    }
}
