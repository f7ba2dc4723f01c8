//! `torch.max(x, dim).values` and `torch.min`, of which a file shows the values alone.
//!
//! Exporters write them as ReduceMax and ArgMax, and drop the ArgMax where nothing reads the positions. Backward reads
//! them all the same, and neither the input nor the result, as it does for `torch.amax` (derivatives.yaml). The dynamo
//! exporter tells the two apart: a result taken out of a pair is called `getitem`, that of `amax` by its name. A legacy file
//! has a ReduceMax for both. `max` takes one axis, and model code writes it there more often (`torch.max(x, 1)[0]` in
//! PointNet, DGCNN, CBAM and text networks; five times as often as `amax` in transformers' models); several are `amax`'s.

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
    let one_axis = rw.is_legacy(id) && reduce.axes.listed.as_ref().is_some_and(|axes| axes.len() == 1);
    let is_named = || rw.output(id).is_some_and(|t| rw.is_named_after(t, "getitem"));
    if !one_axis && !is_named() {
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
    use memfit_graph::Attribute;

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

    #[test]
    fn a_legacy_file_has_positions_along_one_axis() {
        for (name, axes, expected) in
            [("/pool/ReduceMax", &[2][..], true), ("/pool/ReduceMax", &[2, 3], false), ("n4", &[2], false)]
        {
            let mut s = Sketch::default();
            let x = s.input("x", &[2, 8, 4, 4]);
            let y = s.push_with("ReduceMax", [("axes", Attribute::Ints(axes.to_vec()))].into(), &[x]);
            s.graph.nodes[0].name = name.into();
            s.recompose(y);
            let op: &Reduce = s.graph.nodes[0].op.downcast().unwrap();
            assert_eq!(op.with_positions, expected, "{name} {axes:?}");
        }
    }
}
