//! `softmax(x, dim, dtype=torch.float32).to(x.dtype)`, of which the dynamo exporter keeps the softmax alone.
//!
//! In a float32 file its casts change nothing, so they are dropped. The name of the softmax's result tells of one: the
//! result of a PyTorch call bears the call's name (`softmax_3`), what the exporter makes on the way there is counted
//! (`val_78`). A call of softmax without a dtype ends with the Softmax; with one, a Cast ends it (onnxscript 0.7.2,
//! torch_lib/ops/core.py, `aten_softmax`). Attention has such a softmax inside too, without a dtype. The legacy exporter
//! writes both casts (`aliases`).

use super::rewriter::Rewriter;
use super::{Pass, sdpa};
use memfit_graph::NodeId;
use memfit_graph::ops::softmax::Softmax;
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "softmax in float32", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let Some(softmax) = rw.op::<Softmax>(id).copied().filter(|s| !s.log && !s.in_float32) else {
        return false;
    };
    let counted = rw.output(id).and_then(|t| rw.graph.tensor(t).name.strip_prefix("val_"));
    let is_counted = counted.is_some_and(|n| n.parse::<u64>().is_ok());
    if !is_counted || !rw.node(id).name.starts_with("node_Softmax_") || sdpa::is_inside(rw, id) {
        return false;
    }
    let x = rw.input(id, 0);
    rw.rewrite(id, Arc::new(Softmax { in_float32: true, ..softmax }), vec![x]);
    true
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::ops::softmax::Softmax;

    #[test]
    fn a_result_that_is_counted_was_cast() {
        for (node, result, expected) in [
            ("node_Softmax_76", "val_78", true),
            ("node_softmax_1", "softmax_1", false),
            ("/h.0/Softmax", "/h.0/Softmax_output_0", false),
            ("Softmax_7", "val_7", false),
        ] {
            let mut s = Sketch::default();
            let x = s.input("x", &[2, 8, 8]);
            let y = s.push("Softmax", &[x]);
            s.graph.tensors[y.index()].name = result.into();
            s.graph.nodes[0].name = node.into();
            let y = s.push("MatMul", &[y, x]);
            assert_eq!(s.recompose(y), ["Softmax", "MatMul"]);
            let op: &Softmax = s.graph.nodes[0].op.downcast().unwrap();
            assert_eq!(op.in_float32, expected, "{node} {result}");
        }
    }

    #[test]
    fn attentions_own_is_left_as_it_is() {
        let mut s = Sketch::default();
        s.options.composed_attention = true;
        let [q, turned, v] = [[2, 10, 8], [2, 8, 10], [2, 10, 8]].map(|shape| s.input("x", &shape));
        let c = s.scalar(0.42);
        let (q, k) = (s.push("Mul", &[q, c]), s.push("Mul", &[turned, c]));
        let p = s.push("MatMul", &[q, k]);
        let p = s.push("Softmax", &[p]);
        s.graph.tensors[p.index()].name = "val_78".into();
        s.graph.nodes[3].name = "node_Softmax_76".into();
        let y = s.push("MatMul", &[p, v]);
        assert!(s.recompose(y).contains(&"Softmax"));
        let op = s.graph.nodes.iter().find_map(|n| n.op.downcast::<Softmax>());
        assert!(!op.unwrap().in_float32);
    }
}
