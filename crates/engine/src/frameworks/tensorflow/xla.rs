//! XLA: chains of elementwise kernels become fusions, of which only the outputs are there as buffers.
//!
//! An elementwise kernel (casts, comparisons, broadcasts and moves of elements with it) is fused into all that read it, where all of
//! them are elementwise, reductions, pools, concatenations or updates of variables, and where computing it in each of them moves fewer
//! bytes than writing and reading it (xla/backends/gpu/transforms/priority_fusion.cc, `CalculateProducerPriority`). So gradients compute
//! again what forward computed of one tensor: of a layer's activation only what convolutions and products read and make is there.
//! They are kernels of their own, as without XLA, and so are softmax and random numbers. Variables are updated in place.

use super::{Effect, Flow, Place, Wire, centred, padded, rewritten, stacked, together, turned};
use memfit_graph::kernels::{Kernel, Stage};
use memfit_graph::{Bytes, DType};

/// Kernels with an output of their own that move or compare elements one by one.
const MOVES: &[&str] = &[
    "Cast",
    "ConcatV2",
    "Equal",
    "Fill",
    "Greater",
    "GreaterEqual",
    "Less",
    "LessEqual",
    "NotEqual",
    "Pad",
    "ReverseV2",
    "Slice",
    "StridedSlice",
    "Tile",
    "Transpose",
    "ZerosLike",
];

/// Kernels that read what is fused into them, but are fused into nothing.
const READERS: &[&str] = &[
    "AvgPool",
    "AvgPool3D",
    "AvgPool3DGrad",
    "AvgPoolGrad",
    "BiasAddGrad",
    "LogSoftmax",
    "Max",
    "MaxPool",
    "MaxPool3D",
    "MaxPool3DGrad",
    "MaxPoolGrad",
    "MaxPoolPlace",
    "Mean",
    "Min",
    "Prod",
    "Relu",
    "Relu6",
    "Softmax",
    "SparseSoftmaxCrossEntropyWithLogits",
    "Sum",
];

/// Kernels that write over an input but are fusions or library calls of their own.
const OPAQUE: &[&str] = &["Softmax", "LogSoftmax", "SparseSoftmaxCrossEntropyWithLogits"];

/// Buffers that one fusion may read and write (xla/service/gpu/gpu_fusible.h, `MaxOperandsAndOutputsPerFusion`).
const MOST_OPERANDS: usize = 96;

/// Whether a kernel is many instructions to XLA.
fn is_long(kernel: &Kernel) -> bool {
    matches!(kernel.name, "Erfc" | "Tanh")
}

fn is_elementwise(kernel: &Kernel) -> bool {
    let [made] = &kernel.outputs[..] else { return is_norm(kernel) };
    let view = made.place == Place::Alias && kernel.effect == Effect::None && kernel.name != stacked::ITEM;
    let pointwise = made.place == Place::Reuse && !OPAQUE.contains(&kernel.name);
    view || pointwise || MOVES.contains(&kernel.name)
}

/// Whether the first output is elementwise, of the input and of statistics that stay.
fn is_norm(kernel: &Kernel) -> bool {
    kernel.name == "FusedBatchNormV3"
}

fn takes_in(kernel: &Kernel) -> bool {
    let updates = matches!(kernel.effect, Effect::Update(_) | Effect::Assign(_));
    updates || is_elementwise(kernel) || READERS.contains(&kernel.name)
}

