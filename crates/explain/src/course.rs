//! What a line says of the course of a run: that it made a step, or that it ended for a failure.
//!
//! Only lines after a failure are asked, and each shape ([`crate::shapes`]) once: one automaton of all words is fast enough.

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// What a line says of the course of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Course {
    /// A step was done.
    pub(crate) progress: bool,
    /// That a progress bar shows, which is drawn when it happens; what is printed may have waited in a buffer.
    pub(crate) bar: bool,
    /// Training came to its end.
    pub(crate) finished: bool,
    /// A process has ended for a failure.
    pub(crate) end: bool,
}

/// What a pattern of the automaton stands for.
#[derive(Clone, Copy)]
enum Sign {
    /// A word that a number follows: `step 3`.
    Counter,
    /// `3/10 [`.
    Bar,
    /// A unit that follows a number: `5it/s`.
    Speed,
    Finished,
    End,
}

const COUNTERS: [&str; 12] = [
    "epoch",
    "Epoch",
    "EPOCH",
    "step",
    "Step",
    "STEP",
    "iter",
    "Iter",
    "ITER",
    "iteration",
    "Iteration",
    "ITERATION",
];
const SPEEDS: [&str; 3] = ["it/s", "s/it", "s/step"];
/// Lightning's, transformers' (`{'train_runtime': …}`) and what people print.
const FINISHED: [&str; 8] = [
    "`Trainer.fit` stopped: `max_",
    "'train_runtime'",
    "Training complete",
    "training complete",
    "Training finished",
    "training finished",
    "Finished training",
    "Finished Training",
];
const ENDS: [&str; 8] = [
    "ChildFailedError",
    "Aborted",
    "core dumped",
    "srun: error",
    "terminate called",
    "exitcode",
    "exit code",
    "failed with error",
];

/// Judges lines.
pub(crate) struct Words {
    all: AhoCorasick,
    signs: Vec<Sign>,
}

impl Words {
    pub(crate) fn new() -> Words {
        let mut patterns: Vec<&str> = Vec::new();
        let mut signs = Vec::new();
        let mut add = |words: &[&'static str], sign| {
            patterns.extend(words);
            signs.resize(patterns.len(), sign);
        };
        add(&COUNTERS, Sign::Counter);
        add(&["/"], Sign::Bar);
        add(&SPEEDS, Sign::Speed);
        add(&FINISHED, Sign::Finished);
        add(&ENDS, Sign::End);
        let all = AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(&patterns);
        let all = all.unwrap_or_else(|_| unreachable!("the words are constants"));
        Words { all, signs }
    }

    /// Judges a line.
    pub(crate) fn judge(&self, line: &[u8]) -> Course {
        let mut course = Course::default();
        for found in self.all.find_overlapping_iter(line) {
            let (start, end) = (found.start(), found.end());
            let digit = |at: usize| line.get(at).is_some_and(u8::is_ascii_digit);
            let before = start.checked_sub(1);
            match self.signs[found.pattern()] {
                Sign::End => course.end = true,
                Sign::Finished => course.finished = true,
                Sign::Speed => {
                    course.progress |= before.is_some_and(|at| digit(at) || matches!(line[at], b'm' | b'u'))
                }
                Sign::Counter => {
                    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                    let between = |byte: &&u8| b" \t:=[(#".contains(byte);
                    let skipped = line[end..].iter().take_while(between).count();
                    let starts = !before.is_some_and(|at| word(&line[at]));
                    course.progress |= starts && skipped > 0 && digit(end + skipped);
                }
                Sign::Bar => {
                    let number = line[end..].iter().take_while(|b| b.is_ascii_digit()).count();
                    let bar = number > 0 && line[end + number..].starts_with(b" [");
                    course.bar |= bar && before.is_some_and(digit);
                }
            }
        }
        course.progress |= course.bar;
        course
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_counter_a_bar_or_a_speed() {
        let words = Words::new();
        for line in [
            "Epoch: [3] [12/50]",
            "step 5",
            "global step = 7,",
            "100/500 [==>...]",
            " 5.1it/s",
            "10s 50ms/step",
        ] {
            assert!(words.judge(line.as_bytes()).progress, "{line}");
        }
        for line in
            ["`Trainer.fit` stopped: `max_epochs=2` reached.", "{'train_runtime': 12.5, 'train_loss': 0.1}"]
        {
            assert!(words.judge(line.as_bytes()).finished, "{line}");
        }
        for line in ["the next step is", "epochs: many", "stepwise 5", "a/b [x", "sixty it/s"] {
            assert!(!words.judge(line.as_bytes()).progress, "{line}");
        }
    }
}
