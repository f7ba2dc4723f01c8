//! Activation checkpointing: what lies inside of a block is computed again in backward and not kept.

use super::{Change, Level, Situation, snippet};
use crate::{Checkpoint, Framework, Mode, Model};

pub(super) const CHANGE: Change =
    Change { name: "checkpoint", effort: 2, cost: "forward is run twice: about a third more time", levels };

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    if now.plan.checkpoint != Checkpoint::None || now.plan.mode != Mode::Train || !now.is(Framework::Pytorch)
    {
        return Vec::new();
    }
    let level = |checkpoint, title: &str| {
        let mut situation = now.clone();
        situation.plan.checkpoint = checkpoint;
        let snippet = snippet::fill(include_str!("snippets/pytorch/checkpoint.py"), &[]);
        Level { title: title.into(), situation, snippet }
    };
    vec![level(Checkpoint::Block, "recompute the repeated blocks")]
}
