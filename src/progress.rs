//! A bar on a terminal for what takes longer than a second.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Work of a known number of parts. Nothing is shown in the first second.
pub(crate) struct Progress {
    what: &'static str,
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Nothing is done yet.
    pub(crate) fn new(what: &'static str) -> Progress {
        Progress { what, began: Instant::now(), bar: None }
    }

    /// `done` parts `of` all are.
    pub(crate) fn tell(&mut self, done: usize, of: usize) {
        if self.bar.is_none()
            && self.began.elapsed() > Duration::from_secs(1)
            && std::io::stderr().is_terminal()
        {
            let bar = ProgressBar::new(of as u64).with_message(self.what);
            let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}, {eta} left");
            self.bar = Some(style.map_or(bar.clone(), |style| bar.with_style(style)));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
