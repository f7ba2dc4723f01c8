//! PyTorch: c10/cuda/CUDACachingAllocator.cpp in every wording since 1.0, CUDAMallocAsyncAllocator.cpp, ROCm's and XPU's the same
//! with their own names, and ATen/mps/MPSAllocator.mm.
//!
//! | since | wording |
//! |---|---|
//! | 0.3 | `cuda runtime error (2) : out of memory at …/THCStorage.cu:58` |
//! | 1.0 | `CUDA out of memory. Tried to allocate N (GPU 0; N total capacity; N already allocated; N free; N cached)` |
//! | 1.4 | `…; N reserved in total by PyTorch)`, 1.8 `N allowed;` where a fraction is set, 1.10 the hint at fragmentation |
//! | 2.1 | `… GPU 0 has a total capacity of N of which N is free. Including non-PyTorch memory, this process has N memory in use. …` |

use super::{Family, is_talk};
use crate::line::place;
use crate::message::{ALLOCATOR, Kind, Message, Process};
use crate::size::{after, before, size};
use memfit_graph::Bytes;

pub(super) const FAMILY: Family = Family {
    needles: &[
        "out of memory. Tried to allocate",
        "would exceed allowed memory. (out of memory)",
        "CUDA out of memory occurred when",
        "backend out of memory (",
        "cuda runtime error (2)",
        "error=2 : out of memory",
        "OutOfMemoryError",
        "CUDA driver error: out of memory",
        "kIOGPUCommandBufferCallbackErrorOutOfMemory",
        "NVML_SUCCESS == r INTERNAL ASSERT",
    ],
    after: None,
    parse,
    more: &[
        "total capac",
        "of which",
        "this process has",
        "allowed; ",
        "Of the allocated memory",
        "is reserved by PyTorch but unallocated",
        "Process ",
        "Currently allocated",
        "Requested",
        "Device limit",
        "Free (according to CUDA)",
    ],
    follow,
    names: &["pytorch"],
};

fn parse(line: &str) -> Option<Message> {
    if line.contains("out of memory. Tried to allocate") {
        let message = caching(line);
        // A sentence may quote it; a message that is cut off has no number either.
        return (message.requested.is_some() || !is_talk(line)).then_some(message);
    }
    if line.contains("backend out of memory (") {
        return Some(metal(line));
    }
    // vLLM raises it from the allocator's own (vllm/v1/worker/gpu_model_runner.py).
    if line.contains("CUDA out of memory occurred when") {
        return (!is_talk(line)).then(|| Message::new("pytorch", Kind::DeviceAllocation));
    }
    if line.contains("would exceed allowed memory. (out of memory)") {
        let mut message = Message::new("pytorch", Kind::DeviceAllocation);
        follow(&mut message, line);
        message.detail = Some("cudaMallocAsync".into());
        return Some(message);
    }
    let old =
        line.contains("cuda runtime error (2) : out of memory") || line.contains("error=2 : out of memory");
    if old {
        // THCGeneral.cpp makes the context; the other files allocate.
        let kind = if line.contains("THCGeneral") { Kind::Start } else { Kind::Driver };
        let mut message = Message::new("pytorch", kind);
        message.detail = line.contains("THCStorage").then(|| ALLOCATOR.to_owned());
        return Some(message);
    }
    // C10_CUDA_DRIVER_CHECK (c10/cuda/driver_api.h): expandable segments map memory by the driver.
    if line.contains("CUDA driver error: out of memory") && !is_talk(line) {
        return Some(Message::new("pytorch", Kind::Driver));
    }
    // Metal's own words, which PyTorch and MLX pass on.
    if line.contains("kIOGPUCommandBufferCallbackErrorOutOfMemory") {
        let mut message = Message::new("pytorch", Kind::Driver);
        message.detail = Some("Metal".into());
        return Some(message);
    }
    if line.contains("NVML_SUCCESS == r INTERNAL ASSERT") {
        let mut message = Message::new("pytorch", Kind::DeviceAllocation);
        message.detail = Some("reported without numbers, because NVML failed".into());
        return Some(message);
    }
    named(line)
}

/// `torch.cuda.OutOfMemoryError: Allocation on device`, as a library on top shortens it.
fn named(line: &str) -> Option<Message> {
    let starts = ["torch.cuda.OutOfMemoryError:", "torch.OutOfMemoryError:", "torch._C._OutOfMemoryError:"];
    let rest = starts.iter().find_map(|s| line.find(s).map(|at| (at, &line[at + s.len()..])));
    let (at, _) = rest?;
    let quoted = line[..at].ends_with('`');
    (!quoted && !is_talk(&line[..at]) && !line[..at].contains("except"))
        .then(|| Message::new("pytorch", Kind::DeviceAllocation))
}

