//! What a convolution's kernel holds on a GPU while it runs, beside what it reads and makes.
//!
//! **Always.** Keras' filters have their outputs last, cuDNN's first, so each kernel turns its filter
//! (core/kernels/conv_ops_impl.h, `transformed_filter`; conv_grad_filter_ops.cc, `pre_transformed_filter_backprop`, 2.16). The input's gradient
//! is not made in the output that was allocated for it but in a buffer that takes its place in the end (conv_grad_input_ops.h,
//! `pre_transformed_in_backprop`). Padding that is not the same on both sides is done by a copy of the input, and undone by one of its
//! gradient. Where maps have their channels last, cuDNN computes so on tensor cores alone (conv_ops_gpu.cc, `ComputeInNhwcEnabled`);
//! otherwise all maps are turned as well. A filter of one point over such maps is a plain product, which needs nothing.
//!
//! **Where there is room.** The plan's scratch memory, of at most 4 GiB: plans are compared when a convolution runs for the first time, and
//! the fastest stays; another runs where its memory cannot be had (gpu_utils.h, `AllocateScratchOrFallback`). Under XLA that memory is part
//! of the step's.
//!
//! None of this is seen where TensorFlow runs on a CPU.

use super::super::cudnn::{self, Pass, Sizes, fastest, miopen};
use super::Flow;
use super::padded::padding_of;
use crate::Plan;
use memfit_graph::kernels::Kernel;
use memfit_graph::{DType, elements};

/// The kernels, and what each makes.
const KERNELS: &[(&str, Pass)] = &[
    ("Conv2D", Pass::Forward),
    ("Conv3D", Pass::Forward),
    ("Conv2DBackpropInput", Pass::Input),
    ("Conv3DBackpropInputV2", Pass::Input),
    ("Conv2DBackpropFilter", Pass::Filter),
    ("Conv3DBackpropFilterV2", Pass::Filter),
];

/// What a convolution's kernel makes, where it is one that cuDNN runs; TensorFlow has kernels of its own for a filter a channel.
pub(super) fn pass(name: &str) -> Option<Pass> {
    KERNELS.iter().find(|(known, _)| *known == name).map(|(_, pass)| *pass)
}

/// The most scratch memory of a plan in bytes (core/kernels/conv_ops_gpu.h, `GetDnnWorkspaceLimitOrDefault`).
const LARGEST: u64 = 4 << 30;

/// Bytes that a kernel holds while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) needed: u64,
    /// What it does without where it cannot be had.
    pub(super) optional: u64,
}

/// A convolution's operands, channels last; the filter's axes are the window's, inputs, outputs.
struct Operands<'a> {
    image: &'a [u64],
    filter: &'a [u64],
    map: &'a [u64],
}

impl Operands<'_> {
    fn of<'a>(flow: &'a Flow, kernel: &'a Kernel, pass: Pass) -> Option<Operands<'a>> {
        let (&[first, second, ..], made) = (&kernel.inputs[..], &kernel.outputs.first()?.shape[..]) else {
            return None;
        };
        let [first, second] = [flow.shape(first), flow.shape(second)];
        // A gradient kernel reads the filter first.
        let (filter, read) = if kernel.gradient_of.is_some() { (first, second) } else { (second, first) };
        Some(match pass {
            Pass::Forward => Operands { image: read, filter, map: made },
            Pass::Input => Operands { image: made, filter, map: read },
            // That of a transposed convolution has them in the other order.
            Pass::Filter if elements(inner(first)) < elements(inner(second)) => {
                Operands { image: second, filter: made, map: first }
            }
            Pass::Filter => Operands { image: first, filter: made, map: second },
        })
    }

    /// Whether TensorFlow calls a plain product: a point for a filter that moves by one, or one as large as the image.
    fn is_product(&self) -> bool {
        let window = self.filter.get(..self.filter.len().saturating_sub(2)).unwrap_or(&[]);
        let same = inner(self.image) == inner(self.map);
        let whole = window == inner(self.image) && elements(inner(self.map)) == 1;
        self.filter.iter().rev().nth(1) == self.image.last() && (elements(window) == 1 && same || whole)
    }

    /// Image, filter and map as cuDNN has them, channels and outputs first.
    fn turned(&self) -> Option<[Vec<u64>; 3]> {
        let first = |shape: &[u64]| match *shape {
            [batch, ref inner @ .., channels] => Some([&[batch, channels], inner].concat()),
            _ => None,
        };
        let (window, [from, to]) = self.filter.split_last_chunk::<2>()?;
        Some([first(self.image)?, [&[*to, *from], window].concat(), first(self.map)?])
    }
}

