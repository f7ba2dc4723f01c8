//! TensorFlow 1.0 to 2.19 and Keras 2 and 3 on it: core/framework/op_kernel.cc and core/kernels (`OOM when allocating tensor`), core/common_runtime/bfc_allocator.cc
//! (`ran out of memory trying to allocate`, its dump and statistics), gpu_cudamallocasync_allocator.cc, stream_executor's
//! cuda_driver.cc (`failed to allocate … from device`), gpu_device.cc (`Created device … with N MB memory`).
//!
//! `The caller indicates that this is not a failure` is written when a kernel asked for a large workspace and goes on with a
//! smaller one, and `failed to allocate … from device` when the allocator tries to grow and then tries less: neither is a failure.

use super::{Family, between, dims};
use crate::message::{FOUND, Kind, Message};
use crate::size::{after, count, count_after, size};
use memchr::memmem::Finder;
use memfit_graph::Bytes;
use std::sync::OnceLock;

pub(super) const FAMILY: Family = Family {
    needles: &[
        "OOM when allocating tensor",
        "an out of memory trying to allocate",
        "from device: CUDA_ERROR_OUT_OF_MEMORY",
        "from device: RESOURCE_EXHAUSTED",
        "cuMemAllocAsync failed to allocate",
        "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY",
        "failed. Status: out of memory",
        "freeMemory: ",
        "Free memory: ",
        "Total memory: ",
        "Created device /job",
        "Created TensorFlow device",
        "could not allocate pinned host memory",
        "failed to alloc ",
        "ResourceExhaustedError",
        "Dst tensor is not initialized",
    ],
    after: None,
    parse,
    more: &[
        "Limit:",
        "InUse:",
        "Total bytes in pool:",
        "Free memory/Total memory:",
        "{{node ",
        "[[node ",
        "[[Node: ",
        "[Op:",
    ],
    follow,
    names: &["tensorflow"],
};

fn parse(line: &str) -> Option<Message> {
    let new = |kind| Message::new("tensorflow", kind);
    if line.contains("OOM when allocating tensor") {
        let mut message = new(Kind::DeviceAllocation);
        message.shape =
            between(line, "shape[", "]").or_else(|| between(line, "of shape [", "]")).and_then(dims);
        let word = |text: &str| {
            text.split([' ', ',', '\n']).next().unwrap_or("").trim_matches(['.', '"']).to_owned()
        };
        message.dtype = line.split("and type ").nth(1).map(word);
        message.device = line.split(" on ").nth(1).map(word).filter(|d| d.starts_with('/'));
        if message.device.as_deref().is_some_and(|d| d.contains("CPU")) || line.contains("by allocator cpu") {
            message.kind = Kind::HostAllocation;
        }
        message.node = node(line);
        message.requested = bytes(&message);
        return Some(message);
    }
    if line.contains("an out of memory trying to allocate") {
        let harmless = ["not a failure", "may mean that there could be performance gains"];
        if harmless.iter().any(|words| line.contains(words)) {
            return None;
        }
        let mut message = new(Kind::DeviceAllocation);
        // JAX builds the same allocator from XLA's tree, and asks it for all that a program needs.
        if ["external/xla/", "external/org_tensorflow/"].iter().any(|tree| line.contains(tree)) {
            message.family = "jax";
        }
        if line.contains("(cpu") || line.contains("host_bfc") {
            message.kind = Kind::HostAllocation;
        }
        message.requested = after(line, "trying to allocate");
        message.node = line.split("requested by op ").nth(1).map(|n| n.trim().to_owned());
        return Some(message);
    }
    if line.contains("cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY") {
        let mut message = new(Kind::Start);
        message.capacity = count_after(line, "total memory reported:");
        return Some(message);
    }
    // `cudaSetDevice() on GPU:0 failed`, `CUDA runtime implicit initialization on GPU:0 failed` (common_runtime/gpu/gpu_device.cc).
    if line.contains("failed. Status: out of memory") {
        return Some(new(Kind::Start));
    }
    if line.contains("cuMemAllocAsync failed to allocate") {
        let mut message = new(Kind::DeviceAllocation);
        message.detail = Some("cudaMallocAsync".into());
        message.requested = count_after(line, "failed to allocate");
        return Some(message);
    }
    if line.contains("from device: CUDA_ERROR_OUT_OF_MEMORY")
        || line.contains("from device: RESOURCE_EXHAUSTED")
    {
        let mut message = new(Kind::Retry);
        message.detail = Some("the driver gave less than was asked".into());
        message.requested =
            between(line, "(", " bytes)").and_then(count).or_else(|| after(line, "failed to allocate"));
        return Some(message);
    }
    if line.contains("Created device /job") || line.contains("Created TensorFlow device") {
        let mut message = new(Kind::Taken);
        message.limit = line.split(" with ").nth(1).and_then(size);
        message.device = between(line, "name: ", ",").map(str::to_owned);
        return Some(message);
    }
    // What it finds when it starts, until 1.14; in 1.0 on two lines (gpu_device.cc).
    if line.contains("freeMemory: ") || line.contains("Free memory: ") || line.contains("Total memory: ") {
        let mut message = new(Kind::Taken);
        message.detail = Some(FOUND.into());
        message.capacity = after(line, "totalMemory:").or_else(|| after(line, "Total memory:"));
        message.free = after(line, "freeMemory:").or_else(|| after(line, "Free memory:"));
        return Some(message);
    }
    if line.contains("could not allocate pinned host memory")
        || (line.contains("failed to alloc ") && line.contains("on host"))
    {
        return Some(new(Kind::HostAllocation));
    }
    if line.contains("Dst tensor is not initialized") {
        let mut message = new(Kind::DeviceAllocation);
        message.detail = Some("a tensor could not be copied to the device".into());
        return Some(message);
    }
    // The exception alone, where the message stands elsewhere: `ResourceExhaustedError: Graph execution error:`.
    let at = line.find("ResourceExhaustedError")?;
    let rest = line[at..].trim_end();
    let raised = rest.contains(": ") || rest.ends_with(':');
    (raised && !super::is_talk(line)).then(|| new(Kind::DeviceAllocation))
}

