//! Scratch memory of convolutions, and the search for a plan.
//!
//! PyTorch allocates the plan's workspace at each call, frees it after, and takes another plan where it is out of memory
//! (aten/src/ATen/native/cudnn/Conv_v8.cpp, `run_conv_plan`, `run_single_conv`). Which plan it is depends on
//! `torch.backends.cudnn.benchmark`: the first of cuDNN's heuristics (`heuristics`), or the fastest of all.
//!
//! **Search.** With `torch.backends.cudnn.benchmark` each convolution that is met for the first time is run with every plan
//! on offer, in scratch memory of the largest plan that fits (Conv_v8.cpp, `get_valid_plans`, `run_single_conv`), after which the
//! allocator's cache is emptied.
//!
//! That is on NVIDIA's cards; `miopen` is about AMD's.

use super::super::cudnn::{AMPERE, HOPPER, Pass, Sizes, VOLTA, fastest, heuristics, miopen};
use super::cublas;
use super::layouts::Layouts;
use super::record::Node;
use super::strides::Dims;
use super::tape::{Meta, Tape, TensorRef};
use crate::devices::Generation;
use crate::{Category, Plan};
use memfit_graph::{Bytes, DType};
use std::collections::HashSet;

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

/// Cards for games and workstations.
const ADA: (u32, u32) = (8, 9);
/// The same, later.
const BLACKWELL: (u32, u32) = (12, 0);

/// A compute capability whose kernels and libraries need the same scratch memory: the same for as many cards as can be.
pub(crate) fn alike(capability: (u32, u32)) -> (u32, u32) {
    let traits = |card| {
        let since = [VOLTA, AMPERE, HOPPER].map(|first| card >= first);
        (since, cublas::is_large(card), heuristics::has_fast_tf32(card))
    };
    let known = [(0, 0), VOLTA, AMPERE, ADA, HOPPER, BLACKWELL];
    known.into_iter().find(|card| traits(*card) == traits(capability)).unwrap_or(capability)
}

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

    /// The bytes that a kernel holds beside its operands.
    fn scratch(
        &self,
        sizes: &Sizes,
        pass: Pass,
        dtype: DType,
        shapes: [&[u64]; 3],
        is_channels_last: bool,
    ) -> u64 {
        let elements = match self.amd {
            None if !self.benchmark => {
                heuristics::scratch(sizes, pass, dtype, self.capability, is_channels_last)
            }
            _ if is_channels_last => 0,
            Some(generation) => miopen::copies(generation, sizes),
            None => return fastest::scratch(sizes, pass, dtype, self.capability, shapes),
        };
        elements.saturating_mul(dtype.size_of(1).0)
    }

    /// The largest scratch memory that a plan on trial asks for, copies aside. The families with much of it read channels first.
    fn trial(&self, sizes: &Sizes, shapes: [&[u64]; 3], is_channels_last: bool) -> u64 {
        if is_channels_last || self.amd.is_some() { 0 } else { fastest::trial(sizes, shapes) }
    }

    /// Whether plans are compared for a convolution that is met for the first time.
    fn searches(&self) -> bool {
        self.benchmark || self.amd.is_some()
    }
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
        let scratch = kernels.scratch(&sizes, pass, x.dtype, shapes, is_channels_last);
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
        // Float32 has tensor cores from Ampere on; before, wide layers are transformed.
        let winograd = 144 * (2 * 64 * 2 * 14 * 14 + 64 * 64);
        assert_eq!(workspace(64, 64, [64, 3, 3], DType::Float32, (7, 5)), [winograd; 3]);
        assert!(workspace(32, 32, [32, 3, 3], DType::Float32, (7, 5)).is_empty());
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
