//! Standard output and error: colour where it is wanted, and readers that go away.

use crate::failure::{self, Failure};
use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use memfit_graph::Bytes;
use std::fs;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::time::Instant;

const ERROR: Style = AnsiColor::Red.on_default().bold();

/// When text is coloured.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Color {
    /// Makes it the choice of the whole process.
    pub(crate) fn apply(self) {
        match self {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        }
        .write_global();
    }
}

/// Writes a result. A reader that has seen enough is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut plain = std::io::stdout().lock();
    let written = if text.contains('\x1b') {
        let mut out = anstream::AutoStream::auto(plain);
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    } else {
        // Nothing to strip, as in all JSON: looking at each byte takes longer than writing them.
        plain.write_all(text.as_bytes()).and_then(|()| plain.flush())
    };
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new("standard output", format!("cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a file as a whole: whoever reads it, after an end at any moment too, sees the old text or the new.
pub(crate) fn save(path: &Path, text: &str) -> Result<(), Failure> {
    let written = if path.exists() && !path.is_file() {
        // What is no file of its own, like /dev/stdout, cannot be replaced.
        fs::write(path, text)
    } else {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let part = path.with_file_name(name);
        fs::write(&part, text).and_then(|()| fs::rename(&part, path))
    };
    written.map_err(|error| Failure::unwritten(path, &error))
}

/// Says on a terminal what is going on, in place of what was said before.
pub(crate) fn progress(line: &str) {
    let mut err = std::io::stderr().lock();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{line}").and_then(|()| err.flush());
    }
}

/// The same of steps that run: how many are done, the highest so far, the time that is left.
pub(crate) fn steps(begin: Instant, step: u32, of: u32, peak: Bytes) {
    let left = begin.elapsed().checked_div(step).unwrap_or_default() * of.saturating_sub(step);
    progress(&format!("step {step} of {of}, peak {peak}, {} s left", left.as_secs()));
}

/// Tells what went wrong. If that cannot be written there is nobody to tell.
pub(crate) fn error(failure: &Failure) {
    let mut err = anstream::AutoStream::auto(std::io::stderr().lock());
    let _ = writeln!(err, "{ERROR}error:{ERROR:#} {}", visible(&failure.to_string()));
}

/// Tells what went wrong with a part of the work.
pub(crate) fn warn(message: &str) {
    let mut err = anstream::AutoStream::auto(std::io::stderr().lock());
    let _ = writeln!(err, "warning: {}", visible(&failure::quoted(message)));
}

/// Names come from files: what would move the cursor is replaced.
fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// How wide text may be: the terminal, else what `COLUMNS` says, else enough for every column.
pub(crate) fn width() -> usize {
    let terminal = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    let terminal = std::io::stdout().is_terminal().then(terminal).flatten();
    terminal.or_else(columns).filter(|w| *w > 0).unwrap_or(100)
}
