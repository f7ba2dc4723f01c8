//! Shorter sequences: activations grow with the length, and the scores of attention with its square.

use super::{Change, Kind, Level, Situation};
use crate::Model;
use crate::fit::Axis;

pub(super) const CHANGE: Change = Change {
    name: "shorter-sequences",
    effort: 3,
    kind: Kind::Step,
    cost: "longer texts are cut or split",
    levels,
};

fn levels(model: &Model, now: &Situation) -> Vec<Level> {
    let graph = model.graph();
    if Axis::Sequence.check(graph).is_err() {
        return Vec::new();
    }
    let Some(length) = Axis::Sequence.size(graph, &now.binding).filter(|n| *n >= 32) else {
        return Vec::new();
    };
    let level = |n: u64| {
        let mut situation = now.clone();
        situation.binding = Axis::Sequence.bind(graph, &now.binding, n);
        let title = format!("sequences of {n}, not {length}");
        CHANGE.level(title, situation, &[("LENGTH", n.to_string())])
    };
    [length / 4 * 3, length / 2].into_iter().filter_map(level).collect()
}
