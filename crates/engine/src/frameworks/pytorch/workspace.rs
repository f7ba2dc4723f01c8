//! Scratch memory of convolutions, and the search for a plan.
//!
//! PyTorch allocates the plan's workspace at each call, frees it after, and takes another plan where it is out of memory
//! (aten/src/ATen/native/cudnn/Conv_v8.cpp, `run_conv_plan`, `run_single_conv`). Which plan it is depends on
//! `torch.backends.cudnn.benchmark`: the first of cuDNN's heuristics (`heuristics`), or the fastest of all.
//!
//! **The fastest.** Tensor-core kernels of cuDNN read channels innermost (NHWC). For tensors laid out the other way cuDNN copies
//! the operands into workspace first (kernel names in public profiles: nhwc input, krsc filter, separate conversion kernels;
//! NVIDIA's performance guide: "NCHW pays automatic transposes"). Forward needs the input, the gradient of the filter both
//! activations, that of the input the output's gradient. Pointwise kernels run as matrix products on NCHW, and
//! narrow layers and groups on other kernels. Which layers take part was found on published peaks of 231
//! convolutional networks on an A100 (GPUMemNet's measurements), by shape alone; docs/accuracy.md says how well it holds.
//!
//! **Search.** With `torch.backends.cudnn.benchmark` each convolution that is met for the first time is run with every plan
//! on offer, in scratch memory of the largest plan that fits (Conv_v8.cpp, `get_valid_plans`, `run_single_conv`), after which the
//! allocator's cache is emptied. Families with large scratch memory are FFT in tiles of 32 x 32 (half spectra of complex
//! float32, 4,352 bytes a tile) and Winograd F(4x4, 3x3) that is not fused (36 values a tile); both are for stride one.
//!
//! That is on NVIDIA's cards; `miopen` is about AMD's.

use super::layouts::Layouts;
use super::record::Node;
use super::strides::Dims;
use super::tape::{Meta, Tape, TensorRef};
use super::{cublas, heuristics, miopen};
use crate::devices::Generation;
use crate::{Category, Plan};
use memfit_graph::{Bytes, DType, elements};
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
    /// AMD's family of chips, whose library is another.
    amd: Option<Generation>,
    met: HashSet<(Pass, Dims, Dims, Dims)>,
}

/// The first whose half precision convolutions run on tensor cores.
pub(super) const VOLTA: (u32, u32) = (7, 0);
/// The card where none is named: the first whose bfloat16 and float32 convolutions run on tensor cores.
pub(super) const AMPERE: (u32, u32) = (8, 0);
/// Cards for games and workstations.
const ADA: (u32, u32) = (8, 9);
/// The same, later.
const BLACKWELL: (u32, u32) = (12, 0);

