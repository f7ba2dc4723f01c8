//! BERT-Large with the heads that it was measured with.

use super::net::Net;
use serde_json::json;

/// Copies of the parameters that google-research/bert's optimizer (optimization.py) holds beside Keras's: decayed moments and the decayed
/// weight are products of variables alone (`tf.multiply(self.beta_1, m)`), so that they are computed as the step begins. Clipping
/// writes into the gradients themselves, and each update into what it reads last: the statistics of a step of small networks with this
/// optimizer, clipping and all, show a peak 3.0 times the parameters above the same step without one (TensorFlow 2.21, `tf.compat.v1`).
pub(super) const COPIES: u64 = 3;
/// The same of NVIDIA's programs, which are made of it: Horovod's kernel gives each averaged gradient in a tensor of its own.
pub(super) const COPIES_WITH_HOROVOD: u64 = COPIES + 1;

/// What stands on a BERT.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Head {
    /// Two classes of the first position.
    Classes,
    /// Where an answer begins and ends: two numbers a position.
    Span,
    /// So many masked words, each one of the whole vocabulary.
    Words(u64),
}

/// BERT-Large (google-research/bert, modeling.py) for texts of so many words, attention and its mask in pieces.
pub(super) fn bert_large(length: u64, head: Head) -> String {
    const HIDDEN: u64 = 1024;
    const HEADS: u64 = 16;
    const VOCABULARY: u64 = 30_522;
    let mut net = Net::default();
    let dropout = |net: &mut Net, x: &str| net.layer("Dropout", json!({ "rate": 0.1 }), &[x]);
    let norm = |net: &mut Net, x: &str| net.layer("LayerNormalization", json!({ "axis": [2] }), &[x]);
    let tables = [VOCABULARY, 512, 2].map(|rows| {
        let ids = net.input(&[length]);
        net.layer("Embedding", json!({ "input_dim": rows, "output_dim": HIDDEN }), &[&ids])
    });
    let x = net.layer("Add", json!({}), &tables.each_ref().map(String::as_str));
    let x = norm(&mut net, &x);
    let mut x = dropout(&mut net, &x);
    for _ in 0..24 {
        let config = json!({ "num_heads": HEADS, "key_dim": HIDDEN / HEADS, "dropout": 0.1 });
        let y = net.layer("MultiHeadAttention", config, &[&x, &x]);
        let y = dropout(&mut net, &y);
        let y = net.add(&y, &x);
        x = norm(&mut net, &y);
        let y = net.dense(&x, 4 * HIDDEN, "gelu");
        let y = net.dense(&y, HIDDEN, "linear");
        let y = dropout(&mut net, &y);
        let y = net.add(&y, &x);
        x = norm(&mut net, &y);
    }
    let some = |net: &mut Net, x: &str, kept: u64| {
        net.layer("Cropping1D", json!({ "cropping": [0, length.saturating_sub(kept)] }), &[x])
    };
    let out = match head {
        Head::Span => net.dense(&x, 2, "softmax"),
        Head::Classes => {
            let first = some(&mut net, &x, 1);
            let pooled = net.dense(&first, HIDDEN, "tanh");
            let pooled = dropout(&mut net, &pooled);
            net.dense(&pooled, 2, "softmax")
        }
        Head::Words(words) => {
            let masked = some(&mut net, &x, words);
            let y = net.dense(&masked, HIDDEN, "gelu");
            let y = norm(&mut net, &y);
            net.dense(&y, VOCABULARY, "softmax")
        }
    };
    net.model(&[&out])
}
