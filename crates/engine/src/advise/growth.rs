//! Memory growth (TensorFlow): it takes what it needs, so that a second process or a second model has the rest. The step
//! itself needs no less, so no saving is predicted.

use super::{Change, Level, Situation, snippet};
use crate::{Framework, Model};

pub(super) const CHANGE: Change = Change {
    name: "memory-growth",
    effort: 1,
    cost: "more pieces, since regions are taken one by one; others can use what is left",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    if !now.plan.allocator.preallocates(Framework::Tensorflow) || !now.is(Framework::Tensorflow) {
        return Vec::new();
    }
    let mut situation = now.clone();
    situation.plan.allocator.memory_growth = true;
    let snippet = snippet::fill(include_str!("snippets/keras/growth.py"), &[]);
    vec![Level { title: "memory growth, and models let go of with clear_session".into(), situation, snippet }]
}
