//! Dropout and stochastic depth that an inference export left out.
//!
//! Neither does anything in inference, so no exporter writes them there. In training each Dropout keeps a mask of one byte an
//! element beside its result, and attention that drops probabilities in pieces (`eager`) keeps the largest of them all.
//! What tells an inference export: weights that the exporter folded, or batch norms that normalize with what they stored.

use super::Finding;
use super::parameters::is_exporters;
use super::rewriter::Rewriter;
use memfit_graph::Role;
use memfit_graph::ops::batch_norm::BatchNormalization;
use memfit_graph::ops::scaled_dot_product::ScaledDotProductAttention;

/// Operators that only training has.
const RANDOM: &[&str] = &["Bernoulli", "Dropout", "RandomNormalLike", "RandomUniform", "RandomUniformLike"];

/// Says so where the file is for inference and drops nothing.
pub(super) fn find(rw: &Rewriter<'_>) -> Option<Finding> {
    let nodes = rw.node_ids();
    let drops = |id: &memfit_graph::NodeId| {
        let attention = rw.op::<ScaledDotProductAttention>(*id).is_some_and(|op| op.dropout);
        attention || RANDOM.contains(&rw.node(*id).op.name())
    };
    if nodes.iter().any(drops) || !nodes.iter().any(|id| is_folded(rw, *id)) {
        return None;
    }
    let message = "the file holds neither dropout nor stochastic depth, which exports for inference leave out: where the model \
                   has them, training keeps a mask of a byte for each element; export it in training mode to see them";
    Some(Finding { kind: "no-dropout", message: message.to_owned(), layers: Vec::new() })
}

/// Whether a node is as only inference has it.
fn is_folded(rw: &Rewriter<'_>, id: memfit_graph::NodeId) -> bool {
    if rw.op::<BatchNormalization>(id).is_some_and(|norm| !norm.training_mode) {
        return true;
    }
    let is_product = ["Conv", "Gemm", "Linear", "MatMul"].iter().any(|op| rw.is(id, op));
    let weight = rw.input(id, 1).filter(|_| is_product).map(|t| rw.graph.tensor(t));
    weight.is_some_and(|w| w.role == Role::Initializer && is_exporters(&w.name))
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    #[test]
    fn a_folded_weight_without_dropout_tells_an_inference_export() {
        for (name, drops, found) in
            [("onnx::MatMul_3", false, true), ("fc.weight", false, false), ("onnx::MatMul_3", true, false)]
        {
            let mut s = Sketch::default();
            let (x, w) = (s.input("x", &[2, 8]), s.weight(name, &[8, 8]));
            let mut y = s.push("MatMul", &[x, w]);
            if drops {
                y = s.push("Dropout", &[y]);
            }
            s.recompose(y);
            assert_eq!(s.report.findings.iter().any(|f| f.kind == "no-dropout"), found);
        }
    }
}
