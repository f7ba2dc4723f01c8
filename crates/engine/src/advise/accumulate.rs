//! Gradient accumulation: several micro-batches a step with the same effective batch.

use super::{Change, Kind, Level, Situation};
use crate::Model;
use crate::fit::Axis;

pub(super) const CHANGE: Change = Change {
    name: "accumulate",
    effort: 2,
    kind: Kind::Step,
    cost: "as much arithmetic, in smaller and less efficient pieces; batch norms see a micro-batch only",
    levels,
};

fn levels(model: &Model, now: &Situation) -> Vec<Level> {
    let Some(batch) = now.batch.filter(|_| now.plan.mode == crate::Mode::Train) else { return Vec::new() };
    let mut levels = Vec::new();
    let mut pieces = 2;
    while pieces <= batch && pieces <= 4096 {
        if batch.is_multiple_of(pieces) {
            levels.extend(level(model, now, batch / pieces, pieces));
        }
        pieces *= 2;
    }
    if levels.is_empty() && batch > 1 {
        // No power of two divides it: one by one.
        levels.extend(level(model, now, 1, batch));
    }
    levels
}

fn level(model: &Model, now: &Situation, micro: u64, pieces: u64) -> Option<Level> {
    let situation = in_pieces(model, now, micro, pieces);
    let steps = situation.plan.accumulate;
    let values = [("K", steps.to_string()), ("MICRO", micro.to_string())];
    let title = format!("{steps} micro-batches of {micro} a step");
    CHANGE.level(title, situation, &values)
}

/// The same batch in so many pieces of `micro` samples.
pub(super) fn in_pieces(model: &Model, now: &Situation, micro: u64, pieces: u64) -> Situation {
    let mut situation = now.clone();
    situation.binding = Axis::Batch.bind(model.graph(), &now.binding, micro);
    situation.batch = Some(micro);
    let steps = pieces.saturating_mul(u64::from(now.plan.accumulate));
    situation.plan.accumulate = u32::try_from(steps).unwrap_or(u32::MAX);
    situation
}
