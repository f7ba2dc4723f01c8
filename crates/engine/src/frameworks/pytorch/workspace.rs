//! Scratch memory of convolutions, and the search for a plan.
//!
//! **Sustained.** Tensor-core kernels of cuDNN read channels innermost (NHWC). For tensors laid out the other way cuDNN copies
//! the operands into workspace first (kernel names in public profiles: nhwc input, krsc filter, separate conversion kernels;
//! NVIDIA's performance guide: "NCHW pays automatic transposes"). Forward needs the input, the gradient of the filter both
//! activations, that of the input the output's gradient. Pointwise kernels run as matrix products on NCHW, and
//! narrow layers and groups on other kernels. PyTorch allocates the plan's workspace at each call, frees it after,
//! and takes another plan where it is out of memory (aten/src/ATen/native/cudnn/Conv_v8.cpp, `run_conv_plan`, `run_single_conv`). Which layers take part was found on published peaks of 231
//! convolutional networks on an A100 (GPUMemNet's measurements), by shape alone; docs/accuracy.md says how well it holds.
//!
//! **Search.** With `torch.backends.cudnn.benchmark` each convolution that is met for the first time is run with every plan
//! on offer, in scratch memory of the largest plan that fits (Conv_v8.cpp, `get_valid_plans`, `run_single_conv`), after which the
//! allocator's cache is emptied. Families with large scratch memory are FFT in tiles of 32 x 32 (half spectra of complex
//! float32, 4,352 bytes a tile) and Winograd F(4x4, 3x3) that is not fused (36 values a tile); both are for stride one.

use super::cublas;
use super::layouts::Layouts;
use super::record::Node;
use super::strides::Dims;
use super::tape::{Meta, Tape, TensorRef};
use crate::Plan;
use crate::sizes::elements;
use memfit_graph::{Bytes, DType};
use std::collections::HashSet;

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

/// What is known of a card's kernels, and which convolutions have been met.
pub(super) struct Kernels {
    benchmark: bool,
    /// Whether the model's tensors have their channels innermost.
    channels_last: bool,
    /// Major and minor.
    capability: (u32, u32),
    met: HashSet<(Pass, Dims, Dims, Dims)>,
}

/// The first whose half precision convolutions run on tensor cores.
const VOLTA: (u32, u32) = (7, 0);
/// The card where none is named: the first whose bfloat16 and float32 convolutions run on tensor cores.
const AMPERE: (u32, u32) = (8, 0);

/// A compute capability whose kernels and libraries need the same scratch memory: the same for as many cards as can be.
pub(crate) fn alike(capability: (u32, u32)) -> (u32, u32) {
    let known = [cublas::HOPPER, AMPERE, VOLTA].into_iter();
    let is_large = cublas::is_large(capability);
    known
        .filter(|card| cublas::is_large(*card) == is_large)
        .find(|card| capability >= *card)
        .unwrap_or_default()
}

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
/// An image's channels at most; they are padded to what a tensor core reads at once.
const IMAGE_CHANNELS: u64 = 4;

impl Kernels {
    /// No convolution met yet.
    pub(super) fn of(plan: &Plan) -> Kernels {
        Kernels {
            benchmark: plan.cudnn_benchmark,
            channels_last: plan.channels_last,
            capability: plan.compute_capability.unwrap_or(AMPERE),
            met: HashSet::new(),
        }
    }

    /// Whether convolutions of a dtype run on tensor cores: half precision from Volta on, bfloat16 and float32 (as TF32, which
    /// PyTorch allows in convolutions by default) from Ampere on.
    fn on_tensor_cores(&self, dtype: DType) -> bool {
        match dtype {
            DType::Float16 => self.capability >= VOLTA,
            DType::Bfloat16 | DType::Float32 => self.capability >= AMPERE,
            _ => false,
        }
    }
}

/// The sizes of a convolution, all in elements.
struct Sizes {
    channels: u64,
    groups: u64,
    outputs: u64,
    input: u64,
    output: u64,
    filter: u64,
    /// Of the filter, beside its channels.
    window: u64,
}

impl Sizes {
    fn read([x, w, y]: [&[u64]; 3]) -> Option<Sizes> {
        let ([_, channels, ..], [_, per_group, window @ ..], [_, outputs, ..]) = (x, w, y) else {
            return None;
        };
        let groups = channels / (*per_group).max(1);
        Some(Sizes {
            channels: *channels,
            groups: groups.max(1),
            outputs: *outputs,
            input: elements(x),
            output: elements(y),
            filter: elements(w),
            window: elements(window),
        })
    }

