//! A fused optimizer: one kernel in the place of lists of temporaries as large as the model (PyTorch).

use super::{Change, Level, Situation, snippet};
use crate::{Framework, Mode, Model, OptimizerImpl, optimizers};

pub(super) const CHANGE: Change =
    Change { name: "fused-optimizer", effort: 1, cost: "none; it is faster too", levels };

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    let plan = &now.plan;
    let has = optimizers::find(&plan.optimizer)
        .is_some_and(|o| o.implementations().contains(&OptimizerImpl::Fused));
    let already = plan.optimizer_impl == OptimizerImpl::Fused;
    if !has || already || plan.mode != Mode::Train || !now.is(Framework::Pytorch) {
        return Vec::new();
    }
    let mut situation = now.clone();
    situation.plan.optimizer_impl = OptimizerImpl::Fused;
    let values = [("OPTIMIZER", super::optimizer::class(&plan.optimizer).to_owned())];
    let snippet = snippet::fill(include_str!("snippets/pytorch/fused.py"), &values);
    vec![Level { title: "a fused optimizer".into(), situation, snippet }]
}
