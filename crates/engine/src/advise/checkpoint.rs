//! Activation checkpointing: what lies inside of a block is computed again in backward and not kept.

use super::{Change, Kind, Level, Situation};
use crate::{Checkpoint, Framework, Mode, Model};

pub(super) const CHANGE: Change = Change {
    name: "checkpoint",
    effort: 2,
    kind: Kind::Step,
    cost: "forward is run twice: about a third more time",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    if now.plan.checkpoint != Checkpoint::None || now.plan.mode != Mode::Train || !now.is(Framework::Pytorch)
    {
        return Vec::new();
    }
    let mut situation = now.clone();
    situation.plan.checkpoint = Checkpoint::Block;
    let title = "recompute the repeated blocks";
    CHANGE.level(title, situation, &[]).into_iter().collect()
}
