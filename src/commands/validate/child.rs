//! This program once more, as a process of its own: a fresh context, and a crash that stays there.

use super::Failure;
use memfit_validate::record::Record;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a run ended.
pub(super) enum Ran {
    /// With a record.
    Record(Box<Record>),
    /// Killed, which is what the system does to who takes too much memory, or aborted.
    Crashed(String),
    /// It could not be run: what standard error says.
    Refused(String),
    /// Ended here, because its time was over.
    Late,
}

/// How long to wait between two looks at whether a run has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Runs `memfit` with these words, for no longer than until `end`.
pub(super) fn run(words: &[String], end: Option<Instant>) -> Result<Ran, Failure> {
    let about = |message: String| Failure::new("validate", message);
    let own = std::env::current_exe().map_err(|e| about(e.to_string()))?;
    let mut child = Command::new(own)
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| about(format!("cannot start a process: {e}")))?;
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let status = loop {
        match child.try_wait().map_err(|e| about(e.to_string()))? {
            Some(status) => break status,
            None if end.is_some_and(|end| Instant::now() >= end) => {
                // A framework's interpreter below it ends when it next says how far it is.
                let _ = child.kill();
                let _ = child.wait();
                return Ok(Ran::Late);
            }
            None => std::thread::sleep(LOOK),
        }
    };
    let text = |thread: JoinHandle<String>| thread.join().unwrap_or_default();
    if let Ok(record) = serde_json::from_str::<Record>(&text(out)) {
        return Ok(Ran::Record(Box::new(record)));
    }
    let said = text(err).trim().trim_start_matches("error: ").to_owned();
    Ok(match status.code() {
        Some(2) => Ran::Refused(said),
        _ => Ran::Crashed(format!("{status} {said}").trim().to_owned()),
    })
}

/// Reads all that a process says, while it runs.
fn reader(from: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
