//! Mixed precision: activations of half the size. bfloat16 from compute capability 8 on, float16 below.

use super::{Change, Kind, Level, Situation};
use crate::{Framework, Model, Precision};

pub(super) const CHANGE: Change = Change {
    name: "mixed-precision",
    effort: 2,
    kind: Kind::Step,
    cost: "less precise activations; faster with tensor cores",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    if now.plan.precision != Precision::Fp32 || now.is(Framework::Burn) {
        return Vec::new();
    }
    // Autocast to bfloat16 came with PyTorch 1.10.
    let has = !now.is(Framework::Pytorch) || now.has((1, 10));
    let wide = has && now.card.device.compute_capability.is_none_or(|c| c.0 >= 8);
    let mut situation = now.clone();
    situation.plan.precision = if wide { Precision::MixedBf16 } else { Precision::MixedFp16 };
    let dtype = if wide { "bfloat16" } else { "float16" };
    let values = [
        ("DTYPE", format!("\"{dtype}\"")),
        ("AUTOCAST", if wide { format!("dtype=torch.{dtype}") } else { String::new() }),
        ("SCALES", if wide { "False".into() } else { "True".into() }),
    ];
    let title = format!("mixed precision with {dtype}");
    CHANGE.level(title, situation, &values).into_iter().collect()
}
