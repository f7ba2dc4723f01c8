//! Scratch memory of convolutions where no plans are compared: of the plan that cuDNN's heuristics put first.
//!
//! Without `torch.backends.cudnn.benchmark` PyTorch runs that plan (aten/src/ATen/native/cudnn/Conv_v8.cpp, `try_configs`). What it
//! asks for cuDNN says itself, without a card: `models/reference/cudnn_plans.py` asks release 9.26, which PyTorch 2.15 comes with,
//! about layers of two dozen networks on cards of four generations. Nearly all of it is copies of operands:
//!
//! - Half precision on tensor cores reads and writes channels innermost. Laid out the other way all three operands are copied in
//!   every pass; laid out so, none is.
//! - Float32 on tensor cores (TF32) copies too, on Ampere in either layout, since operands are rounded on the way; forward kernels
//!   write channels first by themselves. Hopper rounds as it reads.
//! - Where TF32 is hardly faster than float32 (the smaller chips: compute capability 8.6, 8.9, 12) narrow layers go without.
//! - Without tensor cores filters of 3 x 3 are transformed (Winograd), and the input's gradient is made with channels first.
//! - Wide groups are copied everywhere.

use super::{AMPERE, HOPPER, Pass, Sizes, VOLTA};
use memfit_graph::DType;

/// Channels from which on a layer of one group runs on tensor cores.
const LEAST_CHANNELS: u64 = 8;
/// Channels from which on groups are wide.
const WIDE_GROUP: u64 = 33;
/// Channels (of a group) from which on layers run on TF32 where that is not fast: of a filter larger than a point, and of a point.
const LEAST_SLOW: [u64; 2] = [32, 256];
/// Channels from which on half precision runs pointwise layers with channels innermost before Ampere.
const LEAST_POINTWISE: u64 = 256;
/// Elements of a filter for each output from which on tensor cores take an image: forward, and for the filter's gradient.
const LEAST_IMAGE: [u64; 2] = [144, 48];
/// Channels from which on Hopper's forward kernels copy the output too.
const HOPPER_CHANNELS: u64 = 128;

/// What runs a dtype's convolutions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernels {
    /// Tensor cores in half precision.
    Half,
    /// Tensor cores on float32 that is rounded; `fast` on the large chip of a generation.
    Tf32 { fast: bool },
    /// Others.
    Plain,
}

fn kernels(dtype: DType, capability: (u32, u32)) -> Kernels {
    match dtype {
        DType::Float16 if capability >= VOLTA => Kernels::Half,
        DType::Bfloat16 if capability >= AMPERE => Kernels::Half,
        DType::Float32 if capability >= AMPERE => Kernels::Tf32 { fast: has_fast_tf32(capability) },
        _ => Kernels::Plain,
    }
}

/// Whether TF32 is several times as fast as float32.
pub(in super::super) fn has_fast_tf32(capability: (u32, u32)) -> bool {
    matches!(capability, (8, 0) | (9 | 10, _))
}

