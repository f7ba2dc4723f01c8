//! Smaller images: activations shrink with the square of the side.

use super::{Change, Kind, Level, Situation, snippet};
use crate::Model;
use crate::fit::Axis;

pub(super) const CHANGE: Change = Change {
    name: "smaller-images",
    effort: 3,
    kind: Kind::Step,
    cost: "details are lost, and with them some accuracy",
    levels,
};

fn levels(model: &Model, now: &Situation) -> Vec<Level> {
    let graph = model.graph();
    if Axis::Image.check(graph).is_err() {
        return Vec::new();
    }
    let Some(side) = Axis::Image.size(graph, &now.binding) else { return Vec::new() };
    let step = Axis::Image.step();
    let mut sides = [side / 4 * 3, side / 2].map(|n| n / step * step).to_vec();
    sides.dedup();
    // Of a volume the depth stays.
    let inputs = graph.inputs.iter().filter_map(|id| graph.tensor(*id).declared.shape());
    let file = if inputs.map(|s| s.rank()).any(|rank| rank == 5) { "smaller-volumes" } else { CHANGE.name };
    let level = |n: u64| {
        let mut situation = now.clone();
        situation.binding = Axis::Image.bind(graph, &now.binding, n);
        let title = format!("images of {n}x{n}, not {side}x{side}");
        let snippet = snippet::lines(&situation, file, &[("SIDE", n.to_string())])?;
        Some(Level { title, situation, snippet, cost: CHANGE.cost })
    };
    sides.into_iter().filter(|n| *n >= step).filter_map(level).collect()
}
