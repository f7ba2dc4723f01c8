//! How a process ended, in the words of who started it.
//!
//! | wording | from |
//! |---|---|
//! | `Exit Code: 137`, `exited with code 137`, `Exited (137)`, `"exitCode": 137` | Kubernetes 1.20 to 1.31, Docker and Docker Compose 1 and 2 |
//! | `returned a non-zero code: 137` | `docker build` |
//! | `exitcode: -9`, `exitcode  : -9` | PyTorch 1.9 to 2.8, torch/distributed/elastic |
//! | `exits with return code = -9` | DeepSpeed 0.3 to 0.16 |
//!
//! A shell and a container add 128 to a signal's number, Python takes it negative.

use super::{Family, is_talk};
use crate::line::{ESCAPE, plain};
use crate::message::{Kind, Message};
use memchr::memmem;

pub(super) const FAMILY: Family = Family {
    needles: NEEDLES,
    after: Some(after_exit),
    parse,
    more: &[],
    follow: super::nothing,
    names: &["host"],
};

const NEEDLES: &[&str] = &["xit", "non-zero code"];

fn parse(line: &str) -> Option<Message> {
    let (kind, detail) = ended(line)?;
    let mut message = Message::new("host", kind);
    message.detail = Some(detail.into());
    (!is_talk(line)).then_some(message)
}

/// What ended a process.
fn ended(line: &str) -> Option<(Kind, &'static str)> {
    let line = line.as_bytes();
    let after = |words: &&'static str| {
        let len = words.len();
        memmem::find_iter(line, *words).filter_map(move |at| line.get(at + len..))
    };
    NEEDLES.iter().flat_map(after).find_map(number).and_then(signal)
}

/// Words and signs that may stand between `exit` and its number.
const BETWEEN: &[&str] = &["ed", "s", "with", "return", "status", "code", "error", "by", "was"];
/// How far from `exit` its number may stand.
const NEAR: usize = 40;

/// The number after `exit` if it is that of a signal.
fn after_exit(rest: &[u8]) -> Option<i64> {
    let near = &rest[..rest.len().min(2 * NEAR)];
    let line = &near[..memchr::memchr(b'\n', near).unwrap_or(near.len())];
    let coloured = || number(memchr::memchr(ESCAPE, line).map(|_| plain(line))?.as_bytes());
    number(line).or_else(coloured).filter(|code| signal(*code).is_some())
}

/// The number after `exit`.
fn number(rest: &[u8]) -> Option<i64> {
    let at = rest.iter().take(NEAR).position(u8::is_ascii_digit)?;
    let (between, digits) = rest.split_at(at);
    let mut words = between.split(|byte| !byte.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    if !words.all(|word| BETWEEN.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()))) {
        return None;
    }
    let end = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, after) = digits.split_at(end);
    // The second of two numbers, a part of a fraction or of a name are no codes.
    let whole = match after {
        [b'.', next, ..] => !next.is_ascii_digit(),
        [next, ..] => *next != b'_' && !next.is_ascii_alphanumeric(),
        [] => true,
    };
    let value = |n: i64, digit: &u8| n.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    let number = digits.iter().fold(0, value);
    whole.then_some(if between.ends_with(b"-") { -number } else { number })
}

/// The signal that ended a process with this number, if one that speaks of memory.
fn signal(number: i64) -> Option<(Kind, &'static str)> {
    match number {
        // The last is Python's -9 as a byte.
        -9 | 137 | 247 => Some((Kind::HostKill, "signal 9")),
        -7 | 135 => Some((Kind::SharedMemory, "signal 7")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_exit_codes() {
        for line in [
            "command terminated with exit code 137",
            "worker exited with code 137",
            "Exit Code:    137",
            "failed (exitcode: -9) local_rank: 0 (pid: 1322)",
            "  exitcode  : -9 (pid: 14750)",
            "Exited (137) 5 minutes ago",
            "\"exitCode\": 137,",
            "exit_code=137",
            "exits with return code = -9",
            "task exit with status code 137",
            "The command '/bin/sh -c python train.py' returned a non-zero code: 137",
        ] {
            assert_eq!(ended(line).map(|(kind, _)| kind), Some(Kind::HostKill), "{line}");
        }
        let killed = ended("failed (exitcode: -7) local_rank: 0");
        assert_eq!(killed.map(|(kind, _)| kind), Some(Kind::SharedMemory));
        for line in
            ["exit code 1", "exit code 0 after 137 steps", "exit code 137.5", "next 137", "exit at 137"]
        {
            assert_eq!(ended(line), None, "{line}");
        }
    }

    #[test]
    fn what_stands_after_exit_tells_whether_the_line_matters() {
        for rest in [" code: 137\n", "code -9", " code \u{1b}[31m137\u{1b}[0m"] {
            assert!(after_exit(rest.as_bytes()).is_some(), "{rest:?}");
        }
        for rest in ["", "\n137", " code 1\n", " code\n137", " code 164"] {
            assert_eq!(after_exit(rest.as_bytes()), None, "{rest:?}");
        }
    }
}
