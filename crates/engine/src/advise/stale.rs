//! Letting go of models that earlier runs left alive, as in a notebook.

use super::{Change, Kind, Level, Situation};
use crate::Model;

pub(super) const CHANGE: Change = Change {
    name: "fewer-models",
    effort: 1,
    kind: Kind::Step,
    cost: "none; what is still needed of an earlier model has to be saved before",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    let stale = now.life.stale_models;
    if stale == 0 {
        return Vec::new();
    }
    let mut situation = now.clone();
    situation.life.stale_models = 0;
    let title = match stale {
        1 => "let go of an earlier model".to_owned(),
        n => format!("let go of {n} earlier models"),
    };
    CHANGE.level(title, situation, &[]).into_iter().collect()
}
