//! A smaller validation batch: it changes nothing of what is learnt.

use super::{Change, Kind, Level, Situation};
use crate::Model;

pub(super) const CHANGE: Change = Change {
    name: "validation-batch",
    effort: 1,
    kind: Kind::Step,
    cost: "validation takes a little longer",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    let Some(batch) = now.life.validation_batch else { return Vec::new() };
    let halves = std::iter::successors(Some(batch / 2), |n| Some(n / 2)).take_while(|n| *n > 0);
    let level = |n: u64| {
        let mut situation = now.clone();
        situation.life.validation_batch = Some(n);
        let title = format!("a validation batch of {n}, not {batch}");
        CHANGE.level(title, situation, &[("BATCH", n.to_string())])
    };
    halves.filter_map(level).collect()
}
