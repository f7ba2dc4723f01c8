//! The host's memory: the kernel's out-of-memory killer, batch systems, containers and shells that tell of it; allocators of the
//! host; and data loaders' shared memory.
//!
//! | wording | from |
//! |---|---|
//! | `Out of memory: Kill process` until 5.2, `Killed process` and `oom-kill:constraint=` since | Linux 4.19 to 6.12, mm/oom_kill.c |
//! | `Memory cgroup out of memory: Killed process` | the same, for a control group |
//! | `oom-kill event(s) in step`, `oom_kill event in StepId=`, `task 0: Out Of Memory`, `OUT_OF_MEMORY` | Slurm 18.08 to 24.05, src/slurmd/slurmstepd, srun |
//! | `TERM_MEMLIMIT`; `PBS: job killed: mem` | LSF 10.1; OpenPBS 23 |
//! | `OOMKilled` | Kubernetes 1.20 to 1.31 |
//! | `running low on memory` | Ray 2.2 to 2.40 |
//! | `Signal 9 (SIGKILL)`, `Signal 7 (SIGBUS)` | PyTorch 1.9 to 2.8, torch/distributed/elastic |
//! | `DefaultCPUAllocator: … you tried to allocate N bytes` | PyTorch 1.0 to 2.8, c10/core/impl/alloc_cpu.cpp |
//! | `Unexpected bus error encountered in worker`, `is killed by signal`, `out of shared memory`, `unable to mmap N bytes from file </torch_…>` | PyTorch 0.4 to 2.8, torch/utils/data/_utils/signal_handling.py, aten/src/ATen/MapAllocator.cpp |
//! | `Unable to allocate N for an array with shape` | NumPy 1.18 to 2.3, numpy/_core/_exceptions.py; without N in 1.17 |
//! | `[Errno 12]`, `MemoryError` | CPython 3 |
//! | `Error while creating shared memory segment` | NCCL 2.4 to 2.27, src/misc/shmutils.cc |
//! | `killed due to memory pressure (OOM)` | Ray 2.2 to 2.40, src/ray/raylet/node_manager.cc |
//! | `The node was low on resource: memory` | Kubernetes 1.11 to 1.31, pkg/kubelet/eviction/helpers.go |
//! | `Container killed due to memory usage`; `has gone over memory limit of` | Amazon ECS and Batch; HTCondor 8 to 23, condor_starter |
//! | `Container killed by YARN for exceeding memory limits`; `C error: out of memory` | Spark 1.3 to 3.5; pandas 0.19 to 2.3 |
//! | `Killed … due to memory pressure for` | systemd 248 to 257, src/oom/oomd-manager.c |
//! | `One of the subprocesses has abruptly died`; `A process in the process pool was terminated abruptly` | datasets 2 to 4, py_utils.py; CPython 3, concurrent/futures/process.py |
//! | `SIGKILL(-9)`; `memory allocation of N bytes failed` | joblib 0.12 to 1.4 (loky); Rust 1, library/std/src/alloc.rs |

use super::{Family, is_talk};
use crate::line::has;
use crate::message::{BUS_ERROR, Kind, Message, WORKERS_BUS_ERROR};
use crate::size::{after, count_after};
use memfit_graph::Bytes;

pub(super) const FAMILY: Family = Family {
    needles: &[
        "DefaultCPUAllocator",
        "not enough memory: you tried to allocate",
        "Unable to allocate",
        "MemoryError",
        "std::bad_alloc",
        "Cannot allocate memory",
        "ut of memory: Kill",
        "oom-kill",
        "oom_kill",
        "OOMKilled",
        "Killed",
        "SIGBUS",
        "OOM killer",
        "TERM_MEMLIMIT",
        "PBS: job killed: mem",
        "earlyoom",
        "SIGKILL",
        "signal 9",
        "Exceeded job memory limit",
        "Exceeded step memory limit",
        "is killed by signal",
        "out of shared memory",
        "insufficient shared memory (shm)",
        "unable to open shared memory object",
        "running low on memory",
        "exceeds 10% of free system memory",
        "using all available RAM",
        "unable to mmap",
        "unable to write to file </torch_",
        "No space left on device: '/torch_",
        ": Out Of Memory",
        "OUT_OF_ME",
        "zsh: killed",
        "] Error 137",
        "Signals.SIGKILL: 9",
        "The paging file is too small",
        "low on resource: memory",
        "killed due to memory pressure (OOM)",
        "due to memory pressure for /",
        "tried to allocate more memory than is available",
        "Container killed due to memory usage",
        "memory limit of",
        "killed by YARN for exceeding memory limits",
        "C error: out of memory",
        "memory allocation of",
        "SIGKILL(-9)",
        "creating shared memory segment",
        "has abruptly died",
        "was terminated abruptly while the future",
    ],
    after: None,
    parse,
    more: &[],
    follow: super::nothing,
    names: &["host"],
};

