//! NVIDIA's DeepLearningExamples: batches of published runs, and the cells that are marked as out of memory. XLA is on for BERT,
//! as TensorFlow 1.15 and 2.4 have it: pieces of the graph are compiled. memfit's `xla` is the whole step as one program, so it is off here.
//! Pretraining masks 20 words of 128 and 80 of 512 (`max_predictions_per_seq`).

use super::bert::{COPIES_WITH_HOROVOD, Head, bert_large};
use super::convnets::{Block, residual};
use super::{Cells, Entry, plan};
use memfit_engine::{Plan, Precision};

pub(super) fn entry(cells: &Cells) -> Option<Entry> {
    let model = cells.get("model");
    let half = cells.get("precision").starts_with("amp");
    let precision = if half { Precision::MixedFp16 } else { Precision::Fp32 };
    let mut plan = Plan { precision, loss_scale: half, ..plan() };
    let is_bert = model.starts_with("BERT");
    let (label, config) = if is_bert {
        let length = cells.length()?;
        let pretrains = model.contains("pretrain");
        let masked = if length > 128 { 80 } else { 20 };
        let head = if pretrains { Head::Words(masked) } else { Head::Span };
        let optimizer = if pretrains { "lamb" } else { "adamw" };
        plan = Plan { clip_norm: true, optimizer: optimizer.into(), ..plan };
        (format!("{model}, {length} words"), bert_large(length, head))
    } else {
        plan.optimizer = "momentum".into();
        let gated = model.starts_with("SE-");
        (model.to_owned(), residual(Block::Grouped { gated }, [3, 4, 23, 3]))
    };
    Some(Entry {
        model: format!("{label}, {}", if half { "fp16" } else { "fp32" }),
        config,
        card: cells.card(),
        batch: cells.number("batch")?,
        plan,
        copies: if is_bert { COPIES_WITH_HOROVOD } else { 0 },
        said: cells.outcome()?,
    })
}
