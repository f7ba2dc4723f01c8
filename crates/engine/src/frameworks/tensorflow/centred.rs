//! What a norm subtracts the mean from, where XLA computes it once.
//!
//! `x - mean` is read by the sum of squares, by a sum of backward and by the gradient of `x`. Usually it is computed in each of them. A
//! reduction to few numbers runs in few blocks, though, each of which reads so much in a microsecond and no more
//! (xla/service/gpu/model/gpu_performance_model_base.cc, `AdjustBandwidth`); there reading the mean for each element costs as much as
//! reading `x`, and `x - mean` is written in forward and kept. A batch of more than eight is reduced in two steps, of which the first
//! has blocks for each sample (xla/service/gpu/reduction_utils.cc, `BatchedReductionRaceFreeBound`).

use super::{Flow, Place, Wire};
use memfit_graph::kernels::{Kernel, Made, Stage};
use memfit_graph::{elements, order};

/// Samples that are reduced in one step.
const BATCH: u64 = 8;

/// Elements of a row that are reduced in one step, and those that a thread reads of it.
const ROW: u64 = 1 << 15;
const READS: u64 = 16;

/// Threads: of a warp, the most of a block, and those that a block of several short rows has
/// (xla/backends/gpu/codegen/emitters/reduction.cc, `RowReductionFusion`).
const WARP: u64 = 32;
const MOST: u64 = 1024;
const FEW: u64 = 256;

/// Bytes that a block reads in a microsecond, those that all together read, and the microsecond that one more kernel costs: an A100.
const OF_BLOCK: u64 = 45_120;
const OF_ALL: u64 = 2_039_000;

/// Writes `x - mean` where it pays.
pub(super) fn write(flow: &mut Flow) {
    let mut instead = Vec::new();
    for at in 0..flow.kernels.len() {
        let kernel = &flow.kernels[at];
        let (Some([x, mean]), Stage::Forward) = (squared(kernel), kernel.stage) else { continue };
        if !pays(flow.shape(x), flow.shape(mean), flow.dtype(x).size_of(1).0) {
            continue;
        }
        let layer = kernel.layer;
        let made = Made { place: Place::New, ..flow.made(x).clone() };
        let centred = flow.push("Centred", &[x, mean], vec![made], None);
        (flow.kernels[centred.kernel as usize].stage, flow.kernels[centred.kernel as usize].layer) =
            (Stage::Forward, layer);
        flow.kernels[at].inputs = vec![centred];
        instead.push(([x, mean], centred));
    }
    let instead = order::map(instead);
    let same = |kernel: &Kernel| match (kernel.name, &kernel.inputs[..]) {
        ("Sub", [a, b]) => instead.get(&[*a, *b]).copied(),
        _ => None,
    };
    let again: Vec<Option<Wire>> = flow.kernels.iter().map(same).collect();
    for wire in flow.kernels.iter_mut().flat_map(|kernel| &mut kernel.inputs) {
        *wire = again.get(wire.kernel as usize).copied().flatten().unwrap_or(*wire);
    }
}

fn squared(kernel: &Kernel) -> Option<[Wire; 2]> {
    kernel.inputs[..].try_into().ok().filter(|_| kernel.name == "SquaredDifference")
}

/// Whether two reductions that read the mean for each element are slower than a kernel that writes the difference.
fn pays(x: &[u64], mean: &[u64], size: u64) -> bool {
    let (kept, all) = (elements(mean), elements(x));
    let Some(batch) = x.first().copied().filter(|_| x.len() > 2) else { return false };
    let is_per_channel = Some(&kept) == x.last();
    // How many rows one kernel sums up for each number, and how many numbers it makes.
    let (together, numbers) = match batch {
        _ if !is_per_channel => (1, kept),
        1..=BATCH => (batch, kept),
        _ => (1, kept.saturating_mul(batch)),
    };
    let row = all.checked_div(numbers.saturating_mul(together)).unwrap_or(0);
    if !(2..=ROW).contains(&row) {
        return false;
    }
    let threads = row.div_ceil(READS).next_multiple_of(WARP).min(MOST);
    let rows = if threads * 2 <= FEW { FEW / threads } else { 1 };
    let read = u128::from(numbers.div_ceil(rows)) * u128::from(OF_BLOCK);
    let of_all = u128::from(OF_ALL);
    let slower = of_all.saturating_sub(read);
    2 * u128::from(all.saturating_mul(size)) * slower > read * of_all
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::DType;

    #[test]
    fn few_channels_of_few_samples_are_centred_once() {
        let of = |shape: &[u64]| pays(shape, &shape[shape.len() - 1..], 4);
        assert!(of(&[8, 128, 128, 16]) && of(&[8, 32, 32, 64]));
        // More channels, or samples, are more blocks.
        assert!(!of(&[8, 128, 128, 64]) && !of(&[16, 128, 128, 16]));
        // A norm of each token has as many.
        assert!(!pays(&[8, 128, 64], &[8, 128, 1], 4));
    }

    #[test]
    fn forward_and_backward_read_what_is_centred() {
        let mut flow = Flow::default();
        let x = flow.make("Conv2D", &[], &[4, 64, 64, 8], DType::Float32, None);
        let mean = flow.reduce("Mean", x, &[8]);
        let square = flow.binary("SquaredDifference", x, mean);
        flow.stage = Stage::Backward;
        let difference = flow.binary("Sub", x, mean);
        let dx = flow.unary("Exp", difference);
        write(&mut flow);
        let read = [square, dx].map(|wire| flow.kernel(wire).inputs.clone());
        assert_eq!(read[0], read[1]);
        assert_eq!(flow.kernel(read[0][0]).inputs, [x, mean]);
    }
}