/// Fuses what can be fused; kernels that were are left unread.
pub(super) fn fuse(flow: &mut Flow, kept: &[Wire]) {
    rewritten::rewrite(flow);
    padded::fold(flow);
    turned::turn(flow);
    turned::turn_rows(flow);
    stacked::stack(flow);
    centred::write(flow);
    padded::pad(flow);
    let mut is_kept = vec![false; flow.kernels.len()];
    kept.iter().for_each(|wire| is_kept[wire.kernel as usize] = true);
    let mut readers: Vec<Vec<u32>> = vec![Vec::new(); flow.kernels.len()];
    for (i, kernel) in (0..).zip(&flow.kernels) {
        let first = kernel.inputs.iter().filter(|wire| wire.output == 0);
        first.for_each(|wire| readers[wire.kernel as usize].push(i));
    }
    let mut fused = vec![false; flow.kernels.len()];
    // By kernel, whether it computes what is many instructions.
    let mut long = fused.clone();
    for i in 0..flow.kernels.len() {
        let is_fused = |wire: &Wire, fused: &[bool]| fused[wire.kernel as usize] && wire.output == 0;
        if flow.kernels[i].inputs.iter().any(|wire| is_fused(wire, &fused)) {
            // Inputs come before what reads them, so theirs are widened already.
            let (mut inputs, mut after) = (Vec::new(), flow.kernels[i].after.clone());
            let read = |inputs: &mut Vec<Wire>, wire: Wire| {
                if !inputs.contains(&wire) {
                    inputs.push(wire);
                }
            };
            for wire in std::mem::take(&mut flow.kernels[i].inputs) {
                let at = wire.kernel as usize;
                if fused[at] && inputs.len() + flow.kernels[at].inputs.len() > MOST_OPERANDS {
                    fused[at] = false;
                    own_buffers(&mut flow.kernels[at]);
                }
                let from = &flow.kernels[at];
                long[i] |= fused[at] && is_long(from);
                if !is_fused(&wire, &fused) {
                    read(&mut inputs, wire);
                    continue;
                }
                let statistics = Some(Wire { output: 1, ..wire }).filter(|_| is_norm(from));
                from.inputs.iter().copied().chain(statistics).for_each(|wire| read(&mut inputs, wire));
                after.extend(&from.after);
            }
            flow.kernels[i].inputs = inputs;
            flow.kernels[i].after = after;
            own_buffers(&mut flow.kernels[i]);
        }
        let is_cut = long[i] && readers[i].len() > 1;
        fused[i] = !is_kept[i] && !is_cut && pays(flow, i, &readers);
    }
    for (kernel, _) in
        flow.kernels.iter_mut().zip(&fused).filter(|(kernel, fused)| !**fused && is_long(kernel))
    {
        // No GPU before Hopper computes in bfloat16, and what is computed in float32 stays so until a product reads it
        // (xla/service/float_normalization.cc).
        let halves = kernel.outputs.iter_mut().filter(|made| made.dtype == DType::Bfloat16);
        halves.for_each(|made| made.dtype = DType::Float32);
    }
    for (kernel, _) in
        flow.kernels.iter_mut().zip(&fused).filter(|(kernel, fused)| **fused && is_norm(kernel))
    {
        kernel.outputs.iter_mut().take(1).for_each(|made| made.place = Place::Host);
    }
    write_beside_sums(flow, &fused);
    together::join(flow);
}

/// Kernels that make one number of many.
const SUMS: &[&str] = &["BiasAddGrad", "Max", "Mean", "Min", "Prod", "Sum"];

/// What a reduction reads too is made by the reduction's kernel, as a second output (xla/service/gpu/transforms/multi_output_fusion.cc), which
/// writes over nothing that it reads: only loops do (xla/service/gpu/alias_info.cc, `FusionCanShareBufferHint`).
fn write_beside_sums(flow: &mut Flow, fused: &[bool]) {
    let sums = flow.kernels.iter().filter(|kernel| SUMS.contains(&kernel.name));
    let read: Vec<u32> =
        sums.flat_map(|sum| &sum.inputs).filter(|wire| wire.output == 0).map(|wire| wire.kernel).collect();
    for at in read.into_iter().filter(|at| !fused.get(*at as usize).is_some_and(|fused| *fused)) {
        let outputs = flow.kernels[at as usize].outputs.iter_mut();
        outputs.filter(|made| made.place == Place::Reuse).for_each(|made| made.place = Place::New);
    }
}

/// How many elementwise kernels may lie between what is many instructions and what reads the result.
const WRITTEN: u32 = 2;

/// Whether what forward makes of this kernel is read by one that takes nothing in, at most so many elementwise kernels on.
fn is_written(flow: &Flow, at: u32, all: &[Vec<u32>], steps: u32) -> bool {
    let kernel = &flow.kernels[at as usize];
    if kernel.stage == Stage::Backward {
        return false;
    }
    if !takes_in(kernel) {
        return true;
    }
    let is_view = kernel.outputs.iter().all(|made| made.place == Place::Alias);
    let left = steps.checked_sub(u32::from(!is_view));
    let further = left.filter(|_| is_elementwise(kernel));
    further.is_some_and(|left| all[at as usize].iter().any(|reader| is_written(flow, *reader, all, left)))
}

/// Whether a kernel is fused into all that read it: where each of them takes it in, and reading what it reads in all of them moves fewer
/// bytes than writing and reading what it makes.
fn pays(flow: &Flow, at: usize, all: &[Vec<u32>]) -> bool {
    let (kernel, readers) = (&flow.kernels[at], &all[at]);
    if !is_elementwise(kernel) || readers.is_empty() {
        return false;
    }
    let bytes = |wire: &Wire| {
        let made = flow.made(*wire);
        made.dtype.size_of(made.elements())
    };
    let made: Bytes = kernel.outputs.iter().map(|made| made.dtype.size_of(made.elements())).sum();
    let read: Bytes = kernel.inputs.iter().map(bytes).sum();
    let mut again = Bytes::ZERO;
    // A step of a loop is a computation of its own.
    let step = |kernel: &Kernel| kernel.turn.map(|turn| (turn.of, turn.step));
    for reader in readers {
        let reader = &flow.kernels[*reader as usize];
        // What is many instructions is computed once for several that read it: it is cut after the last of them where backward reads
        // that and what is made of it is written, else after what is made of it.
        let is_cut = is_long(kernel)
            && (reader.stage == Stage::Backward) != (kernel.stage == Stage::Backward)
            && readers.iter().any(|reader| is_written(flow, *reader, all, WRITTEN));
        if !takes_in(reader) || is_cut || step(reader) != step(kernel) {
            return false;
        }
        again += kernel.inputs.iter().filter(|wire| !reader.inputs.contains(wire)).map(bytes).sum::<Bytes>();
    }
    again < read + made * (1 + readers.len() as u64)
}