    /// Whether PyTorch's own kernel runs it: a filter for each channel (aten/src/ATen/native/Convolution.cpp, `is_depthwise`;
    /// `use_cudnn_depthwise` sends half precision to cuDNN where shapes allow).
    fn is_depthwise(&self) -> bool {
        self.channels > 1 && self.groups == self.channels && self.outputs.is_multiple_of(self.channels)
    }

    /// The elements of the copies that a kernel makes of its operands.
    fn copies(&self, pass: Pass, vector: u64) -> u64 {
        let per_group = self.channels / self.groups;
        let is_image = self.channels <= IMAGE_CHANNELS;
        let least = if self.groups > 1 { GROUP_CHANNELS } else { DENSE_CHANNELS };
        if self.window <= 1 || self.is_depthwise() || (!is_image && per_group < least) {
            return 0;
        }
        let is_wide = per_group.min(self.outputs / self.groups) >= WIDE_CHANNELS;
        // Channels are padded to a whole vector.
        let padded = |n: u64| n.saturating_mul(self.channels.next_multiple_of(vector)) / self.channels;
        match pass {
            Pass::Forward if is_image => 0,
            Pass::Forward => padded(self.input),
            Pass::Input => {
                let again = if is_wide { self.output / 2 } else { 0 };
                self.output.saturating_add(again).saturating_add(padded(self.filter))
            }
            Pass::Filter => {
                let maps = padded(self.input).saturating_add(self.output);
                let maps = if is_wide { maps.saturating_mul(2) } else { maps };
                maps.saturating_add(padded(self.filter))
            }
        }
    }
}

/// The largest scratch memory among the plans that a search may try.
fn trial(sizes: &Sizes, [x, w, y]: [&[u64]; 3]) -> u64 {
    let (&[batch, c, h, wide], &[_, _, r, s], &[_, k, p, q]) = (x, w, y) else {
        return 0;
    };
    // Stride one keeps the map's size, up to padding.
    let unit_stride = p.saturating_add(r) > h && q.saturating_add(s) > wide;
    if sizes.groups > 1 || !unit_stride || r > FFT_LARGEST || s > FFT_LARGEST {
        return 0;
    }
    let family = |tiles: u64, bytes: u64| {
        let tiles = batch.saturating_mul(tiles);
        let values = c.saturating_mul(tiles).saturating_add(k.saturating_mul(tiles));
        values.saturating_add(c.saturating_mul(k)).saturating_mul(bytes)
    };
    let side = |n: u64, filter: u64| n.div_ceil(33 - filter);
    let fft = family(side(p, r).saturating_mul(side(q, s)), FFT_TILE);
    let winograd =
        if (r, s) == (3, 3) { family(p.div_ceil(4).saturating_mul(q.div_ceil(4)), WINOGRAD_TILE) } else { 0 };
    fft.max(winograd)
}

impl Tape {
    /// The forward kernel of a call, where it is a convolution.
    pub(super) fn convolve_forward(&mut self, function: &str, inputs: &[TensorRef], outputs: &[TensorRef]) {
        if let ("convolution", [x, w, ..], [y, ..]) = (function, inputs, outputs)
            && self.kernels.is_some()
        {
            let operands = [x, w, y].map(|t| self.tensor(*t).meta());
            self.convolve(Pass::Forward, operands);
        }
    }

    /// The kernel that makes the gradient of input `i` of an autograd node, where it is a convolution's.
    pub(super) fn convolve_backward(&mut self, node: &Node, i: usize) {
        if let ("convolution", [x, w, ..], [y, ..]) =
            (node.function, &self.inputs[node.inputs.range()], &self.outputs[node.outputs.range()])
            && let Some(pass) = [Pass::Input, Pass::Filter].get(i)
        {
            let operands = [x.meta, w.meta, *y];
            self.convolve(*pass, operands);
        }
    }

