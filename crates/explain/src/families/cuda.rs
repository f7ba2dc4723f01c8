//! The driver and runtimes: `CUDA error: out of memory`, `CUDA_ERROR_OUT_OF_MEMORY`, HIP's, and programs that report them in words
//! of their own (ONNX Runtime's arena and CUDA provider, CuPy, TensorRT, ggml, MXNet's src/storage, PaddlePaddle's
//! paddle/fluid/memory/allocation, Julia's CUDA.jl, Triton).

use super::{Family, is_talk};
use crate::message::{Kind, Message};
use crate::size::{after, before, count_after};

pub(super) const FAMILY: Family = Family {
    needles: &[
        "CUDA error: out of memory",
        "CUDA error 2",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "cudaErrorMemoryAllocation",
        "HIP error: out of memory",
        "hipErrorOutOfMemory",
        "hipErrorMemoryAllocation",
        "cudaMalloc failed: out of memory",
        "Failed to allocate memory for requested buffer of size",
        "Out of memory allocating",
        "cudaMalloc retry failed: out of memory",
        "CUDA failure 2: out of memory",
        "is smaller than requested bytes of",
        "Triton Error [CUDA]: out of memory",
        "Out of memory error on GPU",
        "Out of GPU memory trying to allocate",
        "Requested amount of GPU memory (",
        "Cuda Runtime (out of memory)",
        "CL_OUT_OF_RESOURCES",
        "VK_ERROR_OUT_OF_DEVICE_MEMORY",
    ],
    parse,
    follow: super::nothing,
    names: &["cuda"],
};

fn parse(line: &str) -> Option<Message> {
    let has = |needle: &str| line.contains(needle);
    let mut message = Message::new("cuda", Kind::Driver);
    if has("Failed to allocate memory for requested buffer of size") {
        message.kind = Kind::DeviceAllocation;
        message.requested = count_after(line, "buffer of size");
        message.detail = Some("ONNX Runtime".into());
        return Some(message);
    }
    if has("Out of memory allocating") {
        message.kind = Kind::DeviceAllocation;
        message.requested = after(line, "Out of memory allocating");
        message.allocated = after(line, "allocated so far:");
        message.detail = Some("CuPy".into());
        return Some(message);
    }
    if has("is smaller than requested bytes of") {
        message.kind = Kind::DeviceAllocation;
        message.requested = count_after(line, "requested bytes of");
        message.free = count_after(line, "Available memory of");
        message.detail = Some("ONNX Runtime".into());
        return Some(message);
    }
    if has("Out of memory error on GPU") {
        message.kind = Kind::DeviceAllocation;
        message.requested = after(line, "Cannot allocate");
        message.free = after(line, "available memory is only");
        message.allocated = before(line, "memory has been allocated");
        message.capacity = message.allocated.zip(message.free).map(|(held, free)| held + free);
        message.detail = Some("PaddlePaddle".into());
        return Some(message);
    }
    if has("Out of GPU memory trying to allocate") {
        message.kind = Kind::DeviceAllocation;
        message.requested = after(line, "trying to allocate");
        message.detail = Some("CUDA.jl".into());
        return Some(message);
    }
    if has("Requested amount of GPU memory (") {
        message.kind = Kind::DeviceAllocation;
        message.requested = count_after(line, "GPU memory (");
        message.detail = Some("TensorRT".into());
        return has("could not be allocated").then_some(message);
    }
    if has("cudaMalloc failed: out of memory") {
        message.requested = after(line, "allocating");
        return Some(message);
    }
    if has("CUDA error 2") && !has("out of memory") || is_talk(line) {
        return None;
    }
    if ["cuCtxCreate", "cuInit", "cuDevicePrimaryCtxRetain", "cudaSetDevice", "cudaGetDevice"]
        .iter()
        .any(|f| has(f))
    {
        message.kind = Kind::Start;
    }
    Some(message)
}
