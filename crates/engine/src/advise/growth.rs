//! Memory growth (TensorFlow): it takes what it needs and not the whole card, so that other processes have the rest. The step
//! itself needs no less.

use super::{Change, Kind, Level, Situation};
use crate::{Framework, Model};

pub(super) const CHANGE: Change = Change {
    name: "memory-growth",
    effort: 1,
    kind: Kind::ForOthers,
    cost: "the step itself needs no less, and more pieces: regions are taken one by one",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    if !now.plan.allocator.preallocates(Framework::Tensorflow) || !now.is(Framework::Tensorflow) {
        return Vec::new();
    }
    let mut situation = now.clone();
    situation.plan.allocator.memory_growth = true;
    let title = "memory growth, for others";
    CHANGE.level(title, situation, &[]).into_iter().collect()
}