    /// What the kernel of one product of a convolution holds while it runs; its result has been allocated.
    fn convolve(&mut self, pass: Pass, operands: [Meta; 3]) {
        let layouts: &Layouts = &self.layouts;
        let [shape_x, shape_w, shape_y] = operands.map(|meta| layouts.shape(meta.layout));
        let shapes = [shape_x, shape_w, shape_y];
        let (Some(kernels), Some(sizes)) = (self.kernels.as_mut(), Sizes::read(shapes)) else { return };
        let [x, ..] = operands;
        let element = x.dtype.size_of(1).0;
        if sizes.is_depthwise() && element >= 4 {
            return;
        }
        let is_new = || (pass, shape_x.into(), shape_w.into(), shape_y.into());
        let searches = kernels.benchmark && kernels.met.insert(is_new());
        let is_channels_last = kernels.channels_last || !layouts.is_contiguous(x.layout);
        let copies = if kernels.on_tensor_cores(x.dtype) && !is_channels_last {
            sizes.copies(pass, 16 / element.max(1))
        } else {
            0
        };
        let copies = copies.saturating_mul(element);
        if searches {
            // The families with large scratch memory read channels first.
            let trial = if is_channels_last { 0 } else { trial(&sizes, shapes) };
            self.memory.search(Bytes(trial.max(copies)));
        }
        if copies > 0 {
            self.memory.scratch(Bytes(copies), "convolution");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(tape: &mut Tape, shape: &[u64], dtype: DType) -> Meta {
        Meta { layout: tape.layouts.contiguous(shape), dtype }
    }

    /// The workspace of all three passes of a convolution of 56 x 56 maps, in elements of the output.
    fn workspace(channels: u64, outputs: u64, filter: [u64; 3], dtype: DType, card: (u32, u32)) -> Vec<u64> {
        let mut tape = Tape::new(None, true);
        let plan = Plan { compute_capability: Some(card), ..Plan::default() };
        tape.kernels = Some(Kernels::of(&plan));
        let [per_group, r, s] = filter;
        let shapes = [[2, channels, 56, 56], [outputs, per_group, r, s], [2, outputs, 56, 56]];
        let operands = shapes.map(|shape| meta(&mut tape, &shape, dtype));
        for pass in [Pass::Forward, Pass::Input, Pass::Filter] {
            tape.convolve(pass, operands);
        }
        let timeline = tape.memory.into_timeline();
        timeline.storages.iter().map(|s| s.bytes.0).collect()
    }

    #[test]
    fn dense_layers_on_tensor_cores_are_copied() {
        let (map, filter) = (2 * 64 * 56 * 56, 64 * 64 * 9);
        let all = [4 * map, 6 * map + 4 * filter, 4 * (4 * map + filter)];
        assert_eq!(workspace(64, 64, [64, 3, 3], DType::Float32, AMPERE), all);
        assert_eq!(workspace(64, 64, [64, 3, 3], DType::Float16, (7, 0)), all.map(|b| b / 2));
        // Between 17 and 32 channels one copy of each operand.
        let (map, filter) = (2 * 32 * 56 * 56, 32 * 32 * 9);
        let once = [4 * map, 4 * (map + filter), 4 * (2 * map + filter)];
        assert_eq!(workspace(32, 32, [32, 3, 3], DType::Float32, AMPERE), once);
        for [outputs, per_group, window] in [[64, 64, 1], [64, 1, 3], [64, 32, 3]] {
            let filter = [per_group, window, window];
            assert!(workspace(64, outputs, filter, DType::Float32, AMPERE).is_empty(), "{filter:?}");
        }
        // Float32 has tensor cores from Ampere on.
        assert!(workspace(64, 64, [64, 3, 3], DType::Float32, (7, 5)).is_empty());
    }

    #[test]
    fn a_convolution_is_searched_once() {
        let mut tape = Tape::new(None, true);
        tape.kernels = Some(Kernels::of(&Plan { cudnn_benchmark: true, ..Plan::default() }));
        let shapes = [[1, 1536, 10, 10], [2048, 1536, 1, 1], [1, 2048, 10, 10]];
        let operands = shapes.map(|shape| meta(&mut tape, &shape, DType::Float32));
        for _ in 0..2 {
            tape.convolve(Pass::Forward, operands);
        }
        let searches = tape.memory.into_timeline().searches;
        // The filter's spectra alone are 13,056 MiB.
        assert_eq!(searches.len(), 1);
        assert_eq!(searches[0].trial, Bytes(4352 * (1536 + 2048 + 1536 * 2048)));
    }
}
