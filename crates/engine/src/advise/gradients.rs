//! Letting go of gradients between steps (PyTorch).

use super::{Api, Change, Kind, Level, Situation};
use crate::{Mode, Model};

pub(super) const CHANGE: Change = Change {
    name: "drop-gradients",
    effort: 1,
    kind: Kind::Step,
    cost: "none; it is PyTorch's default since 2.0",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    if !now.plan.keep_gradients || now.plan.mode != Mode::Train || now.api != Some(Api::Pytorch) {
        return Vec::new();
    }
    let mut situation = now.clone();
    situation.plan.keep_gradients = false;
    let title = "set gradients to None between steps";
    CHANGE.level(title, situation, &[]).into_iter().collect()
}
