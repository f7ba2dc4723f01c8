//! Training the head alone: no gradients, no optimizer state and no saved activations for the rest.

use super::{Change, Kind, Level, Situation};
use crate::{Mode, Model};
use memfit_graph::Role;

pub(super) const CHANGE: Change = Change {
    name: "freeze",
    effort: 3,
    kind: Kind::Step,
    cost: "only the last module learns; for a model that is trained already",
    levels,
};

fn levels(model: &Model, now: &Situation) -> Vec<Level> {
    let Some((head, rest)) = modules(model) else { return Vec::new() };
    if now.plan.mode != Mode::Train || !now.plan.freeze.is_empty() {
        return Vec::new();
    }
    let mut situation = now.clone();
    situation.plan.freeze = rest.iter().map(|module| format!("{module}.*")).collect();
    let title = format!("train {head} alone");
    let values = [("HEAD", format!("\"{}\"", head.replace(['"', '\\', '\n'], "_")))];
    CHANGE.level(title, situation, &values).into_iter().collect()
}

/// The last module that has weights, and the others, by the first component of their names.
fn modules(model: &Model) -> Option<(String, Vec<String>)> {
    let graph = model.graph();
    let mut modules: Vec<String> = Vec::new();
    for node in &graph.nodes {
        for id in node.inputs.iter().flatten() {
            let tensor = graph.tensor(*id);
            let float = tensor.declared.dtype().is_some_and(|d| d.is_float());
            let Some((module, _)) =
                tensor.name.split_once('.').filter(|_| tensor.role == Role::Initializer && float)
            else {
                continue;
            };
            if !modules.iter().any(|known| known == module) {
                modules.push(module.into());
            }
        }
    }
    let head = modules.pop()?;
    (!modules.is_empty()).then_some((head, modules))
}
