//! Channels last (PyTorch): convolutions on tensor cores that need no scratch memory for turning their operands around.

use super::{Api, Change, Kind, Level, Situation};
use crate::Model;

pub(super) const CHANGE: Change = Change {
    name: "channels-last",
    effort: 1,
    kind: Kind::Step,
    cost: "usually faster with tensor cores; an operator without such a kernel copies",
    levels,
};

fn levels(model: &Model, now: &Situation) -> Vec<Level> {
    let convolutional = model.graph().nodes.iter().any(|node| node.op.name() == "Conv");
    if now.api != Some(Api::Pytorch) || !convolutional || now.plan.channels_last {
        return Vec::new();
    }
    let mut situation = now.clone();
    situation.plan.channels_last = true;
    CHANGE.level("channels last", situation, &[]).into_iter().collect()
}
