//! This program once more, as a process of its own: a fresh context, and a crash that stays there.

use super::Failure;
use memfit_validate::record::Record;
use std::process::{Command, Stdio};

/// How a run ended.
pub(super) enum Ran {
    /// With a record.
    Record(Box<Record>),
    /// Killed, which is what the system does to who takes too much memory, or aborted.
    Crashed(String),
    /// It could not be run: what standard error says.
    Refused(String),
}

/// Runs `memfit` with these words.
pub(super) fn run(words: &[String]) -> Result<Ran, Failure> {
    let own = std::env::current_exe().map_err(|e| Failure::new("validate", e.to_string()))?;
    let done = Command::new(own)
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .output()
        .map_err(|e| Failure::new("validate", format!("cannot start a process: {e}")))?;
    let text = String::from_utf8_lossy(&done.stdout);
    if let Ok(record) = serde_json::from_str::<Record>(&text) {
        return Ok(Ran::Record(Box::new(record)));
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().trim_start_matches("error: ").to_owned();
    Ok(match done.status.code() {
        Some(2) => Ran::Refused(said),
        _ => Ran::Crashed(format!("{} {said}", done.status).trim().to_owned()),
    })
}