/// A view of something that is no buffer has one of its own.
fn own_buffers(kernel: &mut Kernel) {
    kernel
        .outputs
        .iter_mut()
        .filter(|made| made.place == Place::Alias)
        .for_each(|made| made.place = Place::Reuse);
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
    fn backward_computes_again_what_is_of_one_tensor() {
        let mut flow = Flow::default();
        let x = opaque(&mut flow, &[]);
        let slope = flow.unary("Sigmoid", x);
        let y = flow.binary("Mul", slope, x);
        let dy = opaque(&mut flow, &[y]);
        flow.stage = Stage::Backward;
        let dx = flow.binary("Mul", dy, slope);
        let end = opaque(&mut flow, &[dx]);
        fuse(&mut flow, &[end]);
        assert_eq!((inputs(&flow, y), inputs(&flow, dx)), (vec![x], vec![dy, x]));
        // Only what convolutions and products read and make is there.
        assert_eq!((inputs(&flow, dy), inputs(&flow, end)), (vec![y], vec![dx]));
    }

    /// Whether the long part of an activation, and the activation, are there where these read the activation.
    fn is_there(readers: &[&'static str]) -> [bool; 2] {
        let mut flow = Flow::default();
        let x = opaque(&mut flow, &[]);
        let long = flow.unary("Erfc", x);
        let y = flow.binary("Mul", long, x);
        let read: Vec<Wire> =
            readers.iter().map(|name| flow.make(name, &[y], &[64], DType::Float32, None)).collect();
        let dy = opaque(&mut flow, &read);
        flow.stage = Stage::Backward;
        let dx = flow.binary("Mul", dy, long);
        fuse(&mut flow, &[dx]);
        [inputs(&flow, dx).contains(&long), inputs(&flow, read[0]).contains(&y)]
    }

    #[test]
    fn what_is_many_instructions_is_computed_once() {
        // A product reads the activation, so that it is written: beside it what backward reads.
        assert_eq!(is_there(&["MatMul"]), [true, true]);
        // A norm computes it several times.
        assert_eq!(is_there(&["Mean", "Sum"]), [false, true]);
        assert_eq!(is_there(&["Mean"]), [false, false]);
    }

    #[test]
    fn a_sum_that_many_read_is_written() {
        let readers_of_the_sum = |number: usize| {
            let mut flow = Flow::default();
            let [a, b] = [0, 1].map(|_| opaque(&mut flow, &[]));
            let sum = flow.binary("AddV2", a, b);
            let reads: Vec<Wire> = (0..number).map(|_| flow.unary("Exp", sum)).collect();
            let ends: Vec<Wire> = reads.iter().map(|read| opaque(&mut flow, &[*read])).collect();
            fuse(&mut flow, &ends);
            reads.iter().filter(|read| inputs(&flow, **read) == [sum]).count()
        };
        // Two tensors twice are less than both, the sum once, and the sum twice; three times they are as much.
        assert_eq!([1, 2, 3, 4].map(readers_of_the_sum), [0, 0, 3, 4]);
    }

    #[test]
    fn more_bytes_than_can_be_counted_are_compared() {
        let mut flow = Flow::default();
        let made = |flow: &mut Flow| flow.make("Conv2D", &[], &[1 << 40, 1 << 40], DType::Float32, None);
        let [a, b] = [0, 1].map(|_| made(&mut flow));
        let sum = flow.binary("AddV2", a, b);
        let reads = [0, 1, 2].map(|_| flow.unary("Exp", sum));
        let ends = reads.map(|read| opaque(&mut flow, &[read]));
        fuse(&mut flow, &ends);
        // What cannot be told to move fewer bytes is written.
        assert!(reads.iter().all(|read| inputs(&flow, *read) == [sum]));
    }

    #[test]
    fn an_activations_gradient_reads_what_the_norm_before_it_read() {
        let mut flow = Flow::default();
        let [scale, offset] = [0, 1].map(|_| flow.make("Fill", &[], &[1], DType::Float32, None));
        let x = flow.make("Conv2D", &[], &[64, 1], DType::Float32, None);
        let norm = flow.fused_batch_norm(x, scale, offset, &[]);
        let y = flow.unary("Relu", norm);
        let dy = opaque(&mut flow, &[y]);
        flow.stage = Stage::Backward;
        let dx = flow.reuse("ReluGrad", &[dy, y], &[64, 1], DType::Float32, None);
        fuse(&mut flow, &[dx]);
        let statistics = Wire { output: 1, ..norm };
        assert!([x, statistics].iter().all(|wire| inputs(&flow, dx).contains(wire)));
        assert!(!inputs(&flow, dx).contains(&y) && !inputs(&flow, dx).contains(&norm));
        let places: Vec<Place> = flow.kernel(norm).outputs.iter().map(|made| made.place).collect();
        assert_eq!(places[..2], [Place::Host, Place::New]);
    }
}