/// The elements that the first plan holds while it runs.
pub(in super::super) fn scratch(
    sizes: &Sizes,
    pass: Pass,
    dtype: DType,
    capability: (u32, u32),
    channels_last: bool,
) -> u64 {
    let kernels = kernels(dtype, capability);
    let &Sizes { channels, groups, input, output, filter, window, .. } = sizes;
    let (per_group, is_pointwise) = (channels / groups, window <= 1);
    let all = sizes.all();
    let is_narrow = groups == 1 && per_group < LEAST_CHANNELS;
    if sizes.is_depthwise() {
        return 0;
    }
    if sizes.is_image() {
        let elements = per_group.saturating_mul(window);
        let runs = match (kernels, pass) {
            (Kernels::Half, Pass::Filter) => true,
            (Kernels::Tf32 { fast: true }, Pass::Filter) => elements >= LEAST_IMAGE[1],
            (Kernels::Half | Kernels::Tf32 { fast: true }, _) => elements >= LEAST_IMAGE[0],
            _ => false,
        };
        let reads_alone = channels_last && (pass == Pass::Forward || kernels == Kernels::Half);
        return match (runs, reads_alone) {
            (false, _) => 0,
            (true, true) => input,
            (true, false) => all,
        };
    }
    let is_wide = groups > 1 && per_group >= WIDE_GROUP;
    match (kernels, pass) {
        (Kernels::Plain, Pass::Input) if is_wide && !channels_last => 0,
        (Kernels::Plain | Kernels::Half | Kernels::Tf32 { fast: true }, _) if is_wide => all,
        _ if is_narrow => 0,
        (Kernels::Plain, Pass::Input) if channels_last => all,
        (Kernels::Plain, Pass::Forward | Pass::Input) if !channels_last => sizes.transformed_filter(),
        (Kernels::Plain, _) => 0,
        (Kernels::Half, _) if channels_last => 0,
        (Kernels::Half, Pass::Forward | Pass::Input)
            if capability < AMPERE && is_pointwise && channels < LEAST_POINTWISE =>
        {
            0
        }
        (Kernels::Half, _) => all,
        (Kernels::Tf32 { fast: false }, _) if per_group < LEAST_SLOW[usize::from(is_pointwise)] => 0,
        (Kernels::Tf32 { .. }, _) if channels_last && capability >= HOPPER => 0,
        (Kernels::Tf32 { .. }, Pass::Forward) => {
            let copies_output =
                !channels_last && (groups > 1 || (capability >= HOPPER && per_group >= HOPPER_CHANNELS));
            if copies_output { all } else { input.saturating_add(filter) }
        }
        (Kernels::Tf32 { .. }, Pass::Input) if channels_last => output.saturating_add(filter),
        (Kernels::Tf32 { .. }, _) => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices;

    const TABLE: &str =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/reference/cudnn_plans.tsv"));
    /// Bytes that are small beside a step, whatever they are.
    const SMALL: u64 = 2 << 20;

    /// The sizes of a convolution of 32 images.
    fn sizes(text: &str) -> Sizes {
        let numbers: Vec<u64> = text.split(' ').map(|n| n.parse().unwrap()).collect();
        let [channels, height, width, outputs, r, s, stride, padding, dilation, groups] = numbers[..] else {
            panic!("{text}")
        };
        let side = |n: u64, filter: u64| (n + 2 * padding - dilation * (filter - 1) - 1) / stride + 1;
        let x = [32, channels, height, width];
        let w = [outputs, channels / groups, r, s];
        let y = [32, outputs, side(height, r), side(width, s)];
        Sizes::read([&x, &w, &y]).unwrap()
    }

    /// For each card, dtype and layout: the share of plans, in percent, whose scratch memory the rule says within 15 % or what is
    /// small, forward and for both gradients; and the rule's sum of all in percent of cuDNN's.
    fn compared() -> Vec<(String, [u64; 3], u64)> {
        let mut lines = TABLE.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        let names = lines.next().unwrap();
        let rows: Vec<Vec<&str>> = lines.collect();
        let case = |(column, name): (usize, &&str)| {
            let words: Vec<&str> = name.split(' ').collect();
            let dtype = if words[1] == "float16" { DType::Float16 } else { DType::Float32 };
            let capability = devices::find(words[0]).unwrap().compute_capability.unwrap();
            let (mut met, mut sums) = ([0; 3], [0_u64; 2]);
            for (p, pass) in [Pass::Forward, Pass::Input, Pass::Filter].into_iter().enumerate() {
                let mut of = 0;
                for row in &rows {
                    let sizes = sizes(row[0]);
                    let asked: i64 = row[column].split(' ').nth(p).unwrap().parse().unwrap();
                    // Nobody asks for an image's gradient.
                    let Some(asked) =
                        u64::try_from(asked).ok().filter(|_| !(sizes.is_image() && pass == Pass::Input))
                    else {
                        continue;
                    };
                    let said = scratch(&sizes, pass, dtype, capability, words[2] == "last");
                    let said = dtype.size_of(said).0;
                    of += 1;
                    met[p] += u64::from(said.abs_diff(asked) <= said.max(asked) * 15 / 100 + SMALL);
                    sums = [sums[0] + said, sums[1] + asked];
                }
                met[p] = met[p] * 100 / of;
            }
            (String::from(*name), met, sums[0] * 100 / sums[1])
        };
        names.iter().enumerate().skip(1).map(case).collect()
    }

    #[test]
    fn sizes_of_any_magnitude_are_no_panic() {
        let most = u64::MAX;
        assert!(Sizes::read([&[1, 0, 4, 4], &[8, 0, 3, 3], &[1, 8, 2, 2]]).is_none());
        for channels in [1, 3, most] {
            let shapes = [[most, channels, most, most], [most, 1, most, most], [most, most, 1, 1]];
            let sizes = Sizes::read([&shapes[0], &shapes[1], &shapes[2]]).unwrap();
            for pass in [Pass::Forward, Pass::Input, Pass::Filter] {
                for (dtype, card) in
                    [(DType::Float32, AMPERE), (DType::Float16, HOPPER), (DType::Float32, VOLTA)]
                {
                    let _ = scratch(&sizes, pass, dtype, card, false);
                }
            }
        }
    }

    #[test]
    fn the_rule_is_what_cudnn_says() {
        let expected = [
            ("a100-40gb float32 first", [76, 90, 85], 98),
            ("a100-40gb float32 last", [87, 88, 79], 94),
            ("a100-40gb float16 first", [94, 93, 81], 96),
            ("a100-40gb float16 last", [91, 89, 46], 71),
            ("h100-80gb float32 first", [81, 89, 89], 102),
            ("h100-80gb float32 last", [85, 84, 84], 58),
            ("h100-80gb float16 first", [93, 95, 88], 95),
            ("h100-80gb float16 last", [89, 91, 79], 70),
            ("rtx-3090 float32 first", [76, 75, 80], 119),
            ("rtx-3090 float32 last", [66, 69, 74], 84),
            ("rtx-3090 float16 first", [85, 90, 93], 107),
            ("rtx-3090 float16 last", [92, 88, 79], 81),
            ("t4 float32 first", [93, 92, 93], 95),
            ("t4 float32 last", [67, 59, 88], 89),
            ("t4 float16 first", [76, 80, 85], 95),
            ("t4 float16 last", [87, 82, 59], 67),
        ];
        let expected: Vec<_> =
            expected.into_iter().map(|(name, met, sum)| (name.to_owned(), met, sum)).collect();
        assert_eq!(compared(), expected);
    }
}
