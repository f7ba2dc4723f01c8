//! Kernels that are other ones to XLA.
//!
//! - The gradient of a ReLU asks for its input's sign, since `max(x, 0) > 0` is `x > 0` (xla/hlo/transforms/simplifiers/
//!   algebraic_simplifier.cc, `HandleCompare`): under XLA an activation's input stays beside its output.
//! - The gradient of a largest element finds its place anew, the value and a number for each axis (select_and_scatter_expander.cc), and is
//!   scattered over another gradient or over zeros. Where a ReLU compares with zeros of that shape, both read one tensor (hlo_cse.cc),
//!   which is made before the pool and copied for the scatter.
//! - The gradient of a ReLU6 asks whether a result lies between its ends, for a sum and for its input's gradient. Where the caches of all
//!   multiprocessors together hold the result, backward computes that; where they do not, it is computed beside the result and kept
//!   (gpu_performance_model_base.cc, `ReadTimeWithDRAMHeuristic`, as multi_output_fusion.cc asks it).
//! - A product has scratch memory of cuBLAS' among the step's buffers while it runs, unless it is one of a vector.
//! - Softmax and what is made of it in a row do not write over what they read.

use super::{Flow, Place, Wire};
use memfit_graph::DType;
use memfit_graph::kernels::{Kernel, Made, Stage};
use std::collections::BTreeSet;

