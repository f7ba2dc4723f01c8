//! A loop that halves the micro-batch where memory runs out, and keeps the effective batch: for sizes that differ from step to step
//! and cards that others use too.

use super::accumulate::in_pieces;
use super::{Change, Kind, Level, Situation};
use crate::{Mode, Model};

pub(super) const CHANGE: Change = Change {
    name: "retry",
    effort: 2,
    kind: Kind::Step,
    cost: "a step that fails is run again; as accumulation from then on",
    levels,
};

/// What it comes to is where the loop would end. Of several GPUs each may run out of memory at another time: one that begins its backward
/// pass anew leaves the others waiting for its gradients.
fn levels(model: &Model, now: &Situation) -> Vec<Level> {
    // Nothing but code that catches the error.
    let catches = now.api.is_some() && now.plan.mode == Mode::Train && now.plan.parallel.is_none();
    let Some(batch) = now.batch.filter(|_| catches) else {
        return Vec::new();
    };
    let halves = (1..=12).map(|k| (batch.div_ceil(1 << k), 1 << k));
    let level = |(micro, pieces): (u64, u64)| {
        let situation = in_pieces(model, now, micro, pieces);
        let values = [("BATCH", batch.to_string()), ("PIECES", now.plan.accumulate.to_string())];
        let title = format!("a retry loop that ends at {micro}");
        CHANGE.level(title, situation, &values)
    };
    halves.take_while(|(_, pieces)| *pieces <= batch).filter_map(level).collect()
}
