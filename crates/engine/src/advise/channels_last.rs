//! Channels last (PyTorch): convolutions that need no scratch memory for turning their operands around. How much that saves
//! depends on the kernels that cuDNN then has, so it is not predicted.

use super::{Change, Level, Situation, snippet};
use crate::{Framework, Model};

pub(super) const CHANGE: Change = Change {
    name: "channels-last",
    effort: 1,
    cost: "usually faster with tensor cores; an operator without such a kernel copies",
    levels,
};

fn levels(model: &Model, now: &Situation) -> Vec<Level> {
    let convolutional = model.graph().nodes.iter().any(|node| node.op.name() == "Conv");
    if !now.is(Framework::Pytorch) || !convolutional {
        return Vec::new();
    }
    let snippet = snippet::fill(include_str!("snippets/pytorch/channels_last.py"), &[]);
    vec![Level { title: "channels last".into(), situation: now.clone(), snippet }]
}
