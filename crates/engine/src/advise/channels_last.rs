//! Channels last (PyTorch): convolutions on tensor cores that need no scratch memory for turning their operands around.
//!
//! Images have one such format, volumes another (c10/core/MemoryFormat.h), and cuDNN runs both (aten/src/ATen/native/ConvUtils.h:
//! `cudnn_conv_suggest_memory_format`). `Module.to` gives all weights of four and five dims the one it is told
//! (torch/nn/modules/module.py), so that a model with both has neither.

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
    let graph = model.graph();
    let convolutions = graph.nodes.iter().filter(|node| node.op.name() == "Conv");
    let weights = convolutions.filter_map(|node| Some(graph.tensor((*node.inputs.get(1)?)?)));
    let ranks = weights.filter_map(|weight| Some(weight.declared.shape()?.rank()));
    let (images, volumes) =
        ranks.fold((false, false), |(images, volumes), rank| (images || rank == 4, volumes || rank == 5));
    if now.api != Some(Api::Pytorch) || images == volumes || now.plan.channels_last {
        return Vec::new();
    }
    let format = if images { "channels_last" } else { "channels_last_3d" };
    let mut situation = now.clone();
    situation.plan.channels_last = true;
    CHANGE.level("channels last", situation, &[("FORMAT", format.into())]).into_iter().collect()
}
