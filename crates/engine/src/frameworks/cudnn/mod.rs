//! Convolutions as cuDNN and MIOpen run them: which scratch memory a plan holds, by shapes and card alone. Frameworks differ in which
//! plan they choose: the first of the library's `heuristics`, or the `fastest` of all.

pub(super) mod fastest;
pub(super) mod heuristics;
pub(super) mod miopen;

use memfit_graph::{DType, elements};

/// Which product a kernel makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pass {
    /// The output.
    Forward,
    /// The input's gradient.
    Input,
    /// The filter's gradient.
    Filter,
}

/// The first whose half precision convolutions run on tensor cores.
pub(super) const VOLTA: (u32, u32) = (7, 0);
/// The card where none is named: the first whose bfloat16 and float32 convolutions run on tensor cores.
pub(super) const AMPERE: (u32, u32) = (8, 0);

/// The first whose tensor cores round float32 as they read it.
pub(super) const HOPPER: (u32, u32) = (9, 0);

/// An image's channels at most; they are padded to what a tensor core reads at once.
const IMAGE_CHANNELS: u64 = 4;

/// Whether convolutions of a dtype run on tensor cores: half precision from Volta on, bfloat16 and float32 (as TF32, which PyTorch and
/// TensorFlow allow in convolutions by default) from Ampere on.
pub(super) fn on_tensor_cores(dtype: DType, capability: (u32, u32)) -> bool {
    match dtype {
        DType::Float16 => capability >= VOLTA,
        DType::Bfloat16 | DType::Float32 => capability >= AMPERE,
        _ => false,
    }
}

/// A compute capability with the same tensor cores: the same for as many cards as can be.
pub(crate) fn tensor_cores(capability: (u32, u32)) -> (u32, u32) {
    [AMPERE, VOLTA].into_iter().find(|first| capability >= *first).unwrap_or_default()
}

/// The sizes of a convolution, all in elements.
pub(super) struct Sizes {
    pub(super) channels: u64,
    pub(super) groups: u64,
    outputs: u64,
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) filter: u64,
    /// Of the filter, beside its channels.
    pub(super) window: u64,
    /// Whether the filter is one of 3 x 3 that moves by one.
    is_small_square: bool,
}

impl Sizes {
    /// Of input, filter and output, channels first: batch or outputs, channels, then the window's axes. None without channels.
    #[cfg(any(test, feature = "tensorflow"))]
    pub(super) fn read(shapes: [&[u64]; 3]) -> Option<Sizes> {
        Sizes::of(shapes, shapes.map(elements))
    }

    /// The same where it is known how many elements each has.
    pub(super) fn of([x, w, y]: [&[u64]; 3], [input, filter, output]: [u64; 3]) -> Option<Sizes> {
        let ([_, channels @ (1..), ..], [_, per_group, window @ ..], [_, outputs, ..]) = (x, w, y) else {
            return None;
        };
        let groups = channels / (*per_group).max(1);
        Some(Sizes {
            channels: *channels,
            groups: groups.max(1),
            outputs: *outputs,
            input,
            output,
            filter,
            window: elements(window),
            is_small_square: window == [3, 3] && has_unit_stride(x, w, y),
        })
    }

    /// Whether each channel has filters of its own.
    pub(super) fn is_depthwise(&self) -> bool {
        self.channels > 1 && self.groups == self.channels && self.outputs.is_multiple_of(self.channels)
    }

    /// The elements of input, output and filter.
    pub(super) fn all(&self) -> u64 {
        self.input.saturating_add(self.output).saturating_add(self.filter)
    }

    /// Whether the input is an image.
    pub(super) fn is_image(&self) -> bool {
        self.channels <= IMAGE_CHANNELS
    }

    /// The elements of the filter as Winograd's kernels F(2x2, 3x3) and F(4x4, 3x3) hold it, where they can run: beside the filter itself
    /// 16 for its 9.
    pub(super) fn transformed_filter(&self) -> u64 {
        if self.groups == 1 && self.is_small_square { self.filter.saturating_mul(25) / 9 } else { 0 }
    }
}

/// Whether a filter moves by one: that keeps the map's size, up to padding.
fn has_unit_stride(x: &[u64], w: &[u64], y: &[u64]) -> bool {
    x.iter().zip(w).zip(y).skip(2).all(|((x, w), y)| y.saturating_add(*w) > *x)
}
