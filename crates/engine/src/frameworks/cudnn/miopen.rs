//! Scratch memory of convolutions on AMD's cards.
//!
//! MIOpen's kernels for matrix cores read channels innermost (NHWC). For tensors laid out the other way they hold copies of the
//! input, the filter and the output in every pass (MIOpen, src/include/miopen/solver/implicitgemm_ck_util.hpp,
//! `GetWorkspaceSizeLayoutTransformConv`; the warnings that MIOpen#2981 shows for ResNet-152 ask for just as much). Which solver is
//! the fastest for a layer is not published: on cards with matrix cores (Instinct since MI100) it is taken to be one of these where a
//! filter is larger than a point. Depthwise layers and other cards run on kernels without copies.
//!
//! PyTorch looks for the fastest solver of each convolution that it meets, whether `torch.backends.cudnn.benchmark` is on or not,
//! in scratch memory as large as a solver may ask for, and empties its allocator's cache afterwards
//! (aten/src/ATen/native/miopen/Conv_miopen.cpp, `findAlgorithm`, `chooseAlgorithm`).

use super::Sizes;
use crate::devices::Generation;

/// Whether convolutions run on matrix cores.
fn has_matrix_cores(generation: Generation) -> bool {
    matches!(generation, Generation::Cdna | Generation::Cdna2 | Generation::Cdna3)
}

/// The elements of the copies that a kernel makes of a convolution's input, filter and output.
pub(in super::super) fn copies(generation: Generation, sizes: &Sizes) -> u64 {
    if sizes.window <= 1 || sizes.is_depthwise() || !has_matrix_cores(generation) {
        return 0;
    }
    sizes.all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_solver_asks_for_what_miopen_says() {
        let bytes = |generation, shapes: [[u64; 4]; 3]| {
            copies(generation, &Sizes::read([&shapes[0], &shapes[1], &shapes[2]]).unwrap()) * 4
        };
        // Of ResNet-152 with 128 images (MIOpen#2981): the stem, and a layer that halves the map.
        let stem = [[128, 3, 224, 224], [64, 3, 7, 7], [128, 64, 112, 112]];
        assert_eq!(bytes(Generation::Cdna, stem), 488_149_760);
        let halved = [[128, 128, 56, 56], [128, 128, 3, 3], [128, 128, 28, 28]];
        assert_eq!(bytes(Generation::Cdna3, halved), 257_490_944);
        assert_eq!(bytes(Generation::Rdna3, halved), 0);
        let pointwise = [[128, 128, 56, 56], [128, 128, 1, 1], [128, 128, 56, 56]];
        assert_eq!(bytes(Generation::Cdna3, pointwise), 0);
        let depthwise = [[128, 128, 56, 56], [128, 1, 3, 3], [128, 128, 56, 56]];
        assert_eq!(bytes(Generation::Cdna3, depthwise), 0);
    }
}
