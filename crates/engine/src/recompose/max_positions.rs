//! `torch.max(x, dim).values` and `torch.min`, of which a file shows the values alone.
//!
//! Exporters write them as ReduceMax and ArgMax, and drop the ArgMax where nothing reads the positions. Backward reads
//! them all the same, and neither the input nor the result, as it does for `torch.amax` (derivatives.yaml). The dynamo
//! exporter tells the two apart: a result taken out of a pair is called `getitem`, that of `amax` by its name. A legacy file
//! has a ReduceMax for both, which is taken for `amax`: model code writes either.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::NodeId;
use memfit_graph::ops::reduce::{Reduce, ReduceKind};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "maximum with positions", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let Some(reduce) = rw.op::<Reduce>(id) else { return false };
    if !matches!(reduce.kind, ReduceKind::Max | ReduceKind::Min) || reduce.with_positions {
        return false;
    }
    if !rw.output(id).is_some_and(|t| rw.is_named_after(t, "getitem")) {
        return false;
    }
    let op = Reduce { with_positions: true, ..reduce.clone() };
    let inputs = rw.node(id).inputs.clone();
    rw.rewrite(id, Arc::new(op), inputs);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recompose::testing::Sketch;

    #[test]
    fn the_name_of_the_result_tells() {
        for (result, expected) in
            [("getitem", true), ("getitem_4", true), ("amax", false), ("/pool/ReduceMax_output_0", false)]
        {
            let mut s = Sketch::default();
            let x = s.input("x", &[2, 8, 4, 4]);
            let axes = s.ints(&[1]);
            let y = s.push("ReduceMax", &[x, axes]);
            s.graph.tensors[y.index()].name = result.into();
            let y = s.push("Relu", &[y]);
            assert_eq!(s.recompose(y), ["ReduceMax", "Relu"]);
            let op: &Reduce = s.graph.nodes[0].op.downcast().unwrap();
            assert_eq!(op.with_positions, expected, "{result}");
        }
    }
}
