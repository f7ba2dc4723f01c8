//! The driver and runtimes, and programs that report them in words of their own.
//!
//! | wording | from |
//! |---|---|
//! | `CUDA error: out of memory`, `CUDA_ERROR_OUT_OF_MEMORY`, `cudaErrorMemoryAllocation` | CUDA 9 to 13, as PyTorch, TensorFlow and Numba print them |
//! | `hipErrorOutOfMemory`, `hipErrorMemoryAllocation` | HIP 3 to 6 |
//! | `UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY`, `PI_ERROR_OUT_OF_RESOURCES` | oneAPI 2023 to 2025 |
//! | `Failed to allocate memory for requested buffer of size N`, `is smaller than requested bytes of` | ONNX Runtime 1.4 to 1.22, core/framework/bfc_arena.cc |
//! | `Out of memory allocating N bytes (allocated so far: N bytes)` | CuPy 7 to 13, cupy/cuda/memory.pyx |
//! | `Requested amount of GPU memory (N bytes) could not be allocated`, `Cuda Runtime (out of memory)` | TensorRT 7 to 10 |
//! | `cudaMalloc failed: out of memory` | MXNet 1.x, src/storage; ggml of 2023 to 2025, ggml-cuda |
//! | `Out of memory error on GPU N. Cannot allocate N memory` | PaddlePaddle 1.8 to 3.0, paddle/fluid/memory/allocation |
//! | `Out of GPU memory trying to allocate N` | CUDA.jl 1 to 5 |
//! | `Check failed: error == cudaSuccess (2 vs. 0)  out of memory`, `CUDA Error: out of memory` | Caffe 1.0, Darknet of 2018 |
//! | `No available memory for the cache blocks`, `Free memory on device (N/N) on startup`, `N KV cache is needed, which is larger than` | vLLM 0.2 to 0.11 |
//! | `There is not enough GPU video memory available!` | torch-directml 0.1 to 0.2 |
//! | `CUDA failed with error out of memory`; `cuda failed with error 2 out of memory` | CTranslate2 2 to 4; spconv 2 (tensorview) |
//! | `Error out of memory at line N in file …` | bitsandbytes 0.35 to 0.45, csrc/ops.cuh |
//! | `ErrorOutOfDeviceMemory` | Vulkan-Hpp, as ggml-vulkan prints it |

use super::{Family, is_talk};
use crate::message::{Kind, Message};
use crate::size::{after, before, count_after, size};
use memfit_graph::Bytes;

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
        "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
        "PI_ERROR_OUT_OF_RESOURCES",
        "CUDA Error: out of memory",
        "cudaSuccess (2 vs. 0)",
        "No available memory for the cache blocks",
        "on startup is less than desired GPU memory",
        "Invalid buffer size:",
        "KV cache is needed, which is larger than the available KV cache memory",
        "There is not enough GPU video memory available",
        "failed with error out of memory",
        "failed with error 2 out of memory",
        "Error out of memory at line",
        "ErrorOutOfDeviceMemory",
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
    // vLLM: vllm/v1/worker and vllm/worker/worker.py.
    if has("on startup is less than desired GPU memory") {
        message.kind = Kind::DeviceAllocation;
        message.free = line.split("on device").nth(1).and_then(|rest| {
            let (free, whole) = rest.split_once('(')?.1.split_once('/')?;
            message.capacity = size(whole);
            size(free).or_else(|| size(&format!("{free} GiB")))
        });
        message.in_use = Some(Bytes::ZERO);
        message.detail = Some("vLLM".into());
        return Some(message);
    }
    if has("No available memory for the cache blocks") {
        message.kind = Kind::DeviceAllocation;
        message.detail = Some("vLLM: the weights leave no room for the cache".into());
        return (!is_talk(line)).then_some(message);
    }
    if has("KV cache is needed, which is larger than the available KV cache memory") {
        message.kind = Kind::DeviceAllocation;
        message.requested = before(line, "KV cache is needed");
        message.free = after(line, "available KV cache memory (");
        message.detail = Some("vLLM: one request's cache does not fit beside the weights".into());
        return Some(message);
    }
    if has("There is not enough GPU video memory available") {
        message.kind = Kind::DeviceAllocation;
        message.requested = count_after(line, "Could not allocate tensor with");
        message.detail = Some("DirectML".into());
        return (!is_talk(line)).then_some(message);
    }
    // Metal refuses a buffer that is longer than `maxBufferLength`, whatever is free (ATen/mps/MPSAllocator.mm).
    if has("Invalid buffer size:") {
        message.family = "pytorch";
        message.kind = Kind::DeviceAllocation;
        message.requested = after(line, "Invalid buffer size:");
        message.detail = Some("larger than a buffer may be".into());
        return message.requested.is_some().then_some(message);
    }
    if has("cudaSuccess (2 vs. 0)") && !has("out of memory") {
        return None;
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
