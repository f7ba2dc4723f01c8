//! What is said of a log, for people.

use crate::model::Beside;
use crate::{Confidence, Kind, Log, Outcome};
use std::fmt::Write;

/// Text of at most `width` columns, but for the lines of the log itself.
pub fn text(log: &Log, beside: Option<&Beside>, width: usize) -> String {
    let mut out = String::new();
    let headline = match log.outcome() {
        Outcome::OutOfMemory if only_possible(log) => "Memory may have run out.",
        Outcome::OutOfMemory => "Memory ran out.",
        Outcome::Recovered => "Memory ran out, and the run went on.",
        Outcome::NoFailure => "Nothing in this log says that memory ran out.",
    };
    let _ = writeln!(out, "{headline}");
    if let Some(failure) = log.failure() {
        let _ = writeln!(out, "\nline {}: {}", failure.line, failure.text);
        let facts: Vec<String> = crate::json::facts(failure)
            .map(|(name, bytes)| format!("{} {bytes}", name.replace('_', " ")))
            .collect();
        if !facts.is_empty() {
            wrap(&mut out, &facts.join(", "), "  ", width);
        }
    }
    for (i, finding) in log.findings().iter().enumerate() {
        let _ = writeln!(out, "\n{}. {} ({})", i + 1, finding.cause.title(), finding.confidence.name());
        wrap(&mut out, &finding.explanation, "   ", width);
        if !finding.lines.is_empty() {
            let lines: Vec<String> = finding.lines.iter().map(u64::to_string).collect();
            let word = if lines.len() == 1 { "line" } else { "lines" };
            let _ = writeln!(out, "   proof: {word} {}", lines.join(", "));
        }
        for advice in finding.cause.advice() {
            wrap(&mut out, &format!("- {advice}"), "   ", width);
        }
    }
    if let Some(beside) = beside {
        let _ = writeln!(out, "\nWith the model");
        for sentence in beside.sentences() {
            wrap(&mut out, &sentence, "  ", width);
        }
        for warning in &beside.warnings {
            wrap(&mut out, &format!("warning: {warning}"), "  ", width);
        }
    }
    out
}

/// Whether the log shows an end that want of memory is but one reason for: a signal, a library that did not start.
fn only_possible(log: &Log) -> bool {
    let told =
        log.failure().is_some_and(|m| matches!(m.kind, Kind::Start | Kind::HostKill | Kind::SharedMemory));
    told && log.findings().iter().all(|f| f.confidence == Confidence::Possible)
}

fn wrap(out: &mut String, text: &str, indent: &str, width: usize) {
    let room = width.saturating_sub(indent.len()).max(30);
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
            let _ = writeln!(out, "{indent}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(out, "{indent}{line}");
    }
}
