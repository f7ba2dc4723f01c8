//! A smaller validation batch: it changes nothing of what is learnt.

use super::{Change, Kind, Level, Situation, snippet};
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
        let snippet = snippet::lines(now, CHANGE.name, &[("BATCH", n.to_string())])?;
        Some(Level { title: format!("a validation batch of {n}, not {batch}"), situation, snippet })
    };
    halves.filter_map(level).collect()
}