/// The axes between batch and channels.
fn inner(shape: &[u64]) -> &[u64] {
    shape.get(1..shape.len().saturating_sub(1)).unwrap_or(&[])
}

/// How the step's convolutions run on a card.
pub(super) struct Convolutions {
    capability: Option<(u32, u32)>,
    amd: Option<crate::devices::Generation>,
    xla: bool,
    /// Whether grappler turns maps.
    turns: bool,
}

impl Convolutions {
    /// None where no card is known.
    pub(super) fn of(plan: &Plan) -> Option<Convolutions> {
        let (capability, amd) = (plan.compute_capability, plan.amd);
        let is_known = capability.is_some() || amd.is_some();
        (is_known && !plan.as_fake_tensors).then_some(Convolutions {
            capability,
            amd,
            xla: plan.xla,
            turns: plan.grappler && !plan.eager && !plan.xla,
        })
    }

    /// What a kernel holds.
    pub(super) fn held(&self, flow: &Flow, kernel: &Kernel) -> Held {
        let operands = pass(kernel.name).and_then(|pass| Some((pass, Operands::of(flow, kernel, pass)?)));
        let dtype = kernel.outputs.first().map_or(DType::Float32, |made| made.dtype);
        operands.and_then(|(pass, operands)| self.held_by(pass, &operands, dtype)).unwrap_or_default()
    }

