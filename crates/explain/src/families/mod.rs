//! One file for each family of messages: the needles that find its lines, and what the lines say.
//!
//! A family is its file and one line in [`FAMILIES`]. The first family that understands a line takes it, so the ones with exact
//! wordings come before the general ones.

mod cuda;
mod exits;
mod host;
mod libraries;
mod pytorch;
mod tensorflow;
mod xla;

use crate::line::{has, place};
use crate::message::Message;
pub(crate) use tensorflow::dumped;

/// Reads the number after a needle from the bytes there, which may be many lines: none where the needle does not matter.
pub(crate) type After = fn(&[u8]) -> Option<i64>;

/// A family of messages.
pub(crate) struct Family {
    /// What every line of it contains one of.
    pub(crate) needles: &'static [&'static str],
    /// The number that must stand after a needle, where not anything may.
    pub(crate) after: Option<After>,
    /// Reads a line.
    pub(crate) parse: fn(&str) -> Option<Message>,
    /// What every later line that adds something to a message contains one of.
    pub(crate) more: &'static [&'static str],
    /// Adds what a later line says to a message of this family.
    pub(crate) follow: fn(&mut Message, &str),
    /// The names under which its messages go.
    names: &'static [&'static str],
}

/// All families, in the order in which they are asked.
pub(crate) const FAMILIES: &[&Family] = &[
    &pytorch::FAMILY,
    &tensorflow::FAMILY,
    &xla::FAMILY,
    &libraries::FAMILY,
    &host::FAMILY,
    &exits::FAMILY,
    &cuda::FAMILY,
];

/// The message on a line, if it speaks of memory; `among` has a bit for each family that may have written it.
pub(crate) fn parse(line: &str, among: u8) -> Option<Message> {
    FAMILIES
        .iter()
        .enumerate()
        .filter(|(i, f)| among >> i & 1 == 1 && f.needles.iter().any(|needle| has(line, needle)))
        .find_map(|(_, f)| (f.parse)(line))
}

/// Adds what a line after a message says to it.
pub(crate) fn follow(message: &mut Message, line: &str) {
    if let Some(family) = FAMILIES.iter().find(|f| f.names.contains(&message.family)) {
        (family.follow)(message, line);
    }
}

/// Adds nothing.
fn nothing(_: &mut Message, _: &str) {}

/// Whether a line speaks of a failure without being one: source code, a hint, a metric, a sentence with `if`.
fn is_talk(line: &str) -> bool {
    let line = line.trim_start();
    let lower = line.to_ascii_lowercase();
    let code = [
        "#", "//", "\"\"\"", "assert ", "except ", "raise ", "if ", "elif ", "print(", "logger.", "log.",
        "help=", "*",
    ];
    let words = [
        "if you ",
        "if this ",
        "to avoid",
        "avoid ",
        "in case of",
        "might run",
        "may run",
        "could run",
        "prevent",
        "when you",
        "should you",
        "without running",
        "not run out",
        "never ran",
        "no longer",
        "did not run",
        "except torch",
        "except runtime",
        "guard against",
        "fix for",
        "fixes ",
        "fixed ",
        "handling for",
        "will retry on",
        "on oom",
        "catch",
        " means ",
        " indicates ",
    ];
    code.iter().any(|c| lower.starts_with(c)) || words.iter().any(|w| lower.contains(w))
}

/// The text between `open` and the next `close`.
fn between<'a>(line: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let rest = &line[place(line, open)? + open.len()..];
    place(rest, close).map(|end| &rest[..end])
}

/// Dims as `64,512,56,56`.
fn dims(text: &str) -> Option<Vec<u64>> {
    text.split([',', 'x']).map(|d| d.trim().parse().ok()).collect()
}
