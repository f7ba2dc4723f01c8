//! The driver's own view of a process, sampled while it runs: NVML's where this program is built for CUDA, else what nvidia-smi shows.
//!
//! Inside of a container the driver may not know the process by the number that it has here; then the card's whole memory less
//! what was held before counts.

use memfit_graph::Bytes;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Who is asked.
enum View {
    /// The driver's library.
    #[cfg(feature = "cuda")]
    Library(Box<nvml_wrapper::Nvml>),
    /// nvidia-smi.
    Program,
}

impl View {
    fn open() -> View {
        #[cfg(feature = "cuda")]
        if let Some(library) = crate::nvml::open() {
            return View::Library(Box::new(library));
        }
        View::Program
    }

    /// How long to wait between two questions: a call of nvidia-smi takes some tens of milliseconds, one of the library far less.
    fn every(&self) -> Duration {
        match self {
            #[cfg(feature = "cuda")]
            View::Library(_) => Duration::from_millis(10),
            View::Program => Duration::from_millis(200),
        }
    }

    /// What a process holds on all cards; nothing where the driver does not know it.
    fn of_process(&self, process: u32) -> Option<Bytes> {
        match self {
            #[cfg(feature = "cuda")]
            View::Library(library) => crate::nvml::of_process(library, process),
            View::Program => of_process(&ask(&["--query-compute-apps=pid,used_gpu_memory"])?, process),
        }
    }

    /// What all processes hold of the first card; nothing where the host has no driver.
    fn used(&self) -> Option<Bytes> {
        match self {
            #[cfg(feature = "cuda")]
            View::Library(library) => crate::nvml::used(library),
            View::Program => {
                let text = ask(&["--query-gpu=memory.used", "--id=0"])?;
                text.lines().next()?.trim().parse().ok().map(Bytes::mib)
            }
        }
    }
}

/// A thread that asks.
pub struct Sampler {
    highest: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Sampler {
    /// Asks about a process from now on; nothing where the host has no driver. `before` is what the card held before.
    pub fn start(process: u32, before: Bytes) -> Sampler {
        let (highest, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (shared, ending) = (highest.clone(), ends.clone());
        let thread = std::thread::spawn(move || {
            let view = View::open();
            // Once at least, however short the steps are.
            loop {
                let others = || view.used().map(|now| now.saturating_sub(before));
                let Some(seen) = view.of_process(process).or_else(others) else { return };
                shared.fetch_max(seen.0, Ordering::Relaxed);
                if ending.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::park_timeout(view.every());
            }
        });
        Sampler { highest, ends, thread }
    }

    /// The highest that was seen; nothing where nothing was.
    pub fn end(self) -> Option<Bytes> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let _ = self.thread.join();
        Some(Bytes(self.highest.load(Ordering::Relaxed))).filter(|bytes| *bytes > Bytes::ZERO)
    }
}

/// What all processes hold of the first card; nothing where the host has no driver.
pub fn used() -> Option<Bytes> {
    View::open().used()
}

fn ask(query: &[&str]) -> Option<String> {
    let output = Command::new("nvidia-smi").args(query).arg("--format=csv,noheader,nounits").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `4711, 1234`: what the process holds on all cards, in MiB.
fn of_process(text: &str, process: u32) -> Option<Bytes> {
    let mut found = None;
    for line in text.lines() {
        let (id, used) = line.split_once(',')?;
        if id.trim().parse() == Ok(process) {
            let used: u64 = used.trim().parse().ok()?;
            found = Some(found.unwrap_or(Bytes::ZERO) + Bytes::mib(used));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_among_others() {
        let text = "17, 300\n4711, 1200\n4711, 34\n";
        assert_eq!(of_process(text, 4711), Some(Bytes::mib(1234)));
        assert_eq!(of_process(text, 5), None);
        assert_eq!(of_process("4711, [N/A]\n", 4711), None);
        assert_eq!(of_process("", 4711), None);
    }
}
