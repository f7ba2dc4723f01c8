//! cuBLAS's scratch memory: the first matrix product of a thread takes it from PyTorch's allocator, and it stays.
//!
//! Handles belong to threads (aten/src/ATen/cuda/detail/DeviceThreadHandles.h), and backward runs in the autograd engine's own:
//! a process that trains holds two, one that only infers one. cublasLt, which runs a product with a bias, shares them.
//! Source: aten/src/ATen/cuda/CublasHandlePool.cpp, `parseChosenWorkspaceSize` and `setWorkspaceForHandle`, PyTorch up to 2.14. Release
//! 2.15 takes as much for each product and gives it back (pytorch#194311), unless `TORCH_CUBLAS_WORKSPACE_CACHE=1`: there an estimate
//! is high by two workspaces at most.
//! `CUBLAS_WORKSPACE_CONFIG` is assumed not to be set.
//!
//! On AMD's cards hipBLAS stands in its place, or hipBLASLt where PyTorch prefers that (aten/src/ATen/Context.cpp,
//! `blasPreferredBackend`; aten/src/ATen/cuda/detail/CUDAHooks.cpp, `getHipblasltPreferredArchs`: MI200 and later, RX 9000). It has
//! a workspace of another size (CublasHandlePool.cpp, `parseCUDABlasLtWorkspaceSize`); handles belong to threads there too.

use super::memory::Memory;
use super::tape::Tape;
use crate::devices::Generation;
use crate::{Category, Phase, Plan, StorageId};
use memfit_graph::Bytes;

/// `:4096:2:16:8`, in KiB: two blocks of 4096 and eight of 16.
const DEFAULT: Bytes = Bytes((2 * 4096 + 8 * 16) * 1024);
/// The same on Hopper and Blackwell.
const LARGE: Bytes = Bytes::mib(32);
/// hipBLAS's before MI300.
const HIPBLAS: Bytes = Bytes::mib(32);
/// hipBLASLt's, on all cards.
const HIPBLASLT: Bytes = Bytes::mib(76);

/// Whether a card's workspace is the large one.
pub(super) fn is_large(capability: (u32, u32)) -> bool {
    matches!(capability.0, 9 | 10 | 12)
}

/// The workspace of a handle of the library that a card's products run on.
fn workspace(plan: &Plan) -> Bytes {
    match plan.amd {
        Some(Generation::Cdna2 | Generation::Cdna3 | Generation::Rdna4) => HIPBLASLT,
        Some(_) => HIPBLAS,
        None if plan.compute_capability.is_some_and(is_large) => LARGE,
        None => DEFAULT,
    }
}

/// Each thread's workspace: of the one that runs forward and the optimizer, and of the one that runs backward.
pub(super) struct Workspaces {
    /// What a handle is given.
    bytes: Bytes,
    /// No bytes before a thread's first product.
    threads: [StorageId; 2],
}

impl Workspaces {
    /// Places for them among what is alive before a step: all steps but the first find them there.
    pub(super) fn set_up(memory: &mut Memory, plan: &Plan) -> Workspaces {
        let threads = ["workspace of forward", "workspace of backward"]
            .map(|label| memory.allocate(Bytes::ZERO, Category::Workspace, label));
        Workspaces { bytes: workspace(plan), threads }
    }
}

impl Tape {
    /// A kernel runs, in the thread of the present phase.
    pub(super) fn multiply(&mut self, function: &str) {
        let Some(Workspaces { bytes, threads: [forward, backward] }) = &self.cublas else { return };
        if matches!(function, "mm" | "addmm" | "bmm" | "mv") {
            let thread = if self.memory.phase == Phase::Backward { backward } else { forward };
            self.memory.resize(*thread, *bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::Card;

    #[test]
    fn a_thread_takes_its_workspace_with_its_first_product() {
        let held = |plan: &Plan, calls: &[(Phase, &str)]| {
            let mut tape = Tape::new(None, true);
            tape.cublas = Some(Workspaces::set_up(&mut tape.memory, plan));
            for (phase, function) in calls {
                tape.memory.phase = *phase;
                tape.multiply(function);
            }
            tape.memory.storages().iter().map(|s| s.bytes.0).collect::<Vec<_>>()
        };
        let unknown = Plan::default();
        assert_eq!(held(&unknown, &[(Phase::Forward, "convolution"), (Phase::Forward, "relu")]), [0, 0]);
        assert_eq!(held(&unknown, &[(Phase::Forward, "addmm"), (Phase::Forward, "mm")]), [8_519_680, 0]);
        let step = [(Phase::Forward, "bmm"), (Phase::Backward, "bmm")];
        for (gpu, bytes) in [
            ("rtx-3090", 8_519_680),
            ("h100-80gb", 32 * Bytes::MIB),
            ("rx-7900-xtx", 32 * Bytes::MIB),
            ("mi300x", 76 * Bytes::MIB),
        ] {
            assert_eq!(held(&unknown.on(&Card::find(gpu).unwrap()), &step), [bytes; 2], "{gpu}");
        }
    }
}
