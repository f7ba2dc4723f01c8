//! Inference with weights and activations of half the size (PyTorch): no gradient is there to be lost.

use super::{Api, Change, Kind, Level, Situation, mixed};
use crate::{Mode, Model, Precision};

pub(super) const CHANGE: Change = Change {
    name: "half-precision",
    effort: 1,
    kind: Kind::Step,
    cost: "less precise results; faster with tensor cores",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    let single = now.plan.precision == Precision::Fp32;
    if !single || now.plan.mode != Mode::Infer || now.api != Some(Api::Pytorch) {
        return Vec::new();
    }
    let mut situation = now.clone();
    let wide = mixed::is_wide(now);
    situation.plan.precision = if wide { Precision::Bf16 } else { Precision::Fp16 };
    let dtype = if wide { "bfloat16" } else { "float16" };
    let title = format!("weights and activations in {dtype}");
    CHANGE.level(title, situation, &[("DTYPE", dtype.into())]).into_iter().collect()
}
