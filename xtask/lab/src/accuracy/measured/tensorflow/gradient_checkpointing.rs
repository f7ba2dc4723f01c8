//! cybertronai/gradient-checkpointing: the allocation timeline of one gradient computation under TensorFlow 1.4 and 1.5 on a GTX 1080,
//! without variables and optimizer, cuDNN's search off. The rows with checkpoints are of a graph rewriting that memfit has none of.

use super::convnets::{Block, residual};
use super::{Cells, Entry, Said, plan};
use memfit_engine::Plan;

pub(super) fn entry(cells: &Cells) -> Option<Entry> {
    let notes = cells.get("notes");
    let model = cells.get("model");
    let rewritten = notes.contains("checkpointing") && !notes.contains("no checkpointing");
    (!rewritten).then_some(())?;
    // The first three add the parameters' squares to the loss: their gradient, the decayed weights, waits for nothing and is a copy
    // of all from the beginning (test/deep_imagenet_benchmark.py). The last does not, and is of 34 layers: the table's name is a slip
    // (`RESNET_SIZE=34` in test/imagenet_test.py, which the figure stands in).
    let (block, blocks, copies) = match model.split_whitespace().next()? {
        "ResNet-v2-18" => (Block::BasicBefore, [2, 2, 2, 2], 1),
        "ResNet-v2-101" => (Block::BottleneckBefore, [3, 4, 23, 3], 1),
        "ResNet-v2-200" => (Block::BottleneckBefore, [3, 24, 36, 3], 1),
        "ResNet-18" => (Block::BasicBefore, [3, 4, 6, 3], 0),
        _ => return None,
    };
    Some(Entry {
        model: model.to_owned(),
        config: residual(block, blocks),
        card: "gtx-1080".into(),
        batch: cells.number("batch")?,
        plan: Plan { optimizer: "sgd".into(), ..plan() },
        copies,
        said: Said::Step(cells.number("value")? * 1_000_000),
    })
}
