//! The host's memory: the kernel's out-of-memory killer (mm/oom_kill.c), control groups, SLURM, Kubernetes and shells that tell of
//! it; allocators of the host (c10/core/impl/alloc_cpu.cpp, NumPy, Python); and data loaders' shared memory
//! (torch/utils/data/_utils/signal_handling.py).

use super::{Family, is_talk};
use crate::message::{Kind, Message};
use crate::size::{after, count_after};

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
        return Some(message);
    }
    let shared = has("out of shared memory") || has("unable to open shared memory object");
    if shared || has("Bus error") && has("worker") {
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
        || trimmed.split("Killed").next().is_some_and(|head| trimmed.len() > head.len() && shell_job(head));
    let signal = has("exit code 137")
        || has("exited with code 137")
        || has("exit status 137")
        || has("exitcode: -9")
        || has("exitcode  : -9")
        || has("Signal 9 (SIGKILL)")
        || has("terminated by signal SIGKILL");
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

/// `run.sh: line 12: 12345 ` or `12345 ` or `[1]+  `: what a shell writes before `Killed`.
fn shell_job(head: &str) -> bool {
    let head = head.trim();
    head.contains(": line ") && head.ends_with(|c: char| c.is_ascii_digit())
        || head.starts_with('[') && head.len() < 6
}
