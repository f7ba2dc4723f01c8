//! A bar on a terminal for what takes longer than a second.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Work of a known number of parts, that several threads may do. Nothing is shown in the first second.
pub(crate) struct Progress {
    what: &'static str,
    parts: usize,
    began: Instant,
    shown: Mutex<Shown>,
}

#[derive(Default)]
struct Shown {
    done: usize,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Nothing is done yet.
    pub(crate) fn new(what: &'static str, parts: usize) -> Progress {
        Progress { what, parts, began: Instant::now(), shown: Mutex::default() }
    }

    /// One more part is done.
    pub(crate) fn step(&self) {
        let Ok(mut shown) = self.shown.lock() else { return };
        shown.done += 1;
        if shown.bar.is_none()
            && self.began.elapsed() > Duration::from_secs(1)
            && std::io::stderr().is_terminal()
        {
            let bar = ProgressBar::new(self.parts as u64).with_message(self.what);
            let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}, {eta} left");
            shown.bar = Some(style.map_or(bar.clone(), |style| bar.with_style(style)));
        }
        if let Some(bar) = &shown.bar {
            bar.set_position(shown.done as u64);
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
