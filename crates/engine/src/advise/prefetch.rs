//! Batches that wait in the host's memory, not on the device.

use super::{Change, Kind, Level, Situation};
use crate::Model;

pub(super) const CHANGE: Change = Change {
    name: "prefetch",
    effort: 2,
    kind: Kind::Step,
    cost: "the copy to the device is waited for, where it does not overlap with a step",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    if now.life.prefetch == 0 {
        return Vec::new();
    }
    let mut situation = now.clone();
    situation.life.prefetch = 0;
    let values = [("BATCH", now.batch.unwrap_or(1).to_string())];
    let title = "no batches waiting on the card";
    CHANGE.level(title, situation, &values).into_iter().collect()
}
