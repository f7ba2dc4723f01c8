//! A program watched from outside: how long it takes and how much memory it holds at most.

use crate::command::shown;
use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Medians over several starts.
#[derive(Clone, Copy)]
pub(super) struct Watched {
    pub(super) seconds: f64,
    /// The largest resident size, where the system tells it.
    pub(super) resident_kib: Option<u64>,
}

/// No further start is made after this time.
const ENOUGH: Duration = Duration::from_secs(30);

/// Starts the program up to `starts` times, one after the other.
pub(super) fn watch(command: &mut Command, starts: usize) -> Result<Watched> {
    command.stdout(Stdio::null());
    let begin = Instant::now();
    let mut all = vec![once(command)?];
    while all.len() < starts && begin.elapsed() < ENOUGH {
        all.push(once(command)?);
    }
    let mut seconds: Vec<f64> = all.iter().map(|w| w.seconds).collect();
    let mut resident: Vec<Option<u64>> = all.iter().map(|w| w.resident_kib).collect();
    seconds.sort_by(f64::total_cmp);
    resident.sort();
    Ok(Watched { seconds: seconds[seconds.len() / 2], resident_kib: resident[resident.len() / 2] })
}

fn once(command: &mut Command) -> Result<Watched> {
    let begin = Instant::now();
    let mut child = command.spawn().with_context(|| format!("`{}` could not be started", shown(command)))?;
    let status = format!("/proc/{}/status", child.id());
    let mut resident_kib = None;
    // The high-water mark only rises, so what is missed is what rises after the last look.
    let ended = loop {
        resident_kib = high_water(&status).max(resident_kib);
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        std::thread::sleep(Duration::from_micros(100));
    };
    let seconds = begin.elapsed().as_secs_f64();
    if !ended.success() {
        bail!("`{}` failed", shown(command));
    }
    Ok(Watched { seconds, resident_kib })
}

/// `VmHWM:     4528 kB`
fn high_water(status: &str) -> Option<u64> {
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
