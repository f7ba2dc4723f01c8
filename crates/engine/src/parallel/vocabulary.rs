//! A vocabulary that does not divide by the GPUs of a group.
//!
//! Megatron-LM makes it larger: up to a multiple of `--make-vocab-size-divisible-by` (128) times the GPUs
//! (`megatron/training/tokenizer`, `vocab_size_with_padding`), for the table of embeddings and for the matrix that gives the logits, so that
//! both are split. A vocabulary that divides is split as it is: whoever made the file may have padded it already. Positions and
//! types of tokens are no vocabulary: their tables are whole where they do not divide (`language_model_embedding.py`).

use super::tensor::RESHAPES;
use memfit_graph::ops::gather::Gather;
use memfit_graph::{Graph, Inferred, Node, TensorId};

/// What each GPU's rows are a multiple of.
const DIVISIBLE_BY: u64 = 128;

/// Words, and the rows of one GPU once they are padded.
pub(super) struct Vocabulary {
    pub(super) words: u64,
    pub(super) rows: u64,
}

impl Vocabulary {
    /// Those of tables that are read by ids that the model is given.
    pub(super) fn all(graph: &Graph, inferred: &Inferred, ways: u64) -> Vec<Vocabulary> {
        let mut is_id = vec![false; graph.tensors.len()];
        graph.inputs.iter().for_each(|id| is_id[id.index()] = true);
        let mut all: Vec<Vocabulary> = Vec::new();
        let input = |node: &Node, i: usize| node.inputs.get(i).copied().flatten();
        for node in &graph.nodes {
            let name = node.op.name();
            if RESHAPES.contains(&name) || name == "Cast" {
                let is = input(node, 0).is_some_and(|id| is_id[id.index()]);
                node.outputs.iter().flatten().for_each(|id| is_id[id.index()] = is);
            }
            let by_row = node.op.downcast::<Gather>().is_some_and(|gather| gather.axis == 0);
            let by_id = by_row && input(node, 1).is_some_and(|id| is_id[id.index()]);
            let words = input(node, 0).filter(|_| by_id).and_then(|table| words(inferred, table));
            let Some(words) = words.filter(|n| !n.is_multiple_of(ways)) else { continue };
            let rows = words.div_ceil(DIVISIBLE_BY.saturating_mul(ways)).saturating_mul(DIVISIBLE_BY);
            if rows < words && all.iter().all(|known| known.words != words) {
                all.push(Vocabulary { words, rows });
            }
        }
        all
    }

    /// What is assumed of it.
    pub(super) fn said(&self, ways: u64) -> String {
        let (words, padded) = (self.words, self.rows.saturating_mul(ways));
        format!(
            "the vocabulary of {words} is padded to {padded} over {ways} GPUs, as Megatron-LM does (--make-vocab-size-divisible-by 128)"
        )
    }
}

/// The rows of a table.
fn words(inferred: &Inferred, table: TensorId) -> Option<u64> {
    match inferred.shape(table)?.dims() {
        [rows, _] => rows.known(),
        _ => None,
    }
}
