//! Images that XLA pads for cuDNN, which knows only padding that is the same on both sides.
//!
//! Of "same" padding the odd element goes to the end (framework/common_shape_fn.cc, `GetWindowedOutputSizeVerbose`): a window of three
//! that goes two ahead over an even length. XLA puts a kernel before that pads the image, for the convolution and its filter's gradient
//! (xla/service/gpu/transforms/conv_padding_legalization.cc). Kernels do not say their strides and padding, lengths do.

use super::{Flow, Place, Wire};
use memfit_graph::kernels::{Made, Stage};
use std::collections::BTreeMap;

/// Convolutions, and their filters' gradients.
const CONVOLUTIONS: &[(&str, &str)] = &[
    ("Conv2D", "Conv2DBackpropFilter"),
    ("Conv3D", "Conv3DBackpropFilterV2"),
    ("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropFilter"),
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
    CONVOLUTIONS.iter().any(|(forward, filter)| [*forward, *filter].contains(&name))
}

/// Pads what is read by convolutions whose padding is not the same on both sides.
pub(super) fn pad(flow: &mut Flow) {
    let mut padded: BTreeMap<(Wire, Vec<u64>), Wire> = BTreeMap::new();
    for at in 0..flow.kernels.len() {
        let kernel = &flow.kernels[at];
        let of = CONVOLUTIONS.iter().find(|(forward, filter)| [*forward, *filter].contains(&kernel.name));
        let (Some((forward, _)), &[x, second, ..], Some(made)) =
            (of, &kernel.inputs[..], kernel.outputs.first())
        else {
            continue;
        };
        let (filter, y) = match kernel.name == *forward {
            true => (flow.shape(second), &made.shape[..]),
            false => (&made.shape[..], flow.shape(second)),
        };
        let Some(shape) = padded_shape(flow.shape(x), filter, y) else { continue };
        let (layer, dtype) = (kernel.layer, flow.dtype(x));
        let pad = padded.entry((x, shape.clone())).or_insert_with(|| {
            let made = Made { shape, dtype, place: Place::New };
            let pad = flow.push("Pad", &[x], vec![made], None);
            let kernel = &mut flow.kernels[pad.kernel as usize];
            (kernel.stage, kernel.layer) = (Stage::Forward, layer);
            pad
        });
        flow.kernels[at].inputs[0] = *pad;
    }
}

/// The shape of a padded image, channels last, where an axis needs one more element at its end than at its begin.
pub(super) fn padded_shape(x: &[u64], filter: &[u64], y: &[u64]) -> Option<Vec<u64>> {
    let (window, channels) = filter.split_last_chunk::<2>()?;
    let [batch, lengths @ .., depth] = x else { return None };
    let [_, made @ .., _] = y else { return None };
    if channels.first() != Some(depth) || lengths.len() != window.len() || made.len() != window.len() {
        return None;
    }
    // The convolution pads the rest, as much on both sides.
    let odd = |((n, k), m): ((&u64, &u64), &u64)| padding(*n, *k, *m).map_or(0, |p| p % 2);
    let odd: Vec<u64> = lengths.iter().zip(window).zip(made).map(odd).collect();
    if odd.iter().all(|p| *p == 0) {
        return None;
    }
    let grown = lengths.iter().zip(&odd).map(|(n, p)| n.saturating_add(*p));
    Some([*batch].into_iter().chain(grown).chain([*depth]).collect())
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
            let float = memfit_graph::DType::Float32;
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
        let float = memfit_graph::DType::Float32;
        let x = flow.make("X", &[], &[2, 8, 8, 4], float, None);
        let filter = flow.make("W", &[], &[3, 3, 4, 16], float, None);
        let y = flow.make("Conv2D", &[x, filter], &[2, 4, 4, 16], float, None);
        let dw = flow.make("Conv2DBackpropFilter", &[x, y], &[3, 3, 4, 16], float, None);
        pad(&mut flow);
        let read = [y, dw].map(|wire| flow.kernel(wire).inputs[0]);
        assert_eq!((read[0], flow.shape(read[0])), (read[1], &[2, 9, 9, 4][..]));
        assert_eq!(flow.kernel(read[0]).inputs, [x]);
    }
}
