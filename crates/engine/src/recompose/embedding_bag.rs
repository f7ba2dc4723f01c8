//! `nn.EmbeddingBag`: one kernel, which the legacy exporter writes as a Loop over groups of indices that looks rows up and adds
//! them (torch/onnx, symbolic_helper.py `_embedding_bag_helper`).

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::embedding_bag::EmbeddingBag;
use memfit_graph::ops::loop_::Loop;
use memfit_graph::{Graph, Node, NodeId, TensorId};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "embedding bag", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let Some((op, inputs)) = bag(rw, id) else { return false };
    let Some(output) = rw.output(id).filter(|t| !rw.is_graph_output(*t)) else { return false };
    let ty = rw.ty(output).clone();
    let made = rw.insert_before(id, Arc::new(op), inputs, ty);
    rw.redirect(output, made);
    true
}

/// The operator and its inputs.
fn bag(rw: &Rewriter<'_>, id: NodeId) -> Option<(EmbeddingBag, Vec<Option<TensorId>>)> {
    let body = Body { graph: &rw.op::<Loop>(id)?.body, node: rw.node(id) };
    let [_, reduced] = body.graph.outputs[..] else { return None };
    let reduction = body.maker(reduced)?;
    let maximum = match reduction.op.name() {
        "ReduceMean" | "ReduceSum" => false,
        "ReduceMax" => true,
        _ => return None,
    };
    let rows = body.maker(input(reduction, 0)?)?;
    let (rows, weights) = match rows.op.name() {
        "Mul" => {
            let of_row = body.made_by(input(rows, 1)?, "Unsqueeze")?;
            let weights = body.outer(input(body.made_by(input(of_row, 0)?, "Slice")?, 0)?)?;
            (body.made_by(input(rows, 0)?, "Gather")?, Some(weights))
        }
        "Gather" => (rows, None),
        _ => return None,
    };
    let table = body.outer(input(rows, 0)?)?;
    let part = body.made_by(input(rows, 1)?, "Slice")?;
    let indices = body.outer(input(part, 0)?)?;
    // Where groups begin, and the same from the second on.
    let [begins, ends] = [1, 2].map(|i| body.at_iteration(input(part, i)?));
    let slice = rw.made_by(ends?, "Slice")?;
    let begins = begins?;
    let begins = rw.made_by(begins, "Slice").and_then(|s| rw.input(s, 0)).unwrap_or(begins);
    if rw.input(slice, 0) != Some(begins) {
        return None;
    }
    let joined = rw.made_by(begins, "Concat");
    let offsets = joined.map_or(Some(begins), |joined| rw.input(joined, 0))?;
    let op = EmbeddingBag { maximum, lists_end: joined.is_none() };
    let inputs = [Some(table), Some(indices), Some(offsets)];
    Some((op, inputs.into_iter().chain(weights.map(Some)).collect()))
}

fn input(node: &Node, i: usize) -> Option<TensorId> {
    node.inputs.get(i).copied().flatten()
}

/// A loop's body and the node that runs it.
struct Body<'a> {
    graph: &'a Graph,
    node: &'a Node,
}

