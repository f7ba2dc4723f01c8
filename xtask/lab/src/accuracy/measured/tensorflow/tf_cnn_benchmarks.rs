//! rtx2080-dl-benchmark: tf_cnn_benchmarks under TensorFlow 1.11 on an RTX 2080, batches doubled until one fails. Its optimizer is plain
//! SGD by default; images and labels are made once and stay on the card.

use super::convnets::{Block, googlenet, residual, vgg};
use super::{Cells, Entry, plan};
use memfit_engine::Plan;

pub(super) fn entry(cells: &Cells) -> Option<Entry> {
    let model = cells.get("model").trim_start_matches("tf_cnn_benchmarks:");
    let config = match model {
        "resnet18" => residual(Block::Basic, [2, 2, 2, 2]),
        "resnet34" => residual(Block::Basic, [3, 4, 6, 3]),
        "vgg16" => vgg([2, 2, 3, 3, 3]),
        "vgg19" => vgg([2, 2, 4, 4, 4]),
        "googlenet" => googlenet(),
        _ => return None,
    };
    Some(Entry {
        model: model.to_owned(),
        config,
        card: cells.card(),
        batch: cells.number("batch")?,
        plan: Plan { optimizer: "sgd".into(), ..plan() },
        copies: 0,
        said: cells.outcome()?,
    })
}
