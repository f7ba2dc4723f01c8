//! Kernels that are other ones to XLA.
//!
//! - The gradient of a ReLU asks for its input's sign, since `max(x, 0) > 0` is `x > 0` (xla/hlo/transforms/simplifiers/
//!   algebraic_simplifier.cc, `HandleCompare`): under XLA an activation's input stays beside its output.
//! - The gradient of a largest element finds its place anew, a number for each axis (select_and_scatter_expander.cc), and is scattered
//!   over another gradient or over zeros. Where a ReLU compares with zeros of that shape, both read one tensor (hlo_cse.cc), which is
//!   made beside the ReLU and copied for the scatter.
//! - Filters of float32 are turned once for all convolutions that read them (xla/service/gpu/transforms/layout_assignment.cc).

use super::{Effect, Flow, Place, Wire};
use memfit_graph::kernels::Made;
use memfit_graph::{DType, elements};

/// Kernels that read a filter second.
const CONVOLUTIONS: &[&str] = &["Conv2D", "Conv2DBackpropInput", "Conv3D", "Conv3DBackpropInputV2"];

/// Puts what XLA runs in place of some kernels.
pub(super) fn rewrite(flow: &mut Flow) {
    let mut added = vec![false; flow.kernels.len()];
    let sums = flow.kernels.iter().filter(|kernel| kernel.name == "AddN");
    sums.flat_map(|sum| &sum.inputs).for_each(|wire| added[wire.kernel as usize] = true);
    for (at, is_added) in added.into_iter().enumerate() {
        let input = |wire: &Wire| {
            let from = flow.kernel(*wire);
            from.inputs.first().copied().filter(|_| from.name == "Relu").unwrap_or(*wire)
        };
        let kernel = &flow.kernels[at];
        match (kernel.name, &kernel.inputs[..]) {
            ("ReluGrad", inputs) => flow.kernels[at].inputs = inputs.iter().map(input).collect(),
            ("MaxPoolGrad" | "MaxPool3DGrad", &[x, y, dy]) => {
                let made = |shape: &[u64], dtype| Made { shape: shape.to_vec(), dtype, place: Place::New };
                let place = made(flow.shape(y), DType::Int32);
                let zeros = made(flow.shape(x), flow.dtype(x));
                let axes = place.shape.len();
                let mut inputs = vec![x, dy];
                let relu = Some(flow.kernel(x)).filter(|kernel| kernel.name == "Relu" && !is_added);
                if let Some(from) = relu.and_then(|relu| relu.inputs.first().copied()) {
                    let outputs = &mut flow.kernels[from.kernel as usize].outputs;
                    let first = u32::try_from(outputs.len()).unwrap_or(u32::MAX);
                    inputs.extend([first, first.saturating_add(1)].map(|output| Wire { output, ..from }));
                    outputs.extend(vec![zeros; 2]);
                }
                flow.kernels[at].inputs = inputs;
                flow.kernels[at].outputs.extend(vec![place; axes]);
            }
            (name, [_, filter, ..]) if CONVOLUTIONS.contains(&name) && turns(flow, *filter) => {
                let read = filter.kernel as usize;
                flow.kernels[read].outputs.iter_mut().for_each(|made| made.place = Place::New);
            }
            _ => {}
        }
    }
}

/// Whether a convolution's filter is a weight that lies in another order than cuDNN's.
fn turns(flow: &Flow, filter: Wire) -> bool {
    let window = flow.shape(filter).split_last_chunk().map(|(window, _): (_, &[u64; 2])| window);
    matches!(flow.kernel(filter).effect, Effect::Read(_)) && elements(window.unwrap_or_default()) > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel of its own, that makes so many numbers of these.
    fn opaque(flow: &mut Flow, inputs: &[Wire]) -> Wire {
        flow.make("Conv2D", inputs, &[64], DType::Float32, None)
    }

    fn inputs(flow: &Flow, wire: Wire) -> Vec<Wire> {
        flow.kernel(wire).inputs.clone()
    }

    #[test]
    fn zeros_are_there_from_the_relu_to_the_pools_gradient() {
        let mut flow = Flow::default();
        let x = opaque(&mut flow, &[]);
        let y = flow.unary("Relu", x);
        let pool = flow.pool("MaxPool", y, &[16]);
        let dy = opaque(&mut flow, &[pool]);
        let dx = flow.make("MaxPoolGrad", &[y, pool, dy], &[64], DType::Float32, None);
        rewrite(&mut flow);
        let zeros = [1, 2].map(|output| Wire { output, ..x });
        assert!(zeros.iter().all(|wire| inputs(&flow, dx).contains(wire)));
        assert_eq!(zeros.map(|wire| flow.shape(wire).to_vec()), [[64], [64]]);
    }

    #[test]
    fn the_place_of_a_largest_element_is_a_number_for_each_axis() {
        let mut flow = Flow::default();
        let x = flow.make("Conv2D", &[], &[2, 8, 8, 3], DType::Float32, None);
        let y = flow.pool("MaxPool", x, &[2, 4, 4, 3]);
        let dy = opaque(&mut flow, &[y]);
        let dx = flow.make("MaxPoolGrad", &[x, y, dy], &[2, 8, 8, 3], DType::Float32, None);
        rewrite(&mut flow);
        let bytes: Vec<u64> =
            flow.kernel(dx).outputs.iter().map(|made| made.dtype.size_of(made.elements()).0).collect();
        assert_eq!(bytes, [4 * 384, 4 * 96, 4 * 96, 4 * 96, 4 * 96]);
        assert_eq!(inputs(&flow, dx), [x, dy]);
    }

    #[test]
    fn a_filter_with_a_window_is_turned() {
        let is_turned = |shape: &[u64]| {
            let mut flow = Flow::default();
            let variable = flow.variable(shape, DType::Float32, true);
            let filter = flow.read(variable);
            let x = opaque(&mut flow, &[]);
            flow.convolution("Conv2D", x, filter, &[64]);
            rewrite(&mut flow);
            flow.made(filter).place == Place::New
        };
        assert!(is_turned(&[3, 3, 8, 8]));
        // Of one by one the order of the axes is only another name.
        assert!(!is_turned(&[1, 1, 8, 8]));
    }
}
