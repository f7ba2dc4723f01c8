//! XLA and JAX: the allocator's refusal, the table of buffers that follows it, and the TPU compiler's.
//!
//! | wording | from |
//! |---|---|
//! | `Resource exhausted: Out of memory while trying to allocate N bytes` | jaxlib 0.1, xla/pjrt |
//! | `RESOURCE_EXHAUSTED: Out of memory while trying to allocate N bytes.`, `BufferAssignment OOM Debugging.` | jaxlib 0.3 to 0.5, xla/service/gpu and buffer_assignment.cc |
//! | `RESOURCE_EXHAUSTED: Out of memory allocating N bytes`, `Failed to allocate request for N` | jaxlib 0.2 to 0.7, xla/pjrt/gpu, tsl/framework/bfc_allocator.cc |
//! | `Ran out of memory in memory space hbm. Used N of N` | libtpu 0.1 of 2022 to 2025 |

use super::Family;
use crate::message::{Kind, Message};
use crate::size::{after, count_after, size};

pub(super) const FAMILY: Family = Family {
    needles: &[
        "RESOURCE_EXHAUSTED",
        "Ran out of memory in memory space",
        "Resource exhausted: Out of memory",
    ],
    after: None,
    parse,
    more: &["total allocation:", "preallocated temp allocation:", "Operator: op_name", "Shape: "],
    follow,
    names: &["jax"],
};

fn parse(line: &str) -> Option<Message> {
    let mut message = Message::new("jax", Kind::DeviceAllocation);
    if line.contains("Ran out of memory in memory space") {
        message.device = line
            .split("memory space ")
            .nth(1)
            .map(|s| s.chars().take_while(char::is_ascii_alphanumeric).collect());
        message.in_use = after(line, "Used");
        message.capacity = line.split("Used ").nth(1).and_then(|used| after(used, " of "));
        return Some(message);
    }
    let ran_out = line.contains("Out of memory")
        || line.contains("out of memory")
        || line.contains("Failed to allocate")
        || line.contains("Error allocating device buffer");
    // A convolution's algorithm whose scratch memory cannot be had is not taken (gpu_conv_algorithm_picker.cc).
    if !ran_out || line.contains("autotun") || line.contains("for scratch") {
        return None;
    }
    message.requested = [
        "while trying to allocate",
        "Out of memory allocating",
        "Failed to allocate request for",
        "trying to allocate",
        "Attempting to allocate",
    ]
    .iter()
    .find_map(|key| after(line, key).or_else(|| count_after(line, key)));
    // The TPU runtime's (openxla.org/xla/errors/error_0100).
    message.free = after(line, "There are");
    Some(message)
}

/// The first of the peak buffers, and what the program needs in all.
fn follow(m: &mut Message, line: &str) {
    let text = line.trim();
    let value = |key: &str| text.strip_prefix(key).and_then(size);
    m.in_use = m.in_use.or(value("total allocation:"));
    m.allocated = m.allocated.or(value("preallocated temp allocation:"));
    if m.node.is_none()
        && let Some(operator) = text.strip_prefix("Operator: op_name=\"")
    {
        m.node = operator.split('"').next().map(str::to_owned);
    }
    if m.shape.is_none()
        && let Some(shape) = text.strip_prefix("Shape: ")
    {
        m.shape = super::between(shape, "[", "]").and_then(super::dims);
        m.dtype = shape.split('[').next().map(str::to_owned);
    }
}