fn parse(line: &str) -> Option<Message> {
    let new = |kind, detail: &str| {
        let mut message = Message::new("host", kind);
        message.detail = (!detail.is_empty()).then(|| detail.to_owned());
        Some(message)
    };
    let has = |needle: &str| has(line, needle);
    if has("DefaultCPUAllocator") || has("not enough memory: you tried to allocate") {
        let mut message = new(Kind::HostAllocation, "")?;
        message.requested = count_after(line, "tried to allocate");
        return Some(message);
    }
    if has("Unable to allocate") && has("array") {
        let mut message = new(Kind::HostAllocation, "NumPy")?;
        message.requested = after(line, "Unable to allocate");
        message.shape =
            super::between(line, "shape (", ")").map(|s| s.trim_end_matches(',')).and_then(super::dims);
        message.dtype = line.split("data type ").nth(1).map(|d| d.trim().to_owned());
        // NumPy before 1.18 names no size.
        message.requested = message.requested.or_else(|| array(&message));
        return Some(message);
    }
    // Files of torch/lib/libshm and aten/src/ATen/MapAllocator.cpp; too many of them is no want of memory.
    let file =
        has("/torch_") && (has("unable to mmap") || has("unable to write to file") || has("No space left"));
    let shared = has("out of shared memory") || has("unable to open shared memory object");
    let shared = shared || has("Error while creating shared memory segment");
    if (shared || file || has("Bus error") && has("worker")) && !has("Too many open files") {
        return new(Kind::SharedMemory, "");
    }
    if has("bus error encountered in worker") && !is_talk(line) {
        return new(Kind::SharedMemory, WORKERS_BUS_ERROR);
    }
    if has("ut of memory: Kill") {
        let mut message = new(Kind::HostKill, "the kernel")?;
        message.allocated = after(line, "anon-rss:");
        if has("emory cgroup") {
            message.detail = Some("its control group".into());
        }
        return Some(message);
    }
    // LSF, PBS.
    if has("TERM_MEMLIMIT") || has("PBS: job killed: mem") {
        return new(Kind::HostKill, "the batch system");
    }
    // Slurm's srun and sacct.
    if has("srun: error") && has(": Out Of Memory") || state(line) && !is_talk(line) {
        return new(Kind::HostKill, "the batch system or the kernel");
    }
    if has("using all available RAM") && has("crashed") {
        return new(Kind::HostKill, "Colab");
    }
    if has("The paging file is too small") {
        return new(Kind::HostAllocation, "Windows");
    }
    if has("has been killed by the OOM killer") || has("earlyoom") && has("sending SIG") && has("to process")
    {
        return new(Kind::HostKill, if has("earlyoom") { "earlyoom" } else { "the kernel" });
    }
    if has("is killed by signal: Killed") {
        return new(Kind::HostKill, "a data loader's worker");
    }
    let limit = has("Exceeded job memory limit") || has("Exceeded step memory limit");
    if has("oom-kill")
        || has("oom_kill") && has("event")
        || limit
        || has("has gone over") && has("memory limit of")
    {
        return new(Kind::HostKill, "the batch system or the kernel");
    }
    if is_status(line, "OOMKilled") && !is_talk(line) && !has("false") {
        return new(Kind::HostKill, "Kubernetes");
    }
    if has("running low on memory") && has("killed")
        || has(" killed due to memory pressure (OOM)") && !has(" 0 Workers (tasks / actors) killed")
    {
        return new(Kind::HostKill, "Ray");
    }
    if has("low on resource: memory") {
        return new(Kind::HostKill, "Kubernetes, since its node had none left");
    }
    if has("Container killed by YARN for exceeding memory limits") {
        return new(Kind::HostKill, "YARN");
    }
    if has("Error tokenizing data. C error: out of memory") {
        return new(Kind::HostAllocation, "pandas");
    }
    if has("Container killed due to memory usage") {
        return new(Kind::HostKill, "the service that runs the container");
    }
    if has("Killed /") && has("due to memory pressure for /") {
        return new(Kind::HostKill, "systemd-oomd");
    }
    if has("notebook tried to allocate more memory than is available") {
        return new(Kind::HostKill, "Kaggle");
    }
    // Rust's `handle_alloc_error` (library/std/src/alloc.rs), as tokenizers and Polars end.
    if has("memory allocation of ") && has(" bytes failed") {
        let mut message = new(Kind::HostAllocation, "")?;
        message.requested = count_after(line, "memory allocation of");
        return Some(message);
    }
    if has("java.lang.OutOfMemoryError") && !is_talk(line) {
        return new(Kind::HostAllocation, "the Java heap");
    }
    // In a page of a forum it stands in bold.
    let trimmed = line.trim_end().trim_matches('*');
    // A shell's `Killed`, alone or after the line and the process.
    let shell = trimmed == "Killed"
        || trimmed.starts_with("zsh: killed ")
        || trimmed.split("Killed").next().is_some_and(|head| trimmed.len() > head.len() && shell_job(head));
    let signal = has("Signal 9 (SIGKILL)")
        || has("terminated by signal SIGKILL")
        || has("Signals.SIGKILL: 9")
        || has("SIGKILL(-9)")
        || has("has abruptly died")
        || has("was terminated abruptly while the future")
        || has("*** [") && has("] Error 137");
    if shell || signal && !is_talk(line) {
        return new(Kind::HostKill, "signal 9");
    }
    if has("Signal 7 (SIGBUS)") && !is_talk(line) {
        return new(Kind::SharedMemory, BUS_ERROR);
    }
    let raised = ["std::bad_alloc", "Cannot allocate memory"].iter().any(|words| {
        let told = ["what():", "Error", "error", ": Cannot allocate memory"];
        has(words) && (line.trim_start().starts_with(words) || told.iter().any(|word| has(word)))
    });
    let raised = raised || is_raised(line, "MemoryError");
    let device = has("OutOfMemoryError") || has("cuda") || has("CUDA");
    (raised && !device && !is_talk(line)).then(|| new(Kind::HostAllocation, "")).flatten()
}

