//! The host's memory: the kernel's out-of-memory killer, batch systems, containers and shells that tell of it; allocators of the
//! host; and data loaders' shared memory.
//!
//! | wording | from |
//! |---|---|
//! | `Out of memory: Kill process` until 5.2, `Killed process` and `oom-kill:constraint=` since | Linux 4.19 to 6.12, mm/oom_kill.c |
//! | `Memory cgroup out of memory: Killed process` | the same, for a control group |
//! | `oom-kill event(s) in step`, `oom_kill event in StepId=`, `task 0: Out Of Memory`, `OUT_OF_MEMORY` | Slurm 18.08 to 24.05, src/slurmd/slurmstepd, srun |
//! | `TERM_MEMLIMIT`; `PBS: job killed: mem` | LSF 10.1; OpenPBS 23 |
//! | `OOMKilled`, `exited with code 137` | Kubernetes 1.20 to 1.31, Docker Compose 1 and 2 |
//! | `running low on memory` | Ray 2.2 to 2.40 |
//! | `exitcode: -9`, `Signal 9 (SIGKILL)`; `exits with return code = -9` | PyTorch 1.9 to 2.8, torch/distributed/elastic; DeepSpeed 0.3 to 0.16 |
//! | `DefaultCPUAllocator: … you tried to allocate N bytes` | PyTorch 1.0 to 2.8, c10/core/impl/alloc_cpu.cpp |
//! | `is killed by signal`, `out of shared memory`, `unable to mmap N bytes from file </torch_…>` | PyTorch 0.4 to 2.8, torch/utils/data/_utils/signal_handling.py, aten/src/ATen/MapAllocator.cpp |
//! | `Unable to allocate N for an array with shape` | NumPy 1.18 to 2.3, numpy/_core/_exceptions.py; without N in 1.17 |
//! | `[Errno 12]`, `MemoryError` | CPython 3 |

use super::{Family, is_talk};
use crate::message::{Kind, Message};
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
        "exit code 137",
        "exited with code 137",
        "exit status 137",
        "OOM killer",
        "TERM_MEMLIMIT",
        "PBS: job killed: mem",
        "earlyoom",
        "exitcode: -9",
        "exitcode  : -9",
        "SIGKILL",
        "signal 9",
        "Exceeded job memory limit",
        "is killed by signal",
        "out of shared memory",
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
        "return code = -9",
        "The paging file is too small",
    ],
    parse,
    follow: super::nothing,
    names: &["host"],
};

fn parse(line: &str) -> Option<Message> {
    let new = |kind, detail: &str| {
        let mut message = Message::new("host", kind);
        message.detail = (!detail.is_empty()).then(|| detail.to_owned());
        Some(message)
    };
    let has = |needle: &str| line.contains(needle);
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
    if (shared || file || has("Bus error") && has("worker")) && !has("Too many open files") {
        return new(Kind::SharedMemory, "");
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
    if has("oom-kill") || has("oom_kill") && has("event") || has("Exceeded job memory limit") {
        return new(Kind::HostKill, "the batch system or the kernel");
    }
    if has("OOMKilled") && !is_talk(line) && !has("false") {
        return new(Kind::HostKill, "Kubernetes");
    }
    if has("running low on memory") && has("killed") {
        return new(Kind::HostKill, "Ray");
    }
    let trimmed = line.trim_end();
    // A shell's `Killed`, alone or after the line and the process.
    let shell = trimmed == "Killed"
        || trimmed.starts_with("zsh: killed ")
        || trimmed.split("Killed").next().is_some_and(|head| trimmed.len() > head.len() && shell_job(head));
    let signal = has("exit code 137")
        || has("exited with code 137")
        || has("exit status 137")
        || has("exitcode: -9")
        || has("exitcode  : -9")
        || has("Signal 9 (SIGKILL)")
        || has("terminated by signal SIGKILL")
        || has("Signals.SIGKILL: 9")
        || has("return code = -9")
        || has("*** [") && has("] Error 137");
    if shell || signal && !is_talk(line) {
        return new(Kind::HostKill, "signal 9");
    }
    let error =
        ["MemoryError", "std::bad_alloc", "[Errno 12] Cannot allocate memory", "Cannot allocate memory"];
    let raised = error.iter().find(|e| has(e))?;
    let start = line.trim_start().starts_with(raised)
        || has(": MemoryError")
        || has("_ArrayMemoryError")
        || has("what():")
        || has("Error")
        || has("error");
    let device = has("OutOfMemoryError") || has("cuda") || has("CUDA");
    (start && !device && !is_talk(line)).then(|| new(Kind::HostAllocation, "")).flatten()
}

/// Slurm's state of a job, a word of its own: `OUT_OF_MEMORY`, which sacct shortens to `OUT_OF_ME+`.
fn state(line: &str) -> bool {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .any(|word| word == "OUT_OF_MEMORY" || word == "OUT_OF_ME")
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