/// The node of `[[{{node model/dense/MatMul}}]]` or `[[node gradients/… (defined at …)]]`, or of `[Op:MatMul]`.
fn node(line: &str) -> Option<String> {
    between(line, "{{node ", "}}")
        .or_else(|| between(line, "[[node ", "]]").and_then(|n| n.split([' ', '=']).next()))
        .or_else(|| between(line, "[[Node: ", " = "))
        .or_else(|| between(line, "[Op:", "]").filter(|op| !op.starts_with("__inference")))
        .map(str::to_owned)
}

/// Bytes of the tensor that a message names.
fn bytes(message: &Message) -> Option<Bytes> {
    let each = match message.dtype.as_deref()? {
        "double" | "int64" | "uint64" | "complex64" => 8,
        "float" | "int32" | "uint32" => 4,
        "half" | "bfloat16" | "int16" | "uint16" => 2,
        "bool" | "int8" | "uint8" => 1,
        "complex128" => 16,
        _ => return None,
    };
    let elements = message.shape.as_ref()?.iter().try_fold(1u64, |n, d| n.checked_mul(*d))?;
    elements.checked_mul(each).map(Bytes)
}

/// The allocator's statistics, its free chunks, and the node where it stands on a line of its own.
fn follow(m: &mut Message, line: &str) {
    if !m.kind.is_failure() {
        return;
    }
    let text = line.rsplit("] ").next().unwrap_or(line).trim();
    let value = |key: &str| text.strip_prefix(key).and_then(|rest| count(rest.trim_start_matches(':')));
    let set = |slot: &mut Option<Bytes>, value: Option<Bytes>| *slot = slot.or(value);
    set(&mut m.limit, value("Limit:").filter(|b| b.0 > 0));
    set(&mut m.allocated, value("InUse:"));
    if let Some(pool) = text.strip_prefix("Total bytes in pool:").and_then(count) {
        set(&mut m.reserved, Some(pool));
        set(&mut m.limit, count_after(text, "memory_limit_:").filter(|b| b.0 > 0));
    }
    if let Some((free, total)) =
        text.split_once("Free memory/Total memory:").and_then(|(_, r)| r.split_once('/'))
    {
        set(&mut m.free, count(free));
        set(&mut m.capacity, count(total));
    }
    if m.node.is_none() {
        m.node = node(line);
    }
}

/// A chunk of an allocator's dump, of which there may be millions: its size where it is free.
pub(crate) fn dumped(line: &[u8]) -> Option<Option<Bytes>> {
    static SIZE: OnceLock<Finder<'static>> = OnceLock::new();
    let at = SIZE.get_or_init(|| Finder::new(" of size ")).find(line)?;
    let head = &line[..at];
    let address = head.iter().rposition(|b| *b == b' ')?;
    let head = head[..address].strip_suffix(b" at")?.trim_ascii_end();
    let size = || std::str::from_utf8(&line[at + 9..]).ok().and_then(count);
    let free = head.ends_with(b"Free");
    (free || head.ends_with(b"InUse") || head.ends_with(b"Chunk")).then(|| size().filter(|_| free))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tensor_and_its_node() {
        let m = parse("ResourceExhaustedError: OOM when allocating tensor with shape[64,512,56,56] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [[{{node gradients/conv_grad/Conv2DBackpropInput}}]]").unwrap();
        assert_eq!(m.shape.as_deref(), Some(&[64, 512, 56, 56][..]));
        assert_eq!(m.requested, Some(Bytes(64 * 512 * 56 * 56 * 4)));
        assert_eq!(m.node.as_deref(), Some("gradients/conv_grad/Conv2DBackpropInput"));
        assert_eq!(m.device.as_deref(), Some("/job:localhost/replica:0/task:0/device:GPU:0"));
    }

    #[test]
    fn what_is_no_failure() {
        let warning = "W tensorflow/core/common_runtime/bfc_allocator.cc:245] Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.54GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains if more memory were available.";
        assert!(parse(warning).is_none());
    }
}
