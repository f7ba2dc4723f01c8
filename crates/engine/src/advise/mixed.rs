//! Mixed precision: activations of half the size. bfloat16 from compute capability 8 on, float16 below.

use super::{Change, Level, Situation, snippet};
use crate::{Framework, Model, Precision};

pub(super) const CHANGE: Change = Change {
    name: "mixed-precision",
    effort: 2,
    cost: "less precise activations; faster with tensor cores",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    if now.plan.precision != Precision::Fp32 || now.is(Framework::Burn) {
        return Vec::new();
    }
    let wide = now.card.device.compute_capability.is_none_or(|c| c.0 >= 8);
    let mut situation = now.clone();
    situation.plan.precision = if wide { Precision::MixedBf16 } else { Precision::MixedFp16 };
    let text = snippet::of(
        now.plan.framework,
        include_str!("snippets/pytorch/mixed.py"),
        include_str!("snippets/keras/mixed.py"),
    );
    let dtype = if wide { "bfloat16" } else { "float16" };
    let snippet = snippet::fill(text, &[("DTYPE", format!("\"{dtype}\""))]);
    vec![Level { title: format!("mixed precision with {dtype}"), situation, snippet }]
}
