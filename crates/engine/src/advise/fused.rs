//! A fused optimizer: one kernel in the place of lists of temporaries as large as the model (PyTorch).

use super::{Api, Change, Kind, Level, Situation};
use crate::{Mode, Model, OptimizerImpl, optimizers};

pub(super) const CHANGE: Change =
    Change { name: "fused-optimizer", effort: 1, kind: Kind::Step, cost: "none; it is faster too", levels };

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    let plan = &now.plan;
    let has = optimizers::find(&plan.optimizer)
        .is_some_and(|o| o.implementations().contains(&OptimizerImpl::Fused));
    // Fused Adam came with 2.0, the others with 2.3 and 2.4.
    let adam = ["adam", "adamw", "amsgrad"].contains(&&*plan.optimizer);
    let since = if adam { (2, 0) } else { (2, 4) };
    let has = has && now.has(since);
    let already = plan.optimizer_impl == OptimizerImpl::Fused;
    if !has || already || plan.mode != Mode::Train || now.api != Some(Api::Pytorch) {
        return Vec::new();
    }
    let mut situation = now.clone();
    situation.plan.optimizer_impl = OptimizerImpl::Fused;
    CHANGE.level("a fused optimizer", situation, &[]).into_iter().collect()
}
