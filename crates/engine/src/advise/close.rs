//! Closing what else is on the card.

use super::{Change, Kind, Level, Situation};
use crate::Model;
use crate::devices::Vendor;
use memfit_graph::Bytes;

pub(super) const CHANGE: Change = Change {
    name: "close-others",
    effort: 1,
    kind: Kind::Step,
    cost: "other processes end; a display moves to another card",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    // A Mac's own display is on its only GPU.
    let moves = now.card.display && now.card.device.vendor != Vendor::Apple;
    if now.card.others().is_empty() || (now.card.other_processes == Bytes::ZERO && !moves) {
        return Vec::new();
    }
    let what = match (now.card.other_processes, moves) {
        (Bytes::ZERO, _) => "move the display to another card".to_owned(),
        (held, false) => format!("end the other processes, which hold {held}"),
        (held, true) => format!("end the other processes, which hold {held}, and move the display"),
    };
    let mut situation = now.clone();
    situation.card.other_processes = Bytes::ZERO;
    situation.card.display &= !moves;
    CHANGE.level(what, situation, &[]).into_iter().collect()
}
