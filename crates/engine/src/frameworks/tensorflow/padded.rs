//! Images that XLA pads for cuDNN, which knows only padding that is the same on both sides.
//!
//! Of "same" padding the odd element goes to the end (framework/common_shape_fn.cc, `GetWindowedOutputSizeVerbose`): a window of three
//! that goes two ahead over an even length. XLA gives a convolution an image that is padded on all sides, the filter's gradient
//! one that is padded by the odd element, and lets the image's gradient be an element longer, of which its readers take a slice
//! (xla/service/gpu/transforms/conv_padding_legalization.cc): a window of five has two padded images, which live one after
//! the other. Kernels do not say their strides and padding, lengths do.

use super::turned::viewed;
use super::{Flow, Place, Wire};
use memfit_graph::DType;
use memfit_graph::kernels::{Kernel, Made, Stage};
use std::collections::BTreeMap;

/// Convolutions, the gradients of their filters and of their images.
const CONVOLUTIONS: &[[&str; 3]] = &[
    ["Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput"],
    ["Conv3D", "Conv3DBackpropFilterV2", "Conv3DBackpropInputV2"],
    ["DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropInput"],
];

/// Lets convolutions read what zeros were put around, where there are as many on both sides: they pad by themselves
/// (xla/hlo/transforms/simplifiers/algebraic_simplifier.cc, `FoldConvInputPad`).
pub(super) fn fold(flow: &mut Flow) {
    for at in 0..flow.kernels.len() {
        let kernel = &flow.kernels[at];
        let Some(pad) = kernel.inputs.first().copied().filter(|_| is_convolution(kernel.name)) else {
            continue;
        };
        let from = flow.kernel(pad);
        let Some(x) = from.inputs.first().copied().filter(|_| from.name == "Pad") else { continue };
        let grown = flow.shape(pad).iter().zip(flow.shape(x)).map(|(padded, n)| padded.saturating_sub(*n));
        if grown.into_iter().all(|n| n % 2 == 0) {
            flow.kernels[at].inputs[0] = x;
        }
    }
}

fn is_convolution(name: &str) -> bool {
    CONVOLUTIONS.iter().any(|names| names[..2].contains(&name))
}

/// Pads what is read by convolutions whose padding is not the same on both sides.
pub(super) fn pad(flow: &mut Flow) {
    let mut padded: BTreeMap<(Wire, Vec<u64>), Wire> = BTreeMap::new();
    for at in 0..flow.kernels.len() {
        let Some((image, shape)) = asymmetric(flow, &flow.kernels[at]) else { continue };
        let Some(image) = image else {
            flow.kernels[at].outputs[0].shape = shape;
            compare(flow, Wire { kernel: u32::try_from(at).unwrap_or(u32::MAX), output: 0 });
            continue;
        };
        let kernel = &flow.kernels[at];
        let x = kernel.inputs[image];
        let (layer, stage, dtype) = (kernel.layer, kernel.stage, flow.dtype(x));
        let pad = padded.entry((x, shape.clone())).or_insert_with(|| {
            let made = Made { shape, dtype, place: Place::New };
            let pad = flow.push("Pad", &[x], vec![made], None);
            let kernel = &mut flow.kernels[pad.kernel as usize];
            (kernel.stage, kernel.layer) = (stage, layer);
            pad
        });
        flow.kernels[at].inputs[image] = *pad;
    }
}

