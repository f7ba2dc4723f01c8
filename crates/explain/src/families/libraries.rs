//! Libraries that cannot make their handle: cuBLAS, cuDNN, cuSOLVER, cuFFT, NCCL. `ALLOC_FAILED` is want of memory in so many
//! words; `NOT_INITIALIZED` and `INTERNAL_ERROR` of a first call mostly are, since the handle is made when the framework has
//! taken the card (PyTorch 1.0 to 2.8: ATen/cuda/Exceptions.h; TensorFlow 1.0 to 2.19: stream_executor/cuda/cuda_dnn.cc,
//! cuda_blas.cc; NCCL 2.4 to 2.27: `Cuda failure 2 'out of memory'`, src/include/checks.h; rocBLAS and MIOpen of ROCm 4 to 6;
//! PyTorch 0.4 to 1.4: `cublas runtime error : library not initialized`, THC/THCBlas.cu).
//!
//! After an assertion that failed in a kernel (`block: [0,0,0], thread: [1,0,0] Assertion … failed.`, an index out of its table) all
//! that follows on the device fails, and a cuDNN older than the one TensorFlow was built with cannot start either.

use super::{Family, is_talk};
use crate::message::{Kind, Message, NO_ALGORITHM, NO_ENGINE};
use crate::size::{count, count_after};

pub(super) const FAMILY: Family = Family {
    needles: &[
        "CUBLAS_STATUS_",
        "CUDNN_STATUS_",
        "CUSOLVER_STATUS_",
        "CUFFT_ALLOC_FAILED",
        "Cuda failure 'out of memory'",
        "Cuda failure 2 'out of memory'",
        "cuDNN failed to initialize",
        "rocblas_status_memory_error",
        "miopenStatusAllocFailed",
        "was unable to find an engine to execute this computation",
        "Unable to find a valid cuDNN algorithm",
        "cublas runtime error : ",
        "Assertion `",
        "Loaded runtime CuDNN library: ",
    ],
    after: None,
    parse,
    more: &["Memory usage: "],
    follow,
    names: &["library"],
};

/// `Memory usage: N bytes free, N bytes total.` (xla/stream_executor/cuda/cuda_dnn.cc).
fn follow(m: &mut Message, line: &str) {
    if let (None, Some((_, usage))) = (m.free, line.split_once("Memory usage: ")) {
        m.free = count(usage);
        m.capacity = count_after(usage, "bytes free,");
    }
}

fn parse(line: &str) -> Option<Message> {
    let asserted = line.contains("Assertion `") && line.contains("thread: [");
    if asserted || line.contains("Loaded runtime CuDNN library: ") && line.contains("compiled with") {
        return Some(Message::new("library", Kind::OtherFault));
    }
    if is_talk(line) || line.contains("Assertion `") {
        return None;
    }
    let status: Option<String> =
        ["CUBLAS_STATUS_", "CUDNN_STATUS_", "CUSOLVER_STATUS_"].iter().find_map(|prefix| {
            let at = line.find(prefix)?;
            Some(line[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
        });
    let status = match status {
        Some(status) => status,
        None if line.contains("cublas runtime error : library not init") => {
            "CUBLAS_STATUS_NOT_INITIALIZED".into()
        }
        None if line.contains("cublas runtime error : resource alloc") => "CUBLAS_STATUS_ALLOC_FAILED".into(),
        None if line.contains("cublas runtime error : ") => return None,
        None if line.contains("CUFFT_ALLOC_FAILED") => "CUFFT_ALLOC_FAILED".into(),
        None if line.contains("out of memory'") => "NCCL out of memory".into(),
        None if line.contains("cuDNN failed to initialize") => "CUDNN_STATUS_NOT_INITIALIZED".into(),
        // What cuDNN's v8 interface says when each engine's scratch memory was refused, among other reasons
        // (ATen/native/cudnn/Conv_v8.cpp).
        None if line.contains("unable to find an engine") => NO_ENGINE.into(),
        // Its older interface, when each algorithm was refused its scratch memory or does not take these shapes
        // (ATen/native/cudnn/Conv_v7.cpp, `try_all`). Source code names it without an error before it.
        None if line.contains("valid cuDNN algorithm") => {
            line.contains("rror: Unable").then(|| NO_ALGORITHM.to_owned())?
        }
        None => "allocation failed".into(),
    };
    let making = ["Create", "create", "could not", "Could not", "failed to", "Failed to"]
        .iter()
        .any(|w| line.contains(w));
    let memory =
        status.ends_with("ALLOC_FAILED") || status == "NCCL out of memory" || status == "allocation failed";
    let perhaps = [NO_ENGINE, NO_ALGORITHM].contains(&&*status)
        || (status.ends_with("NOT_INITIALIZED") || status.ends_with("INTERNAL_ERROR"))
            && (making || line.contains("rror"));
    (memory || perhaps).then(|| {
        let mut message = Message::new("library", Kind::Start);
        message.detail = Some(status);
        message
    })
}
