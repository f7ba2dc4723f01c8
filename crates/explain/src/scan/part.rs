//! Reads in full the lines that matter: what a message says, what the lines after it add, and what stood before it.

use super::{
    BROKEN_OVER, FOLLOWED, FOLLOWING, FOLLOWING_LATE, MESSAGES, QUOTED, READINGS, REPETITIONS, Scan, TELLING,
};
use crate::Log;
use crate::chunks::BEHIND;
use crate::context::{self, Context};
use crate::families;
use crate::line::{LINE, plain};
use crate::message::Kind;
use crate::pieces::Class;

impl Scan {
    /// Reads a line in full: its message's place and whether it is a failure, if it has one.
    pub(super) fn part(
        &mut self,
        bytes: &[u8],
        (start, end): (usize, usize),
        class: Class,
        following: bool,
    ) -> Option<(usize, bool)> {
        let text = plain(&bytes[start..end]);
        let line = text.trim();
        let number = self.log.lines + 1;
        if following {
            for message in self.log.messages.iter_mut().rev().take(8) {
                families::follow(message, line);
            }
            if self.telling.len() < TELLING && context::tells(line) {
                self.telling.push(line.to_owned());
            }
        }
        if class.reading
            && !self.failed
            && let Some(reading) = context::reading(line)
        {
            self.reading(number, reading);
        }
        let Some(mut message) = families::parse(line, class.families) else {
            self.continues(number, line);
            return None;
        };
        message.line = number;
        let failure = message.kind.is_failure();
        if failure {
            let another = self.went_on() || self.resumes;
            if another && !self.is_late() && !self.resumes {
                // That one was survived; this one is another.
                self.log.survived = self.log.messages.len();
            } else if another {
                self.log.messages.truncate(self.log.survived);
            }
            let before = &bytes[start.saturating_sub(BEHIND)..start];
            if another || !self.failed {
                self.episode += u32::from(another);
                self.before = before.to_vec();
                line.clone_into(&mut self.first);
                self.telling.clear();
                self.traced = context::is_traced(before);
            } else if !self.traced
                && context::is_traced(&bytes[self.asked.max(start.saturating_sub(BEHIND))..start])
            {
                // A warning came first, and the exception after it.
                self.before.extend(before);
                self.traced = true;
            }
            self.asked = start;
            self.failed = true;
            self.resumes = false;
            self.failed_again();
        }
        self.watching |= failure || message.kind == Kind::Retry;
        let survived = self.log.survived;
        let messages = &mut self.log.messages;
        let same = messages.iter().skip(survived).position(|m| m.repeats(&message)).map(|n| n + survived);
        let follow = if self.followed < FOLLOWED { FOLLOWING } else { FOLLOWING_LATE };
        match same {
            Some(first) => {
                messages[first].absorb(message);
                if messages[first].count <= REPETITIONS {
                    self.following = follow;
                }
                Some((first, failure))
            }
            None if messages.len() < MESSAGES => {
                self.broken = Some((messages.len(), line.to_owned(), number + BROKEN_OVER));
                message.text = line.chars().take(QUOTED).collect();
                messages.push(message);
                self.following = follow;
                Some((messages.len() - 1, failure))
            }
            None => Some((MESSAGES, failure)),
        }
    }

    /// Reads a line as the rest of the message before it, where that one may be broken.
    fn continues(&mut self, number: u64, line: &str) {
        let Some((place, text, last)) = &mut self.broken else { return };
        if number > *last || text.len() > LINE {
            self.broken = None;
            return;
        }
        text.push(' ');
        text.push_str(line);
        if let (Some(message), Some(whole)) =
            (self.log.messages.get_mut(*place), families::parse(text, u8::MAX))
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

    pub(super) fn finish(mut self) -> Log {
        self.log.lines += u64::from(self.open);
        if self.failed {
            self.log.context = Context::before(&plain(&self.before), &self.first);
            for line in &self.telling {
                self.log.context.words(line);
            }
        }
        self.log
    }
}