/// Lets the gradient of an activation read what forward compared, where the activation is of a slice of a transposed convolution's result:
/// that is compared beside the activation, and is not there any more (traced with the XLA of JAX 0.10.2, for leaky ReLUs).
fn compare(flow: &mut Flow, of: Wire) {
    if flow.kernel(of).stage != Stage::Forward {
        return;
    }
    let is_slice = |flow: &Flow, mut wire: Wire| {
        wire = viewed(flow, wire);
        if let ("BiasAdd" | "AddV2", [x, _]) = (flow.kernel(wire).name, &flow.kernel(wire).inputs[..]) {
            wire = viewed(flow, *x);
        }
        wire == of
    };
    let gradients = flow.kernels.iter().enumerate().filter(|(_, kernel)| {
        matches!(kernel.name, "LeakyReluGrad" | "ReluGrad")
            && kernel.inputs.last().is_some_and(|x| is_slice(flow, *x))
    });
    for at in gradients.map(|(at, _)| at).collect::<Vec<_>>() {
        let Some(x) = flow.kernels[at].inputs.last().copied() else { continue };
        let made = Made { shape: flow.shape(x).to_vec(), dtype: DType::Bool, place: Place::New };
        let layer = flow.kernel(x).layer;
        let mask = flow.push("Compared", &[x], vec![made], None);
        let kernel = &mut flow.kernels[mask.kernel as usize];
        (kernel.stage, kernel.layer) = (Stage::Forward, layer);
        flow.kernels[at].inputs.last_mut().into_iter().for_each(|wire| *wire = mask);
    }
}

/// The image that a kernel reads of which an axis needs one more element at its end than at its begin, none where it is the output;
/// and its new shape.
fn asymmetric(flow: &Flow, kernel: &Kernel) -> Option<(Option<usize>, Vec<u64>)> {
    let role = CONVOLUTIONS.iter().find_map(|names| names.iter().position(|name| *name == kernel.name))?;
    let ([a, b], made) = (kernel.inputs.first_chunk()?, &kernel.outputs.first()?.shape[..]);
    // A transposed convolution is the gradient of one and reads these the other way around.
    [[0, 1], [1, 0]].into_iter().find_map(|[first, second]| {
        let [x, y] = [first, second].map(|i: usize| flow.shape([*a, *b][i]));
        let (image, odd) = match role {
            0 => (x, padding_of(x, y, made)?),
            1 => (x, padding_of(x, made, y)?),
            _ => (made, padding_of(made, x, y)?),
        };
        let grown = |(n, p): (&u64, &u64)| n.saturating_add(if role == 0 { *p } else { p % 2 });
        let [batch, lengths @ .., depth] = image else { return None };
        let lengths = lengths.iter().zip(&odd).map(grown);
        let shape = [*batch].into_iter().chain(lengths).chain([*depth]).collect();
        Some(((role < 2).then_some(first), shape))
    })
}

/// How many elements "same" padding adds to each length of an image, channels last, where one of them is odd.
pub(super) fn padding_of(x: &[u64], filter: &[u64], y: &[u64]) -> Option<Vec<u64>> {
    let (window, channels) = filter.split_last_chunk::<2>()?;
    let ([batch, lengths @ .., depth], [same, made @ .., _]) = (x, y) else { return None };
    let is_one = batch == same && channels.first() == Some(depth);
    if !is_one || lengths.len() != window.len() || made.len() != window.len() {
        return None;
    }
    let of = |((n, k), m): ((&u64, &u64), &u64)| padding(*n, *k, *m).unwrap_or(0);
    let added: Vec<u64> = lengths.iter().zip(window).zip(made).map(of).collect();
    added.iter().any(|p| p % 2 == 1).then_some(added)
}

