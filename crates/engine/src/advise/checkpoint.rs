//! Activation checkpointing: what lies inside of a block is computed again in backward and not kept.

use super::{Api, Change, Kind, Level, Situation};
use crate::{Checkpoint, Mode, Model, Plan, blocks};

pub(super) const CHANGE: Change = Change {
    name: "checkpoint",
    effort: 2,
    kind: Kind::Step,
    cost: "forward is run twice: about a third more time",
    levels,
};

fn levels(model: &Model, now: &Situation) -> Vec<Level> {
    if now.plan.checkpoint != Checkpoint::None
        || now.plan.mode != Mode::Train
        || now.api != Some(Api::Pytorch)
    {
        return Vec::new();
    }
    let mut situation = now.clone();
    situation.plan.checkpoint = Checkpoint::Block;
    let title = "recompute the repeated blocks";
    let values = [("LISTS", lists(model, &now.plan))];
    CHANGE.level(title, situation, &values).into_iter().collect()
}

/// The lists of repeated blocks, as Python writes them.
pub(super) fn lists(model: &Model, plan: &Plan) -> String {
    let mut lists: Vec<String> = Vec::new();
    let scopes = model.recomposed(plan).nodes.iter().map(|node| &*node.scope);
    for block in blocks::of(scopes).into_iter().flatten() {
        // What stands in no list is the model's own attribute, beside others that are no blocks.
        let Some((list, _)) = block.rsplit_once('.') else { continue };
        let list = python(list);
        if !lists.contains(&list) {
            lists.push(list);
        }
    }
    format!("[{}]", if lists.is_empty() { "model.blocks".into() } else { lists.join(", ") })
}

/// The module at a path as Python reaches it: numbers are items.
fn python(path: &str) -> String {
    let parts = path.split('.').filter(|part| !part.is_empty());
    parts.fold("model".to_owned(), |at, part| match part.bytes().all(|c| c.is_ascii_digit()) {
        true => format!("{at}[{part}]"),
        false => format!("{at}.{part}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_reached_as_python_does() {
        assert_eq!(python("bert.encoder.layer"), "model.bert.encoder.layer");
        assert_eq!(python("stages.1.blocks"), "model.stages[1].blocks");
    }
}
