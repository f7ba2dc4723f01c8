//! What a line may be, told from its bytes alone and quickly.
//!
//! Three steps, each for what the one before lets through. A search for words that matter ([`crate::pieces`]) skips what no family
//! speaks of. The shape of a line ([`crate::shapes`]) says whether such a line was judged before. And one automaton of all words
//! judges a shape that is new.

use crate::context;
use crate::families::FAMILIES;
use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// What a line may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Class {
    /// A bit for each family that has a needle in it.
    pub(crate) families: u8,
    /// It may print the memory used so far.
    pub(crate) reading: bool,
    /// It says that a step was done.
    pub(crate) progress: bool,
    /// It says that a process has ended for a failure.
    pub(crate) end: bool,
    /// It has words before a number that decides: `exit code 137`.
    pub(crate) number: bool,
}

/// What a pattern of the automaton stands for.
#[derive(Clone, Copy)]
enum Sign {
    Needle(u8),
    Reading,
    /// A word that a number follows: `step 3`.
    Counter,
    /// `3/10 [`.
    Bar,
    /// A unit that follows a number: `5it/s`.
    Speed,
    End,
    Number,
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

/// What stands before the number of a needle that has one. Lines of one shape with one of these may differ in what they say.
const NUMBERS: [&str; 9] =
    ["xit", "zero code", "signal ", "error ", "ailure ", "error=", "rror ", "SIGKILL", "(2 vs"];

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
        for (family, bit) in FAMILIES.iter().zip([1u8, 2, 4, 8, 16, 32, 64, 128]) {
            add(family.needles, Sign::Needle(bit));
        }
        add(context::READINGS, Sign::Reading);
        add(&COUNTERS, Sign::Counter);
        add(&["/"], Sign::Bar);
        add(&SPEEDS, Sign::Speed);
        add(&ENDS, Sign::End);
        add(&NUMBERS, Sign::Number);
        let all = AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(&patterns);
        let all = all.unwrap_or_else(|_| unreachable!("the words are constants"));
        Words { all, signs }
    }

    /// Judges a line.
    pub(crate) fn judge(&self, line: &[u8]) -> Class {
        let mut class = Class::default();
        for found in self.all.find_overlapping_iter(line) {
            let (start, end) = (found.start(), found.end());
            let digit = |at: usize| line.get(at).is_some_and(u8::is_ascii_digit);
            let before = start.checked_sub(1);
            match self.signs[found.pattern()] {
                Sign::Needle(bit) => class.families |= bit,
                Sign::Reading => class.reading = true,
                Sign::End => class.end = true,
                Sign::Number => class.number = true,
                Sign::Speed => {
                    class.progress |= before.is_some_and(|at| digit(at) || matches!(line[at], b'm' | b'u'))
                }
                Sign::Counter => {
                    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                    let between = |byte: &&u8| b" \t:=[(#".contains(byte);
                    let skipped = line[end..].iter().take_while(between).count();
                    let starts = !before.is_some_and(|at| word(&line[at]));
                    class.progress |= starts && skipped > 0 && digit(end + skipped);
                }
                Sign::Bar => {
                    let number = line[end..].iter().take_while(|b| b.is_ascii_digit()).count();
                    let bar = number > 0 && line[end + number..].starts_with(b" [");
                    class.progress |= bar && before.is_some_and(digit);
                }
            }
        }
        class
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::numbers;

    #[test]
    fn a_needle_with_a_number_has_words_before_it() {
        for needle in crate::pieces::words() {
            let number = needle.chars().any(|c| c.is_ascii_digit()) && !needle.contains('%');
            assert!(!number || NUMBERS.iter().any(|words| needle.contains(words)), "{needle}");
            assert!(!number || numbers(needle.as_bytes()) != 0, "{needle}");
        }
        assert!(FAMILIES.len() <= 8);
    }

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
        for line in ["the next step is", "epochs: many", "stepwise 5", "a/b [x", "sixty it/s"] {
            assert!(!words.judge(line.as_bytes()).progress, "{line}");
        }
    }
}
