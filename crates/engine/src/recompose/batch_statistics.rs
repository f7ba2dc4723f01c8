//! Batch norms without running statistics.
//!
//! `F.batch_norm(x, None, None, training=True)` (weight standardization) and modules with `track_running_stats=False` have
//! no running statistics; ONNX wants them, so the exporter computes the batch's own mean and variance in pieces. The
//! framework computes those inside of its kernel.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::NodeId;
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "batch statistics", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    if !rw.is(id, "BatchNormalization") {
        return false;
    }
    let mut inputs = rw.node(id).inputs.clone();
    let computed = |t| rw.producer(t).is_some();
    if !inputs.get(3).copied().flatten().is_some_and(computed) {
        return false;
    }
    inputs.truncate(3);
    let op = Arc::clone(&rw.node(id).op);
    rw.rewrite(id, op, inputs);
    true
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{Attribute, Attributes};

    #[test]
    fn the_statistics_of_the_batch_are_not_computed_twice() {
        let mut s = Sketch::default();
        let (x, w) = (s.input("x", &[2, 8, 4]), s.weight("w", &[8]));
        let axes = Attributes::from([("axes", Attribute::Ints(vec![0, 2])), ("keepdims", Attribute::Int(0))]);
        let mean = s.push_with("ReduceMean", axes.clone(), &[x]);
        let squared = s.push("Mul", &[x, x]);
        let variance = s.push_with("ReduceMean", axes, &[squared]);
        let training = Attributes::from([("training_mode", Attribute::Int(1))]);
        let y = s.push_with("BatchNormalization", training, &[x, w, w, mean, variance]);
        assert_eq!(s.recompose(y), ["BatchNormalization"]);
    }
}