fn caching(line: &str) -> Message {
    let mut message = Message::new("pytorch", Kind::DeviceAllocation);
    let backend =
        line[..line.find(" out of memory. Tried").unwrap_or(0)].rsplit([' ', ':']).next().unwrap_or("");
    message.detail = (!matches!(backend, "CUDA" | "")).then(|| backend.to_owned());
    message.requested = after(line, "Tried to allocate");
    if let Some(at) = line.find("(GPU ").or_else(|| line.find(" GPU ")) {
        let device: String = line[at + 5..].chars().take_while(char::is_ascii_digit).collect();
        message.device = Some(format!("GPU {}", device.trim()));
    }
    if line.contains("total capacity;") {
        message.capacity = before(line, "total capacity;");
        message.allocated = before(line, "already allocated");
        message.free = before(line, "free;");
        // Before 1.4 the last number is what is cached beyond the allocated.
        let cached = before(line, "cached").zip(message.allocated).map(|(cached, used)| cached + used);
        message.reserved = before(line, "reserved in total by PyTorch").or(cached);
        message.limit = before(line, "allowed;");
    } else {
        follow(&mut message, line);
    }
    message
}

fn metal(line: &str) -> Message {
    let mut message = Message::new("pytorch", Kind::DeviceAllocation);
    message.detail = Some("MPS".into());
    message.allocated = after(line, "MPS allocated:");
    // The rest of what Metal gave this process: its graphs' scratch memory (`currentAllocatedSize` of the device, which
    // torch.mps.driver_allocated_memory documents).
    message.in_use =
        message.allocated.zip(after(line, "other allocations:")).map(|(own, graphs)| own + graphs);
    message.limit = after(line, "max allowed:");
    message.capacity = message.limit;
    message.requested = after(line, "Tried to allocate");
    message
}

/// The wording of 2.1, which some loggers break over lines, and cudaMallocAsync's, which is several lines.
fn follow(m: &mut Message, line: &str) {
    let set = |slot: &mut Option<Bytes>, value: Option<Bytes>| *slot = slot.or(value);
    for key in ["total capacity of", "total capacty of"] {
        set(&mut m.capacity, after(line, key));
    }
    set(&mut m.free, after(line, "of which"));
    set(&mut m.in_use, after(line, "this process has"));
    set(&mut m.limit, before(line, "allowed;").filter(|_| line.contains("allowed; ")));
    set(&mut m.allocated, after(line, "Of the allocated memory"));
    if m.reserved.is_none() {
        let unallocated = before(line, "is reserved by PyTorch but unallocated");
        m.reserved = unallocated.zip(m.allocated).map(|(unused, used)| unused + used);
    }
    if m.others.is_empty() && (m.in_use.is_none() || line.contains("this process has")) {
        m.others = others(line);
    }
    set(
        &mut m.allocated,
        after(line, "Currently allocated").or_else(|| after(line, "Currently allocated     :")),
    );
    let value =
        |key: &str| line.trim_start().strip_prefix(key).and_then(|r| size(r.trim_start().strip_prefix(':')?));
    set(&mut m.allocated, value("Currently allocated"));
    set(&mut m.requested, value("Requested"));
    set(&mut m.capacity, value("Device limit"));
    set(&mut m.free, value("Free (according to CUDA)"));
    itself(m);
}

/// In a container the driver's number of this process is not the one that it knows itself by, so that the message takes it for
/// another. What holds as much as this one's allocator, and not beside it on the same card, is this one.
fn itself(m: &mut Message) {
    let (Some(capacity), Some(held)) = (m.capacity, m.reserved.or(m.allocated)) else { return };
    if m.in_use.is_none()
        && let Some(at) = m.others.iter().position(|p| p.bytes >= held && p.bytes + held > capacity)
    {
        m.in_use = Some(m.others.remove(at).bytes);
    }
}

/// `Process 1234 has 10.00 GiB memory in use.`, as often as it stands there.
fn others(line: &str) -> Vec<Process> {
    let mut rest = line;
    let mut found = Vec::new();
    while let Some(at) = place(rest, "Process ") {
        rest = &rest[at + 8..];
        let pid: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if let (Ok(pid), Some(bytes)) =
            (pid.parse(), after(rest, " has ").filter(|_| rest.contains("memory in use")))
        {
            found.push(Process { pid, bytes });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_old_and_the_new_wording() {
        let old = parse("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 10.92 GiB total capacity; 6.00 GiB already allocated; 1.50 GiB free; 9.00 GiB reserved in total by PyTorch)").unwrap();
        assert_eq!((old.requested, old.device.as_deref()), (Some(Bytes::mib(2048)), Some("GPU 1")));
        assert_eq!(old.unused(), Some(Bytes::mib(3072)));
        let new = parse("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free. Process 77 has 10.00 GiB memory in use. Including non-PyTorch memory, this process has 12.00 GiB memory in use. Of the allocated memory 9.00 GiB is allocated by PyTorch, and 2.00 GiB is reserved by PyTorch but unallocated.").unwrap();
        assert_eq!(new.others, [Process { pid: 77, bytes: Bytes::mib(10_240) }]);
        assert_eq!((new.in_use, new.reserved), (Some(Bytes::mib(12_288)), Some(Bytes::mib(11_264))));
    }
}