impl<'a> Body<'a> {
    /// The node that makes a tensor of the body.
    fn maker(&self, t: TensorId) -> Option<&'a Node> {
        self.graph.nodes.iter().find(|node| node.outputs.contains(&Some(t)))
    }

    fn made_by(&self, t: TensorId, op: &str) -> Option<&'a Node> {
        self.maker(t).filter(|node| node.op.name() == op)
    }

    /// The tensor around the loop that the body reads as `t`.
    fn outer(&self, t: TensorId) -> Option<TensorId> {
        let (slot, _) = self.graph.captures.iter().find(|(_, id)| *id == t)?;
        self.node.captures.get(*slot).copied()
    }

    /// What is around the loop, of which `t` is the element that the iteration counts.
    fn at_iteration(&self, t: TensorId) -> Option<TensorId> {
        let element = self.made_by(input(self.made_by(t, "Unsqueeze")?, 0)?, "Gather")?;
        (input(element, 1) == self.graph.inputs.first().copied()).then_some(())?;
        self.outer(input(element, 0)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{Attribute, Attributes, DType, Graph, Role, Shape, TensorId, Type, Value, find_op};

    /// The body of a loop over groups: rows `begins[i]..ends[i]` of the indices are looked up and reduced. Captures in this order.
    fn body(reduction: &str) -> Graph {
        let mut g = Graph::default();
        let add = |g: &mut Graph, name: &str, dtype, role| {
            g.add_tensor(name, Type::tensor(dtype, Shape::scalar()), role)
        };
        let i = add(&mut g, "i", DType::Int64, Role::Input);
        let condition = add(&mut g, "c", DType::Bool, Role::Input);
        g.inputs = vec![i, condition];
        let outer = |name: &str, slot, g: &mut Graph| {
            let t = g.add_tensor(name, Type::Unknown, Role::Intermediate);
            g.captures.push((slot, t));
            t
        };
        let [table, indices, begins, ends] = [("table", 0), ("indices", 1), ("begins", 2), ("ends", 3)]
            .map(|(name, slot)| outer(name, slot, &mut g));
        let zero = g.add_constant("zero", Value::vector(DType::Int64, [0]));
        let mut push = |op: &str, attributes, inputs: &[TensorId], name: &str| {
            g.push(op, attributes, inputs, name).unwrap()
        };
        let none = Attributes::default;
        let [from, to] = [(begins, "from"), (ends, "to")].map(|(of, name)| {
            let element = push("Gather", none(), &[of, i], &format!("{name}_element"));
            push("Unsqueeze", none(), &[element, zero], name)
        });
        let part = push("Slice", none(), &[indices, from, to, zero], "part");
        let rows = push("Gather", none(), &[table, part], "rows");
        let keep = Attributes::from([("keepdims", Attribute::Int(0)), ("axes", Attribute::Ints(vec![0]))]);
        let sum = push(reduction, keep, &[rows], "reduced");
        g.outputs = vec![condition, sum];
        g
    }

    #[test]
    fn a_loop_over_groups_of_rows() {
        for (reduction, whole) in [("ReduceMean", true), ("ReduceMax", true), ("ReduceL2", false)] {
            let mut s = Sketch::default();
            let table = s.weight("table", &[100, 8]);
            let listed = |s: &mut Sketch, name: &str, n| {
                let ty = Type::tensor(DType::Int64, Shape::from([n]));
                let id = s.graph.add_tensor(name, ty, Role::Input);
                s.graph.inputs.push(id);
                id
            };
            let (indices, offsets) = (listed(&mut s, "indices", 12), listed(&mut s, "offsets", 3));
            let count = s.ints(&[12]);
            let all =
                s.push_with("Concat", Attributes::from([("axis", Attribute::Int(0))]), &[offsets, count]);
            let (one, last, axis) = (s.ints(&[1]), s.ints(&[i64::MAX]), s.ints(&[0]));
            let ends = s.push("Slice", &[all, one, last, axis]);
            let runs = s.graph.add_constant("runs", Value::scalar(DType::Bool, 1));
            let three = s.whole(3);
            let body = Attributes::from([("body", Attribute::Graph(Box::new(body(reduction))))]);
            let op = find_op("", "Loop", 17).unwrap().build(body, 17).unwrap();
            let y = s.graph.add_tensor("bags", Type::Unknown, Role::Intermediate);
            s.graph.add_node("loop", op, vec![Some(three), Some(runs)], vec![Some(y)]);
            s.graph.nodes.last_mut().unwrap().captures = vec![table, indices, all, ends];
            let y = s.push("Relu", &[y]);
            assert_eq!(s.recompose(y).contains(&"EmbeddingBag"), whole, "{reduction}");
            if whole {
                assert_eq!(s.inputs_of(0), ["table", "indices", "offsets"]);
            }
        }
    }
}
