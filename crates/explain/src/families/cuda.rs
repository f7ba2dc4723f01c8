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
//! | `Device(id:N) memory isn't enough and alloc failed` | MindSpore 1 and 2 |
//! | `CUDA failed with error out of memory`; `cuda failed with error 2 out of memory` | CTranslate2 2 to 4; spconv 2 (tensorview) |
//! | `Error out of memory at line N in file …` | bitsandbytes 0.35 to 0.45, csrc/ops.cuh |
//! | `ErrorOutOfDeviceMemory` | Vulkan-Hpp, as ggml-vulkan prints it |

use super::{Family, is_talk};
use crate::message::{Kind, Message, NO_ROOM, ONE_REQUEST};
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
        "memory isn't enough and alloc failed",
        "failed with error out of memory",
        "failed with error 2 out of memory",
        "Error out of memory at line",
        "ErrorOutOfDeviceMemory",
    ],
    after: None,
    parse,
    more: &[],
    follow: super::nothing,
    names: &["cuda"],
};

/// A wording with numbers of its own.
struct Wording {
    /// What stands in the line.
    needle: &'static str,
    /// What the program calls itself, or what the message means.
    detail: &'static str,
    /// Takes the numbers; `false` where the line is of something else.
    take: fn(&str, &mut Message) -> bool,
}

const WORDINGS: &[Wording] = &[
    Wording {
        needle: "Failed to allocate memory for requested buffer of size",
        detail: "ONNX Runtime",
        take: |line, m| {
            m.requested = count_after(line, "buffer of size");
            true
        },
    },
    Wording {
        needle: "Out of memory allocating",
        detail: "CuPy",
        take: |line, m| {
            m.requested = after(line, "Out of memory allocating");
            m.allocated = after(line, "allocated so far:");
            true
        },
    },
    Wording {
        needle: "is smaller than requested bytes of",
        detail: "ONNX Runtime",
        take: |line, m| {
            m.requested = count_after(line, "requested bytes of");
            m.free = count_after(line, "Available memory of");
            true
        },
    },
    Wording {
        needle: "Out of memory error on GPU",
        detail: "PaddlePaddle",
        take: |line, m| {
            m.requested = after(line, "Cannot allocate");
            m.free = after(line, "available memory is only");
            m.allocated = before(line, "memory has been allocated");
            m.capacity = m.allocated.zip(m.free).map(|(held, free)| held + free);
            true
        },
    },
    Wording {
        needle: "Out of GPU memory trying to allocate",
        detail: "CUDA.jl",
        take: |line, m| {
            m.requested = after(line, "trying to allocate");
            true
        },
    },
    Wording {
        needle: "Requested amount of GPU memory (",
        detail: "TensorRT",
        take: |line, m| {
            m.requested = count_after(line, "GPU memory (");
            line.contains("could not be allocated")
        },
    },
    // vllm/v1/worker and vllm/worker/worker.py.
    Wording {
        needle: "on startup is less than desired GPU memory",
        detail: "vLLM",
        take: |line, m| {
            m.free = line.split("on device").nth(1).and_then(|rest| {
                let (free, whole) = rest.split_once('(')?.1.split_once('/')?;
                m.capacity = size(whole);
                size(free).or_else(|| size(&format!("{free} GiB")))
            });
            m.in_use = Some(Bytes::ZERO);
            true
        },
    },
    Wording {
        needle: "No available memory for the cache blocks",
        detail: NO_ROOM,
        take: |line, _| !is_talk(line),
    },
    Wording {
        needle: "KV cache is needed, which is larger than the available KV cache memory",
        detail: ONE_REQUEST,
        take: |line, m| {
            m.requested = before(line, "KV cache is needed");
            m.free = after(line, "available KV cache memory (");
            true
        },
    },
    Wording {
        needle: "There is not enough GPU video memory available",
        detail: "DirectML",
        take: |line, m| {
            m.requested = count_after(line, "Could not allocate tensor with");
            !is_talk(line)
        },
    },
    Wording {
        needle: "memory isn't enough and alloc failed",
        detail: "MindSpore",
        take: |line, m| {
            m.requested = after(line, "alloc size:");
            true
        },
    },
    // Metal refuses a buffer that is longer than `maxBufferLength`, whatever is free (ATen/mps/MPSAllocator.mm).
    Wording {
        needle: "Invalid buffer size:",
        detail: "larger than a buffer may be",
        take: |line, m| {
            m.family = "pytorch";
            m.requested = after(line, "Invalid buffer size:");
            m.requested.is_some()
        },
    },
];

/// The driver's calls that make a context.
const STARTS: [&str; 5] =
    ["cuCtxCreate", "cuInit", "cuDevicePrimaryCtxRetain", "cudaSetDevice", "cudaGetDevice"];

fn parse(line: &str) -> Option<Message> {
    if let Some(wording) = WORDINGS.iter().find(|wording| line.contains(wording.needle)) {
        let mut message = Message::new("cuda", Kind::DeviceAllocation);
        message.detail = Some(wording.detail.into());
        return (wording.take)(line, &mut message).then_some(message);
    }
    let has = |needle: &str| line.contains(needle);
    // Statuses by number: others than 2 speak of something else.
    if (has("cudaSuccess (2 vs. 0)") || has("CUDA error 2")) && !has("out of memory") {
        return None;
    }
    let mut message = Message::new("cuda", Kind::Driver);
    if has("cudaMalloc failed: out of memory") {
        message.requested = after(line, "allocating");
        return Some(message);
    }
    if is_talk(line) {
        return None;
    }
    if STARTS.iter().any(|call| has(call)) {
        message.kind = Kind::Start;
    }
    Some(message)
}
