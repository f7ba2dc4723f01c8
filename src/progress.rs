//! A bar on a terminal for what takes longer than a second.

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the time on it is written anew.
const TICK: Duration = Duration::from_millis(200);

/// Work of a known number of parts, that several threads may do. Nothing is shown in the first second.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Shows the bar in time, whether a part is done by then or not, until the other end is dropped.
    shows: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Nothing is done yet. Of one part it is shown how long it takes, of several how many are done.
    pub(crate) fn new(what: &'static str, parts: usize) -> Progress {
        let template = if parts > 1 {
            "{msg} {bar:40} {pos}/{len}, {elapsed} so far{left}"
        } else {
            "{spinner} {msg}, {elapsed} so far"
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        // Until something is done nothing is known of how long the rest takes.
        let style = style.with_key("left", |state: &ProgressState, to: &mut dyn Write| {
            if state.pos() > 0 {
                _ = write!(to, ", {:#} left", HumanDuration(state.eta()));
            }
        });
        let bar = ProgressBar::hidden().with_message(what).with_style(style);
        bar.set_length(parts as u64);
        let shows = std::io::stderr().is_terminal().then(|| {
            let (sender, ends) = channel();
            let bar = bar.clone();
            let thread = std::thread::spawn(move || {
                if ends.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                    bar.enable_steady_tick(TICK);
                }
            });
            (sender, thread)
        });
        Progress { bar, shows }
    }

    /// One more part is done.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.shows.take() {
            drop(sender);
            // It only waits, and cannot have panicked.
            _ = thread.join();
        }
        self.bar.finish_and_clear();
    }
}