/// Kernels that read a row several times while they write it: a fusion of theirs cannot write over what it reads.
const ALL_AT_ONCE: &[&str] =
    &["Softmax", "LogSoftmax", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"];

/// Bytes that XLA gives cuBLAS for a product (xla/service/gpu/transforms/gemm_rewriter.cc, `GemmConfig::kDefaultWorkspace`).
const SCRATCH: u64 = 4 << 20;

/// Bytes of the caches of all multiprocessors: an A100.
const CACHES: u64 = 108 * (192 << 10);

/// Adds a kernel of a layer; gives its outputs.
fn add(
    flow: &mut Flow,
    stage: Stage,
    layer: u32,
    (name, inputs, outputs): (&'static str, &[Wire], Vec<Made>),
) -> Vec<Wire> {
    let first = flow.push(name, inputs, outputs, None);
    let kernel = &mut flow.kernels[first.kernel as usize];
    (kernel.stage, kernel.layer) = (stage, layer);
    flow.outputs(first)
}

/// The zeros that a pool's gradient is scattered over, and those that ReLUs of that shape compare with: made with the first ReLU whose
/// result is there, else before the kernels that compare what the pool reads.
fn zeros_for(flow: &mut Flow, x: Wire, of_x: [Wire; 2], zeros: Made) -> Vec<Wire> {
    let layer = flow.kernel(of_x[0]).layer;
    if !compares(flow, x) || zeros.shape.len() < 4 {
        return add(flow, Stage::Backward, layer, ("Zeros", &[], vec![zeros]));
    }
    let is_read = |at: u32| {
        let mut readers = flow.kernels.iter().filter(|kernel| {
            kernel.inputs.contains(&Wire { kernel: at, output: 0 }) && kernel.name.contains("Conv")
        });
        readers.next().is_some()
    };
    let mut alike = (0..x.kernel).filter(|at| {
        let wire = Wire { kernel: *at, output: 0 };
        compares(flow, wire) && flow.shape(wire) == zeros.shape && flow.dtype(wire) == zeros.dtype
    });
    let Some(first) = alike.find(|at| is_read(*at)) else {
        let zeros = add(flow, Stage::Forward, layer, ("Zeros", &[], vec![zeros; 2]));
        of_x.iter().for_each(|wire| flow.kernels[wire.kernel as usize].after.push(zeros[0].kernel));
        return zeros;
    };
    let shared = Wire { kernel: first, output: 1 };
    let outputs = &mut flow.kernels[first as usize].outputs;
    if outputs.len() == 1 {
        outputs.push(zeros.clone());
    }
    let mut both = add(flow, Stage::Backward, layer, ("Copy", &[shared], vec![zeros]));
    both.push(shared);
    both
}

/// Whether a matrix is multiplied with a vector, or a vector with one: products and sums of those, no call of a library
/// (xla/hlo/transforms/simplifiers/algebraic_simplifier.cc, `HandleDotStrengthReduction`).
fn is_of_vector(flow: &Flow, inputs: &[Wire], made: &[Made]) -> bool {
    let ([a, b], [made, ..]) = (inputs, made) else { return false };
    let all = u128::from(flow.made(*a).elements()) * u128::from(flow.made(*b).elements());
    // The length over which is summed, squared.
    let inner = all.checked_div(made.elements().into());
    inner == Some(1) || made.shape.iter().rev().take(2).any(|n| *n == 1)
}

/// Whether a tensor is that of a ReLU.
fn compares(flow: &Flow, wire: Wire) -> bool {
    wire.output == 0 && matches!(flow.kernel(wire).name, "Relu" | "Relu6")
}

/// Puts what XLA runs in place of some kernels.
pub(super) fn rewrite(flow: &mut Flow) {
    let mut added = vec![false; flow.kernels.len()];
    let sums = flow.kernels.iter().filter(|kernel| kernel.name == "AddN");
    sums.flat_map(|sum| &sum.inputs).for_each(|wire| added[wire.kernel as usize] = true);
    let is_call = |kernel: &&Kernel| kernel.name.contains("Conv") || kernel.name.contains("MatMul");
    let read_by_calls: BTreeSet<Wire> =
        flow.kernels.iter().filter(is_call).flat_map(|kernel| kernel.inputs.iter().copied()).collect();
    for (at, is_added) in added.into_iter().enumerate() {
        let input = |wire: &Wire| {
            let from = flow.kernel(*wire);
            from.inputs.first().copied().filter(|_| from.name == "Relu").unwrap_or(*wire)
        };
        let kernel = &flow.kernels[at];
        match (kernel.name, &kernel.inputs[..]) {
            ("ReluGrad", inputs) => flow.kernels[at].inputs = inputs.iter().map(input).collect(),
            ("Relu6Grad", &[dy, y])
                if flow.made(y).dtype.size_of(flow.made(y).elements()).0 > CACHES
                    && read_by_calls.contains(&y) =>
            {
                let mask = Made { shape: flow.shape(y).to_vec(), dtype: DType::Bool, place: Place::New };
                let layer = flow.kernel(y).layer;
                let mask = add(flow, Stage::Forward, layer, ("LogicalAnd", &[y], vec![mask]));
                flow.kernels[at].inputs = vec![dy, mask[0]];
            }
            ("MaxPoolGrad" | "MaxPool3DGrad", &[x, y, dy]) => {
                let made = |shape: &[u64], dtype| Made { shape: shape.to_vec(), dtype, place: Place::New };
                // One axis is two to XLA.
                let axes = flow.shape(y).len().max(4);
                let mut places = vec![made(flow.shape(y), DType::Int32); axes + 1];
                places[0].dtype = flow.dtype(y);
                let zeros = made(flow.shape(x), flow.dtype(x));
                let layer = kernel.layer;
                let places = add(flow, Stage::Backward, layer, ("MaxPoolPlace", &[x], places));
                let mut inputs = vec![dy];
                if !is_added {
                    let zeros = zeros_for(flow, x, [y, places[0]], zeros);
                    inputs.splice(0..0, zeros);
                    flow.kernels[at].outputs.iter_mut().for_each(|made| made.place = Place::Reuse);
                }
                inputs.extend(&places[1..]);
                flow.kernels[at].inputs = inputs;
            }
            ("MatMul", inputs) if is_of_vector(flow, inputs, &kernel.outputs) => {}
            ("MatMul" | "BatchMatMulV2", _) => {
                let scratch = Made { shape: vec![SCRATCH], dtype: DType::Int8, place: Place::New };
                flow.kernels[at].outputs.push(scratch);
            }
            (name, _) if ALL_AT_ONCE.contains(&name) => {
                let outputs = flow.kernels[at].outputs.iter_mut();
                outputs.filter(|made| made.place == Place::Reuse).for_each(|made| made.place = Place::New);
            }
            _ => {}
        }
    }
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
    fn zeros_are_there_from_the_first_relu_to_the_pools_gradient() {
        let float = |flow: &mut Flow, name, inputs: &[Wire], shape: &[u64]| {
            flow.make(name, inputs, shape, DType::Float32, None)
        };
        for is_alone in [true, false] {
            let (mut flow, image) = (Flow::default(), [2, 4, 4, 2]);
            let mut x = float(&mut flow, "Conv2D", &[], &image);
            let mut y = flow.unary("Relu", x);
            let first = y;
            if !is_alone {
                x = float(&mut flow, "Conv2D", &[y], &image);
                y = flow.unary("Relu", x);
            }
            let pool = flow.pool("MaxPool", y, &[2, 2, 2, 2]);
            let dx = float(&mut flow, "MaxPoolGrad", &[y, pool, pool], &image);
            rewrite(&mut flow);
            let [copy, zeros, ..] = inputs(&flow, dx)[..] else { panic!("zeros and their copy") };
            assert_eq!([copy, zeros].map(|wire| flow.shape(wire).to_vec()), [image; 2]);
            // They are made with a ReLU whose result is there, else by themselves before the pool.
            assert_eq!(zeros.kernel == first.kernel, !is_alone);
            let after = if is_alone { vec![zeros.kernel] } else { Vec::new() };
            assert_eq!(flow.kernel(pool).after, after);
        }
    }

    #[test]
    fn products_of_vectors_need_no_scratch_memory() {
        let outputs = |m: u64, k: u64, n: u64| {
            let mut flow = Flow::default();
            let [a, b] = [[m, k], [k, n]].map(|shape| flow.make("X", &[], &shape, DType::Float32, None));
            let y = flow.matmul("MatMul", a, b, &[m, n]);
            rewrite(&mut flow);
            flow.kernel(y).outputs.len()
        };
        assert_eq!([outputs(8, 4, 2), outputs(8, 4, 1), outputs(8, 1, 2)], [2, 1, 1]);
    }

    #[test]
    fn what_is_inside_of_a_large_relu6_is_kept() {
        let kept = |samples: u64| {
            let mut flow = Flow::default();
            let x = flow.make("X", &[], &[samples, 1 << 20], DType::Float32, None);
            let y = flow.unary("Relu6", x);
            let dy = opaque(&mut flow, &[y]);
            flow.stage = Stage::Backward;
            let dx = flow.reuse("Relu6Grad", &[dy, y], &[samples, 1 << 20], DType::Float32, None);
            rewrite(&mut flow);
            !inputs(&flow, dx).contains(&y)
        };
        assert_eq!([5, 6].map(kept), [false, true]);
    }

    #[test]
    fn the_place_of_a_largest_element_is_a_number_for_each_axis() {
        let mut flow = Flow::default();
        let x = flow.make("Conv2D", &[], &[2, 8, 8, 3], DType::Float32, None);
        let y = flow.pool("MaxPool", x, &[2, 4, 4, 3]);
        let dy = opaque(&mut flow, &[y]);
        let dx = flow.make("MaxPoolGrad", &[x, y, dy], &[2, 8, 8, 3], DType::Float32, None);
        rewrite(&mut flow);
        let [zeros, from, ref places @ ..] = inputs(&flow, dx)[..] else { panic!("zeros, dy, places") };
        assert_eq!((flow.shape(zeros), from, places.len()), (&[2, 8, 8, 3][..], dy, 4));
        // The value itself is made as well.
        let place = flow.kernel(places[0]);
        let bytes: Vec<u64> =
            place.outputs.iter().map(|made| made.dtype.size_of(made.elements()).0).collect();
        assert_eq!((bytes, &place.inputs[..]), (vec![4 * 96; 5], &[x][..]));
    }
}