/// Whether a line ends in an exception's name or goes on with what it says: `numpy.core._exceptions._ArrayMemoryError: …`, but not
/// the name of a test or a sentence.
fn is_raised(line: &str, exception: &str) -> bool {
    line.match_indices(exception).any(|(at, name)| {
        let rest = &line[at + name.len()..];
        rest.trim_end().is_empty() || rest.starts_with([':', '(', '"', '\'', ')', ']'])
    })
}

/// Whether a word stands as a status, not in the middle of a sentence: `OOMKilled pods`.
fn is_status(line: &str, status: &str) -> bool {
    line.match_indices(status).any(|(at, _)| {
        let next = line[at + status.len()..].strip_prefix(' ').and_then(|rest| rest.chars().next());
        line[..at].trim_end().ends_with(':') || !next.is_some_and(char::is_lowercase)
    })
}

/// Slurm's state of a job, a word of its own: `OUT_OF_MEMORY`, which sacct shortens to `OUT_OF_ME+`.
fn state(line: &str) -> bool {
    let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    has(line, "OUT_OF_ME") && words.any(|word| word == "OUT_OF_MEMORY" || word == "OUT_OF_ME")
}

/// Bytes of NumPy's array.
fn array(message: &Message) -> Option<Bytes> {
    let dtype = message.dtype.as_deref()?;
    let bits: u64 = match dtype.trim_start_matches(|c: char| c.is_ascii_alphabetic()) {
        "" if dtype == "bool" => 8,
        bits => bits.parse().ok()?,
    };
    let elements = message.shape.as_ref()?.iter().try_fold(1u64, |n, d| n.checked_mul(*d))?;
    elements.checked_mul(bits / 8).map(Bytes)
}

/// `run.sh: line 12: 12345 ` or `12345 ` or `[1]+  `: what a shell writes before `Killed`.
fn shell_job(head: &str) -> bool {
    let head = head.trim();
    head.contains(": line ") && head.ends_with(|c: char| c.is_ascii_digit())
        || head.starts_with("make") && head.contains("*** [") && head.ends_with(']')
        || head.starts_with('[') && head.len() < 6
}
