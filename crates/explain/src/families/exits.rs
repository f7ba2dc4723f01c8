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
use crate::message::{Kind, Message};
use memchr::memmem;

pub(super) const FAMILY: Family =
    Family { needles: &["xit", "non-zero code"], parse, follow: super::nothing, names: &["host"] };

fn parse(line: &str) -> Option<Message> {
    let (kind, detail) = match signal(line)? {
        9 => (Kind::HostKill, "signal 9"),
        7 => (Kind::SharedMemory, "signal 7"),
        _ => return None,
    };
    let mut message = Message::new("host", kind);
    message.detail = Some(detail.into());
    (!is_talk(line)).then_some(message)
}

/// Words and signs that may stand between `exit` and its number.
const BETWEEN: &[&str] = &["ed", "s", "with", "return", "status", "code", "error", "by", "was"];

/// The signal that ended a process.
fn signal(line: &str) -> Option<u64> {
    let after = |words: &'static str| {
        memmem::find_iter(line.as_bytes(), words).filter_map(|at| line.get(at + words.len()..))
    };
    match after("xit").chain(after("non-zero code")).find_map(number)? {
        number @ -64..0 => Some(number.unsigned_abs()),
        number @ 129..192 => Some(number.unsigned_abs() - 128),
        // -9 of Python as a byte.
        247 => Some(9),
        _ => None,
    }
}

fn number(rest: &str) -> Option<i64> {
    let at = rest.bytes().take(40).position(|byte| byte.is_ascii_digit())?;
    let (between, digits) = (&rest[..at], &rest[at..]);
    let mut words = between.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    if !words.all(|word| BETWEEN.contains(&word.to_ascii_lowercase().as_str())) {
        return None;
    }
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    // The second of two numbers, a part of a fraction or of a name are no codes.
    let whole = !digits[end..].starts_with(|c: char| c == '_' || c.is_alphanumeric())
        && !digits[end..]
            .strip_prefix('.')
            .is_some_and(|more| more.starts_with(|c: char| c.is_ascii_digit()));
    let number: i64 = digits[..end].parse().ok().filter(|_| whole)?;
    Some(if between.ends_with('-') { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::signal;

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
            assert_eq!(signal(line), Some(9), "{line}");
        }
        assert_eq!(signal("failed (exitcode: -7) local_rank: 0"), Some(7));
        for line in
            ["exit code 1", "exit code 0 after 137 steps", "exit code 137.5", "next 137", "exit at 137"]
        {
            assert_eq!(signal(line), None, "{line}");
        }
    }
}
