//! The limit of a logical device (TensorFlow): as much as the step needs at the high end, so that others have the rest for sure.

use super::{Change, Kind, Level, Situation, evaluate};
use crate::{Framework, Model, Verdict};
use memfit_graph::Bytes;

pub(super) const CHANGE: Change = Change {
    name: "logical-limit",
    effort: 1,
    kind: Kind::ForOthers,
    cost: "the step itself needs no less; a larger batch runs out of memory at the limit",
    levels,
};

/// Limits are multiples of this.
const STEP: Bytes = Bytes::mib(256);

fn levels(model: &Model, now: &Situation) -> Vec<Level> {
    if !now.plan.allocator.preallocates(Framework::Tensorflow) || !now.is(Framework::Tensorflow) {
        return Vec::new();
    }
    let Ok(outcome) = evaluate(model, now) else { return Vec::new() };
    let limit = outcome.high.round_up(STEP.0);
    let allowed = |limit: &Bytes| outcome.verdict == Verdict::Fits && *limit + STEP <= outcome.usable;
    let Some(limit) = Some(limit).filter(allowed) else { return Vec::new() };
    let mut situation = now.clone();
    situation.plan.allocator.memory_limit = Some(limit);
    let title = format!("a limit of {limit}, for others");
    let values = [("LIMIT", (limit.0 / Bytes::MIB).to_string())];
    CHANGE.level(title, situation, &values).into_iter().collect()
}
