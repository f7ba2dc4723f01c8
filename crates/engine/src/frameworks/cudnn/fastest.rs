//! Scratch memory of the fastest plan, and of the plans that are on trial until it is found.
//!
//! **The fastest.** Tensor-core kernels of cuDNN read channels innermost (NHWC). For tensors laid out the other way cuDNN copies
//! the operands into workspace first (kernel names in public profiles: nhwc input, krsc filter, separate conversion kernels;
//! NVIDIA's performance guide: "NCHW pays automatic transposes"). Forward needs the input, the gradient of the filter both
//! activations, that of the input the output's gradient. Pointwise kernels run as matrix products on NCHW, and
//! narrow layers and groups on other kernels. Which layers take part was found on published peaks of 231
//! convolutional networks on an A100 (GPUMemNet's measurements), by shape alone; docs/accuracy.md says how well it holds.
//!
//! Without tensor cores filters of 3 x 3 that move by one run as Winograd F(4x4, 3x3) that is not fused, whose transformed operands lie in
//! scratch memory. Read off the timelines of four ResNets on a GTX 1080 (cybertronai/gradient-checkpointing), in which the input's gradients
//! of layers of 64 channels and more hold it; narrower layers are taken to run on other kernels, as those of other windows.
//!
//! **On trial.** Families with large scratch memory are FFT in tiles of 32 x 32 (half spectra of complex
//! float32, 4,352 bytes a tile) and Winograd F(4x4, 3x3) that is not fused (36 values a tile); both are for stride one and channels first.

use super::{Pass, Sizes, has_unit_stride, on_tensor_cores};
use memfit_graph::DType;

/// Bytes of a 32 x 32 tile's half spectrum: 32 x 17 complex numbers of 8 bytes.
const FFT_TILE: u64 = 32 * 17 * 8;
/// The most rows of a filter that such a tile takes.
const FFT_LARGEST: u64 = 31;
/// Bytes of a Winograd tile: 6 x 6 values of 4 bytes.
const WINOGRAD_TILE: u64 = 36 * 4;

/// Channels (of a group) from which on a dense layer runs on NHWC tensor-core kernels.
const DENSE_CHANNELS: u64 = 17;
/// The same where there are several groups.
const GROUP_CHANNELS: u64 = 40;
/// Channels of input and output (of a group) from which on the gradients' kernels copy more than their operands: that of the filter
/// both activations twice, that of the input half of the output's gradient again (plans with one copy and with two are near
/// ties, which fall differently from layer to layer). Read off the published peaks, not off cuDNN's documentation: chosen on
/// either half of the models, it brings more of the other half's peaks within 1, 3, 5 and 10 % than one copy of each operand.
const WIDE_CHANNELS: u64 = 33;

/// Channels of input and output from which on Winograd's transformations cost less than they save.
const WINOGRAD_CHANNELS: u64 = 64;

/// The bytes of the scratch memory of the fastest plan on a card of NVIDIA's for operands whose channels come first.
pub(in super::super) fn scratch(
    sizes: &Sizes,
    pass: Pass,
    dtype: DType,
    capability: (u32, u32),
    shapes: [&[u64]; 3],
) -> u64 {
    let element = dtype.size_of(1).0.max(1);
    if on_tensor_cores(dtype, capability) {
        return copies(sizes, pass, 16 / element).saturating_mul(element);
    }
    let is_wide = sizes.channels.min(sizes.outputs) >= WINOGRAD_CHANNELS && sizes.groups == 1;
    if is_wide && sizes.is_small_square && dtype == DType::Float32 { winograd(shapes) } else { 0 }
}

/// The elements of the copies that a tensor-core kernel makes of operands whose channels come first; `vector` channels of an image are
/// read at once.
fn copies(sizes: &Sizes, pass: Pass, vector: u64) -> u64 {
    let per_group = sizes.channels / sizes.groups;
    let is_image = sizes.is_image();
    let least = if sizes.groups > 1 { GROUP_CHANNELS } else { DENSE_CHANNELS };
    if sizes.window <= 1 || sizes.is_depthwise() || (!is_image && per_group < least) {
        return 0;
    }
    let is_wide = per_group.min(sizes.outputs / sizes.groups) >= WIDE_CHANNELS;
    // Channels are padded to a whole vector.
    let padded = |n: u64| n.saturating_mul(sizes.channels.next_multiple_of(vector)) / sizes.channels;
    match pass {
        Pass::Forward if is_image => 0,
        Pass::Forward => padded(sizes.input),
        Pass::Input => {
            let again = if is_wide { sizes.output / 2 } else { 0 };
            sizes.output.saturating_add(again).saturating_add(padded(sizes.filter))
        }
        Pass::Filter => {
            let maps = padded(sizes.input).saturating_add(sizes.output);
            let maps = if is_wide { maps.saturating_mul(2) } else { maps };
            maps.saturating_add(padded(sizes.filter))
        }
    }
}

/// The bytes of the largest scratch memory among the plans that a search may try.
pub(in super::super) fn trial(sizes: &Sizes, [x, w, y]: [&[u64]; 3]) -> u64 {
    let (&[batch, c, ..], &[_, _, r, s], &[_, k, p, q]) = (x, w, y) else {
        return 0;
    };
    if sizes.groups > 1 || !has_unit_stride(x, w, y) || r > FFT_LARGEST || s > FFT_LARGEST {
        return 0;
    }
    let side = |n: u64, filter: u64| n.div_ceil(33 - filter);
    let fft = tiled([batch, c, k], side(p, r).saturating_mul(side(q, s)), FFT_TILE);
    fft.max(if (r, s) == (3, 3) { winograd([x, w, y]) } else { 0 })
}

/// The bytes of Winograd's transformed operands.
fn winograd([x, _, y]: [&[u64]; 3]) -> u64 {
    let (&[batch, c, ..], &[_, k, p, q]) = (x, y) else { return 0 };
    tiled([batch, c, k], p.div_ceil(4).saturating_mul(q.div_ceil(4)), WINOGRAD_TILE)
}

/// The bytes of operands in so many tiles an image: those of input, output and filter.
fn tiled([batch, c, k]: [u64; 3], tiles: u64, bytes: u64) -> u64 {
    let tiles = batch.saturating_mul(tiles);
    let values = c.saturating_mul(tiles).saturating_add(k.saturating_mul(tiles));
    values.saturating_add(c.saturating_mul(k)).saturating_mul(bytes)
}
