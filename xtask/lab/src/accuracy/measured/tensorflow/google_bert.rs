//! google-research/bert: the largest batch of fine-tuning BERT-Large by the length of its texts, on a Titan X with 12 GB.
//! TensorFlow 1.11, Adam (optimization.py, `AdamWeightDecayOptimizer`), float32, gradients clipped by their global norm.

use super::bert::{COPIES, Head, bert_large};
use super::{Cells, Entry, Said, plan};
use memfit_engine::Plan;

pub(super) fn entry(cells: &Cells) -> Option<Entry> {
    let length = cells.length()?;
    let batch = cells.number("batch")?;
    Some(Entry {
        model: format!("BERT-Large, {length} words"),
        config: bert_large(length, Head::Classes),
        card: cells.card(),
        batch: batch.max(1),
        plan: Plan { optimizer: "adamw".into(), weight_decay: true, clip_norm: true, ..plan() },
        // A cell of zero is one where a batch of one failed.
        copies: COPIES,
        said: if batch == 0 { Said::Failed } else { cells.outcome()? },
    })
}
