//! Mixed precision: activations of half the size. bfloat16 from compute capability 8 on, float16 below.

use super::{Api, Change, Kind, Level, Situation};
use crate::{Framework, Mode, Model, Precision};

pub(super) const CHANGE: Change = Change {
    name: "mixed-precision",
    effort: 2,
    kind: Kind::Step,
    cost: "less precise activations; faster with tensor cores",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    // A model that only infers is itself made half as large.
    let infers = now.plan.mode == Mode::Infer && now.api == Some(Api::Pytorch);
    if now.plan.precision != Precision::Fp32 || now.is(Framework::Burn) || infers {
        return Vec::new();
    }
    let wide = is_wide(now);
    let mut situation = now.clone();
    situation.plan.precision = if wide { Precision::MixedBf16 } else { Precision::MixedFp16 };
    let dtype = if wide { "bfloat16" } else { "float16" };
    let title = format!("mixed precision with {dtype}");
    CHANGE.level(title, situation, &[("DTYPE", dtype.into())]).into_iter().collect()
}

/// Whether the card and the release run products in bfloat16; autocast to it came with PyTorch 1.10.
pub(super) fn is_wide(now: &Situation) -> bool {
    let has = !now.is(Framework::Pytorch) || now.has((1, 10));
    has && now.card.device.compute_capability.is_none_or(|c| c.0 >= 8)
}
