//! Closing what else is on the card.

use super::{Change, Kind, Level, Situation};
use crate::Model;
use memfit_graph::Bytes;

pub(super) const CHANGE: Change = Change {
    name: "close-others",
    effort: 1,
    kind: Kind::Step,
    cost: "other processes end; a display moves to another card",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    if now.card.others().is_empty() {
        return Vec::new();
    }
    let what = match (now.card.other_processes, now.card.display) {
        (Bytes::ZERO, _) => "move the display to another card".to_owned(),
        (held, false) => format!("end the other processes, which hold {held}"),
        (held, true) => format!("end the other processes, which hold {held}, and move the display"),
    };
    let mut situation = now.clone();
    (situation.card.other_processes, situation.card.display) = (Bytes::ZERO, false);
    CHANGE.level(what, situation, &[]).into_iter().collect()
}