    fn held_by(&self, pass: Pass, operands: &Operands<'_>, dtype: DType) -> Option<Held> {
        let on_tensor_cores = self.capability.is_some_and(|card| cudnn::on_tensor_cores(dtype, card));
        // generic_layout_optimizer.cc, `GetSrcAndDstDataFormats`; HeuristicLayoutAssignment in XLA's layout_assignment.cc
        let channels_first = (self.turns || self.xla) && !(dtype.is_half() && on_tensor_cores);
        let is_product = operands.is_product();
        if is_product && !channels_first {
            return Some(Held::default());
        }
        let shapes = operands.turned()?;
        let shapes = [0, 1, 2].map(|i| &shapes[i][..]);
        let sizes = Sizes::read(shapes)?;
        let element = dtype.size_of(1).0;
        let scratch = match (self.capability, self.amd) {
            (Some(card), _) if channels_first => fastest::scratch(&sizes, pass, dtype, card, shapes),
            (_, Some(generation)) if channels_first => {
                miopen::copies(generation, &sizes).saturating_mul(element)
            }
            _ => 0,
        };
        // A plan that asks for more is not taken; the next is taken to come close.
        let scratch = scratch.min(LARGEST);
        if self.xla {
            return Some(Held { needed: scratch, optional: 0 });
        }
        // An odd element of padding is a copy's; the rest is the same on both sides.
        let padded = padding_of(operands.image, operands.filter, operands.map).map(|added| {
            let grown = inner(operands.image).iter().zip(&added).map(|(n, p)| n.saturating_add(p % 2));
            let ends = [operands.image.first(), operands.image.last()].into_iter().flatten().copied();
            grown.chain(ends).fold(1, u64::saturating_mul)
        });
        let is_turned = !channels_first && !on_tensor_cores;
        let turned = |channels: Option<&u64>, n: u64| {
            if is_turned && channels.is_some_and(|c| *c > 1) { n } else { 0 }
        };
        let image = padded.unwrap_or(sizes.input);
        let around = [
            sizes.filter,
            match pass {
                Pass::Forward | Pass::Filter => padded.unwrap_or(0),
                Pass::Input => image.saturating_add(padded.map_or(0, |_| sizes.input)),
            },
            match pass {
                Pass::Forward | Pass::Filter => turned(operands.image.last(), image),
                Pass::Input => 0,
            },
            match pass {
                Pass::Forward if is_turned => sizes.output,
                Pass::Forward => 0,
                Pass::Input | Pass::Filter => turned(operands.map.last(), sizes.output),
            },
        ];
        let needed = around.into_iter().fold(0, u64::saturating_add).saturating_mul(element);
        Some(Held { needed, optional: scratch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASCAL: (u32, u32) = (6, 1);
    const AMPERE: (u32, u32) = (8, 0);

    fn on(card: (u32, u32), plan: Plan) -> Convolutions {
        Convolutions::of(&Plan { compute_capability: Some(card), xla: false, ..plan }).unwrap()
    }

    /// What forward and the gradients of input and filter hold, of an image, a filter and a map.
    fn held(of: &Convolutions, shapes: [&[u64]; 3], dtype: DType) -> [Held; 3] {
        let mut flow = Flow::default();
        let [image, filter] = [shapes[0], shapes[1]].map(|shape| flow.make("Const", &[], shape, dtype, None));
        let y = flow.convolution("Conv2D", image, filter, shapes[2]);
        flow.gradient_of = Some(y.kernel);
        let dx = flow.make("Conv2DBackpropInput", &[filter, y], shapes[0], dtype, None);
        let dw = flow.make("Conv2DBackpropFilter", &[image, y], shapes[1], dtype, None);
        [y, dx, dw].map(|wire| of.held(&flow, flow.kernel(wire)))
    }

    #[test]
    fn an_inputs_gradient_is_made_twice() {
        // The first stage of a ResNet on a card without tensor cores.
        let shapes: [&[u64]; 3] = [&[32, 56, 56, 64], &[3, 3, 64, 64], &[32, 56, 56, 64]];
        let (map, filter) = (32 * 56 * 56 * 64, 9 * 64 * 64);
        let winograd = 144 * (2 * 64 * 32 * 14 * 14 + 64 * 64);
        let of = on(PASCAL, Plan::default());
        let needed = held(&of, shapes, DType::Float32).map(|held| {
            assert_eq!(held.optional, winograd);
            held.needed
        });
        assert_eq!(needed, [4 * filter, 4 * (filter + map), 4 * filter]);
        // Tensor cores read copies instead, XLA plans for these alone.
        let copies = held(&on(AMPERE, Plan::default()), shapes, DType::Float32).map(|held| held.optional);
        assert_eq!(copies, [4 * map, 6 * map + 4 * filter, 4 * (4 * map + filter)]);
        let of = Plan { xla: true, compute_capability: Some(AMPERE), ..Plan::default() };
        let xla = held(&Convolutions::of(&of).unwrap(), shapes, DType::Float32);
        assert_eq!(xla, copies.map(|needed| Held { needed, optional: 0 }));
    }

    #[test]
    fn uneven_padding_is_a_copy() {
        let shapes: [&[u64]; 3] = [&[2, 64, 64, 16], &[3, 3, 16, 32], &[2, 32, 32, 32]];
        let (image, padded, filter) = (2 * 64 * 64 * 16, 2 * 65 * 65 * 16, 9 * 16 * 32);
        let needed = held(&on(PASCAL, Plan::default()), shapes, DType::Float32).map(|held| held.needed / 4);
        assert_eq!(needed, [filter + padded, filter + padded + image, filter + padded]);
    }

    #[test]
    fn maps_that_grappler_leaves_are_turned_without_tensor_cores() {
        let shapes: [&[u64]; 3] = [&[2, 8, 8, 64], &[3, 3, 64, 32], &[2, 8, 8, 32]];
        let (image, map, filter) = (2 * 64 * 64, 2 * 64 * 32, 9 * 64 * 32);
        let eager = || Plan { eager: true, ..Plan::default() };
        let of = |card, dtype| held(&on(card, eager()), shapes, dtype).map(|held| held.needed);
        let all = 4 * (image + map + filter);
        assert_eq!(of(PASCAL, DType::Float32), [all; 3]);
        assert_eq!(of(AMPERE, DType::Float32), [4 * filter, 4 * (filter + image), 4 * filter]);
        assert_eq!(of((7, 0), DType::Float16), [2 * filter, 2 * (filter + image), 2 * filter]);
        // A point is a plain product where channels come last.
        let point: [&[u64]; 3] = [&[2, 8, 8, 64], &[1, 1, 64, 32], &[2, 8, 8, 32]];
        assert_eq!(held(&on(AMPERE, eager()), point, DType::Float32), [Held::default(); 3]);
        let needed = held(&on(AMPERE, Plan::default()), point, DType::Float32).map(|held| held.needed);
        assert_eq!(needed, [4 * 64 * 32, 4 * (64 * 32 + image), 4 * 64 * 32]);
    }

    #[test]
    fn a_transposed_convolution_runs_as_a_gradient() {
        let mut flow = Flow::default();
        let [small, filter] = [&[2, 4, 4, 8][..], &[2, 2, 16, 8]]
            .map(|shape| flow.make("Const", &[], shape, DType::Float32, None));
        let y = flow.convolution("Conv2DBackpropInput", small, filter, &[2, 8, 8, 16]);
        flow.gradient_of = Some(y.kernel);
        let dw = flow.make("Conv2DBackpropFilter", &[small, y], &[2, 2, 16, 8], DType::Float32, None);
        let of = on(PASCAL, Plan::default());
        let needed = [y, dw].map(|wire| of.held(&flow, flow.kernel(wire)).needed);
        assert_eq!(needed, [4 * (2 * 2 * 16 * 8 + 2 * 64 * 16), 4 * (2 * 2 * 16 * 8)]);
        assert!(Convolutions::of(&Plan::default()).is_none());
    }
}
