//! Reads the log of a run that died and says what happened to its memory.
//!
//! [`read`] streams a log of any size in constant memory and keeps the messages that speak of memory, with what stood around
//! them; [`Log::findings`] are the causes that those messages prove, each with its lines and how sure it is. Without evidence it
//! says that it does not know. [`model`] puts a failure beside an estimate of the model that ran.

mod causes;
mod chunks;
mod context;
mod course;
mod decode;
mod families;
mod json;
mod line;
mod message;
pub mod model;
mod pieces;
mod scan;
mod search;
mod shapes;
mod size;
mod text;

pub use causes::{Cause, Confidence, Finding};
pub use context::{Context, Run};
pub use json::json;
pub use message::{Kind, Message, Process};
pub use scan::read;
pub use text::text;

/// Lines between a heading and the message that it is of.
const HEADING: u64 = 40;

/// How the run ended, as far as the log tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Memory ran out, and the log shows no work after it.
    OutOfMemory,
    /// Memory ran out and the run went on.
    Recovered,
    /// Nothing in the log says that memory ran out.
    NoFailure,
}

/// What a log says about memory.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// How many lines it has.
    pub lines: u64,
    /// Messages that speak of memory, in order; repetitions are counted in the first of them.
    pub messages: Vec<Message>,
    /// What stood around the first failure.
    pub context: Context,
    /// Memory that the run printed as it went: (line, number in whatever unit it prints).
    pub readings: Vec<(u64, u64)>,
    /// Lines of progress after the last failure.
    pub progress_after: u64,
    /// Whether training came to its end after the last failure, or an epoch followed another.
    pub finished_after: bool,
    /// Whether something after the last failure says that the process ended.
    pub died_after: bool,
    /// How many of the messages belong to failures that the run survived before the last one.
    pub(crate) survived: usize,
}

impl Log {
    /// The first message that says that an allocation failed; where the run survived a failure and died of another, that
    /// other's first. A heading without numbers gives way to the message below it that has them.
    pub fn failure(&self) -> Option<&Message> {
        // A library that cannot start on a device where something else is wrong tells nothing of memory.
        let faulty = self.messages.iter().any(|m| m.kind == Kind::OtherFault);
        let failed =
            |m: &&Message| m.kind.is_failure() && !(faulty && m.kind == Kind::Start && m.family == "library");
        let first = self.messages.iter().skip(self.survived).find(failed);
        let first = first.or_else(|| self.messages.iter().find(failed))?;
        let device = |m: &&Message| matches!(m.kind, Kind::DeviceAllocation | Kind::Driver);
        if first.requested.is_some() || first.allocated.is_some() || !device(&first) {
            return Some(first);
        }
        let below = |m: &&Message| m.line > first.line && m.line - first.line <= HEADING;
        let told = self.messages.iter().filter(device).filter(below).find(|m| m.requested.is_some());
        told.or(Some(first))
    }

    /// Whether lines after the last failure show work. One or two lines of progress may have waited in a buffer, or be a bar's that is
    /// drawn once more as it closes.
    pub(crate) fn shows_work(&self) -> bool {
        (self.progress_after >= 3 || self.finished_after) && !self.died_after
    }

    /// Whether the run made steps after the last failure and did not end for it.
    pub(crate) fn went_on(&self) -> bool {
        self.failure().is_some() && self.shows_work()
    }

    /// How the run ended.
    pub fn outcome(&self) -> Outcome {
        let went_on = self.went_on();
        match self.failure() {
            Some(_) if went_on => Outcome::Recovered,
            Some(_) => Outcome::OutOfMemory,
            // An allocator that asked for less the next time failed only if the run ended on it.
            None if self.died_after && self.messages.iter().any(|m| m.kind == Kind::Retry) => {
                Outcome::OutOfMemory
            }
            None => Outcome::NoFailure,
        }
    }

    /// The causes that the log proves, the surest first.
    pub fn findings(&self) -> Vec<Finding> {
        causes::find(self)
    }
}
