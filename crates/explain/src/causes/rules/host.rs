//! The host's own memory.

use super::found;
use crate::Log;
use crate::causes::{Cause, Confidence, Finding};
use crate::message::{BUS_ERROR, Kind, Message, WORKERS_BUS_ERROR};

pub(super) fn host_memory(log: &Log) -> Option<Finding> {
    let pins = || log.context.frames.iter().any(|f| f == "pin_memory");
    if let Some(m) = log.failure().filter(|m| m.kind == Kind::Driver && pins()) {
        let text = "Memory of the host that the driver pins for copies could not be had.";
        return found(Cause::HostMemory, Confidence::Likely, text.into(), vec![m.line]);
    }
    let first = log.failure().filter(|m| matches!(m.kind, Kind::HostAllocation | Kind::HostKill))?;
    // What only tells of the signal gives way to who says why it was sent.
    let kills = |m: &&Message| m.kind == Kind::HostKill && m.detail.as_deref() != Some("signal 9");
    let named = (first.kind == Kind::HostKill).then(|| log.messages.iter().find(kills)).flatten();
    let m = named.filter(|m| m.line >= first.line).unwrap_or(first);
    let (sure, text) = match (m.kind, m.requested, m.detail.as_deref()) {
        (Kind::HostKill, _, Some("signal 9")) => (
            Confidence::Possible,
            "The process was ended by signal 9 without a message of its own, as the kernel does when memory runs out. `dmesg` or the batch system's report tells for sure.".to_owned(),
        ),
        (Kind::HostKill, _, Some(who)) => (Confidence::Certain, format!("The process was ended for its use of the host's memory, by {who}.")),
        (_, Some(requested), _) => (Confidence::Certain, format!("{requested} of the host's memory were asked for and not had.")),
        _ => (Confidence::Likely, "An allocation of the host's memory failed.".to_owned()),
    };
    found(Cause::HostMemory, sure, text, vec![first.line, m.line])
}

pub(super) fn shared_memory(log: &Log) -> Option<Finding> {
    // What names the shared memory counts for more than a signal that a full one sends.
    let sure = |m: &Message| match m.detail.as_deref() {
        Some(BUS_ERROR) => Confidence::Possible,
        Some(WORKERS_BUS_ERROR) => Confidence::Likely,
        _ => Confidence::Certain,
    };
    let m = log.messages.iter().filter(|m| m.kind == Kind::SharedMemory).min_by_key(|m| sure(m))?;
    let text = match sure(m) {
        Confidence::Certain => {
            "Workers hand batches over in /dev/shm, which is full; containers have 64 MiB of it by default."
        }
        _ => {
            "A process was ended by a bus error, as when /dev/shm is full, where processes hand data over; containers have 64 MiB of it by default."
        }
    };
    found(Cause::SharedMemory, sure(m), text.into(), vec![m.line])
}