/// A compute capability whose kernels and libraries need the same scratch memory: the same for as many cards as can be.
pub(crate) fn alike(capability: (u32, u32)) -> (u32, u32) {
    let traits = |card| {
        let since = [VOLTA, AMPERE, cublas::HOPPER].map(|first| card >= first);
        (since, cublas::is_large(card), heuristics::has_fast_tf32(card))
    };
    let known = [(0, 0), VOLTA, AMPERE, ADA, cublas::HOPPER, BLACKWELL];
    known.into_iter().find(|card| traits(*card) == traits(capability)).unwrap_or(capability)
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
            amd: plan.amd,
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

    /// The elements that a kernel holds beside its operands.
    fn scratch(&self, sizes: &Sizes, pass: Pass, dtype: DType, is_channels_last: bool) -> u64 {
        match self.amd {
            None if !self.benchmark => {
                heuristics::scratch(sizes, pass, dtype, self.capability, is_channels_last)
            }
            _ if is_channels_last => 0,
            Some(generation) => miopen::copies(generation, sizes),
            None if self.on_tensor_cores(dtype) => sizes.copies(pass, 16 / dtype.size_of(1).0.max(1)),
            None => 0,
        }
    }

    /// The largest scratch memory that a plan on trial asks for, copies aside. The families with much of it read channels first.
    fn trial(&self, sizes: &Sizes, shapes: [&[u64]; 3], is_channels_last: bool) -> u64 {
        if is_channels_last || self.amd.is_some() { 0 } else { trial(sizes, shapes) }
    }

    /// Whether plans are compared for a convolution that is met for the first time.
    fn searches(&self) -> bool {
        self.benchmark || self.amd.is_some()
    }
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
    #[cfg(test)]
    pub(super) fn read(shapes: [&[u64]; 3]) -> Option<Sizes> {
        Sizes::of(shapes, shapes.map(elements))
    }

    /// Of input, filter and output, and how many elements each has.
    fn of([x, w, y]: [&[u64]; 3], [input, filter, output]: [u64; 3]) -> Option<Sizes> {
        let ([_, channels, ..], [_, per_group, window @ ..], [_, outputs, ..]) = (x, w, y) else {
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

    /// Whether PyTorch's own kernel runs it: a filter for each channel (aten/src/ATen/native/Convolution.cpp, `is_depthwise`;
    /// `use_cudnn_depthwise` sends half precision to cuDNN where shapes allow).
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

    /// The elements of the copies that a kernel makes of its operands.
    fn copies(&self, pass: Pass, vector: u64) -> u64 {
        let per_group = self.channels / self.groups;
        let is_image = self.is_image();
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

/// Whether a filter moves by one: that keeps the map's size, up to padding.
fn has_unit_stride(x: &[u64], w: &[u64], y: &[u64]) -> bool {
    x.iter().zip(w).zip(y).skip(2).all(|((x, w), y)| y.saturating_add(*w) > *x)
}

/// The largest scratch memory among the plans that a search may try.
fn trial(sizes: &Sizes, [x, w, y]: [&[u64]; 3]) -> u64 {
    let (&[batch, c, ..], &[_, _, r, s], &[_, k, p, q]) = (x, w, y) else {
        return 0;
    };
    if sizes.groups > 1 || !has_unit_stride(x, w, y) || r > FFT_LARGEST || s > FFT_LARGEST {
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

    /// What one product of a convolution holds while it runs; its result has been allocated. An input that is part of another
    /// tensor, or whose axes are in another order, is read from a copy (aten/src/ATen/native/cudnn/ConvShared.cpp,
    /// `cudnn_convolution_forward`, `cudnn_convolution_backward_weight`).
    fn convolve(&mut self, pass: Pass, operands: [Meta; 3]) {
        let [x, ..] = operands;
        let copies = self.kernels.is_some() && pass != Pass::Input && !self.layouts.is_plain(x.layout);
        let copy = copies.then(|| self.new_storage(x.layout, x.dtype, Category::Transient, "contiguous"));
        self.run_kernel(pass, operands);
        if let Some(copy) = copy {
            self.memory.release(copy);
        }
    }

    /// The search for a kernel's plan, and its scratch memory.
    fn run_kernel(&mut self, pass: Pass, operands: [Meta; 3]) {
        let layouts: &Layouts = &self.layouts;
        let [shape_x, shape_w, shape_y] = operands.map(|meta| layouts.shape(meta.layout));
        let shapes = [shape_x, shape_w, shape_y];
        let Some(kernels) = self.kernels.as_mut() else { return };
        let Some(sizes) = Sizes::of(shapes, operands.map(|meta| layouts.elements(meta.layout))) else {
            return;
        };
        let [x, ..] = operands;
        let element = x.dtype.size_of(1).0;
        if sizes.is_depthwise() && element >= 4 {
            return;
        }
        let is_new = || (pass, shape_x.into(), shape_w.into(), shape_y.into());
        let searches = kernels.searches() && kernels.met.insert(is_new());
        let is_channels_last = kernels.channels_last || layouts.is_channels_last(x.layout);
        let scratch = kernels.scratch(&sizes, pass, x.dtype, is_channels_last).saturating_mul(element);
        if searches {
            let trial = kernels.trial(&sizes, shapes, is_channels_last);
            self.memory.search(Bytes(trial.max(scratch)));
        }
        if scratch > 0 {
            self.memory.scratch(Bytes(scratch), "convolution");
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
        let plan = Plan { compute_capability: Some(card), cudnn_benchmark: true, ..Plan::default() };
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
    fn half_of_a_map_is_copied_where_a_kernel_reads_it() {
        let mut tape = Tape::new(None, true);
        tape.kernels = Some(Kernels::of(&Plan { cudnn_benchmark: true, ..Plan::default() }));
        let whole = tape.layouts.contiguous(&[2, 128, 56, 56]);
        let [x, w, y] = [[2, 64, 56, 56], [64, 64, 1, 1], [2, 64, 56, 56]]
            .map(|shape| meta(&mut tape, &shape, DType::Float32));
        let half = Meta { layout: tape.layouts.joined(x.layout, whole), ..x };
        for pass in [Pass::Forward, Pass::Input, Pass::Filter] {
            tape.convolve(pass, [half, w, y]);
        }
        let copies = tape.memory.into_timeline().storages;
        assert_eq!(copies.iter().map(|s| s.bytes.0).collect::<Vec<_>>(), [4 * 2 * 64 * 56 * 56; 2]);
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
