//! rtx2080-dl-benchmark: TensorFlow 1.11 on an RTX 2080, batches doubled until one fails. It ran the tf_cnn_benchmarks of Hewlett
//! Packard's cookbook (dlcookbook-dlbs, python/tf_cnn_benchmarks), which has residual networks of its own. The optimizer is plain SGD by
//! default; images and labels are made once and stay on the card.

use super::convnets::{cookbook_residual, googlenet, vgg};
use super::{Cells, Entry, plan};
use memfit_engine::Plan;

pub(super) fn entry(cells: &Cells) -> Option<Entry> {
    let model = cells.get("model").trim_start_matches("tf_cnn_benchmarks:");
    let config = match model {
        "resnet18" => cookbook_residual(false, [2, 2, 2, 2]),
        "resnet34" => cookbook_residual(false, [3, 4, 6, 3]),
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