/// How many elements "same" padding adds to a length, where it is that rather than none.
fn padding(length: u64, window: u64, made: u64) -> Option<u64> {
    let stride = length.div_ceil(made.max(1));
    let inside = length.checked_sub(window)? + 1;
    let is_valid = inside.div_ceil(stride.max(1)) == made && made != length;
    let is_same = stride > 0 && length.div_ceil(stride) == made;
    let reach = (made.checked_sub(1)?).saturating_mul(stride).saturating_add(window);
    (is_same && !is_valid).then(|| reach.saturating_sub(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_padding_of_an_even_length_is_one_more_at_the_end() {
        // A window of three, two ahead: nothing before, one element behind.
        assert_eq!(padding(64, 3, 32), Some(1));
        assert_eq!(padding(224, 7, 112), Some(5));
        // One ahead it is one on both sides; an odd length has one on both sides too.
        assert_eq!((padding(64, 3, 64), padding(65, 3, 33)), (Some(2), Some(2)));
        // Without padding.
        assert_eq!((padding(65, 3, 32), padding(96, 8, 12), padding(64, 3, 62)), (None, None, None));
    }

    #[test]
    fn as_many_zeros_on_both_sides_are_the_convolutions_own() {
        let reads = |length: u64| {
            let mut flow = Flow::default();
            let float = DType::Float32;
            let x = flow.make("X", &[], &[2, 8, 8, 4], float, None);
            let filter = flow.make("W", &[], &[3, 3, 4, 16], float, None);
            let padded = flow.make("Pad", &[x], &[2, length, length, 4], float, None);
            let y = flow.make("Conv2D", &[padded, filter], &[2, length - 2, length - 2, 16], float, None);
            fold(&mut flow);
            flow.kernel(y).inputs[0] == x
        };
        assert_eq!([9, 10, 11].map(reads), [false, true, false]);
    }

    #[test]
    fn an_image_is_padded_once_for_a_convolution_and_its_gradient() {
        let mut flow = Flow::default();
        let float = DType::Float32;
        let x = flow.make("X", &[], &[2, 8, 8, 4], float, None);
        let filter = flow.make("W", &[], &[3, 3, 4, 16], float, None);
        let y = flow.make("Conv2D", &[x, filter], &[2, 4, 4, 16], float, None);
        let dw = flow.make("Conv2DBackpropFilter", &[x, y], &[3, 3, 4, 16], float, None);
        pad(&mut flow);
        let read = [y, dw].map(|wire| flow.kernel(wire).inputs[0]);
        assert_eq!((read[0], flow.shape(read[0])), (read[1], &[2, 9, 9, 4][..]));
        assert_eq!(flow.kernel(read[0]).inputs, [x]);
    }

    #[test]
    fn a_larger_window_pads_on_all_sides_in_forward_alone() {
        let mut flow = Flow::default();
        let float = DType::Float32;
        let x = flow.make("X", &[], &[2, 8, 8, 4], float, None);
        let filter = flow.make("W", &[], &[5, 5, 4, 16], float, None);
        let y = flow.make("Conv2D", &[x, filter], &[2, 4, 4, 16], float, None);
        let dw = flow.make("Conv2DBackpropFilter", &[x, y], &[5, 5, 4, 16], float, None);
        let dx = flow.make("Conv2DBackpropInput", &[filter, y], &[2, 8, 8, 4], float, None);
        pad(&mut flow);
        let read = [y, dw].map(|wire| flow.shape(flow.kernel(wire).inputs[0])[1]);
        assert_eq!((read, flow.shape(dx)), ([11, 9], &[2, 9, 9, 4][..]));
    }

    #[test]
    fn a_transposed_convolutions_activation_is_compared_in_forward() {
        let mut flow = Flow::default();
        let x = flow.make("X", &[], &[2, 4, 4, 16], DType::Float32, None);
        let filter = flow.make("W", &[], &[3, 3, 4, 16], DType::Float32, None);
        let y = flow.make("Conv2DBackpropInput", &[x, filter], &[2, 8, 8, 4], DType::Float32, None);
        let bias = flow.make("B", &[], &[4], DType::Float32, None);
        let y = flow.bias_add(y, bias);
        let read = flow.unary("LeakyRelu", y);
        flow.stage = Stage::Backward;
        let dx = flow.reuse("LeakyReluGrad", &[read, y], &[2, 8, 8, 4], DType::Float32, None);
        pad(&mut flow);
        let mask = flow.kernel(dx).inputs[1];
        assert_eq!((flow.dtype(mask), &flow.kernel(mask).inputs[..]), (DType::Bool, &[y][..]));
    }
}
