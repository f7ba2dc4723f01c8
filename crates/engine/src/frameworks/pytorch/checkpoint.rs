//! Activation recomputation: segments that forward runs without autograd and backward runs again.
//!
//! Source: torch/utils/checkpoint.py (2.15). Forward keeps a segment's inputs alone; backward first runs the segment
//! again, now keeping what its operators keep, then runs backward through it, and drops it all before the next segment.

use super::Runner;
use super::backward::{self, Leaf, Machine, Options};
use super::gradients::Gradient;
use super::record::{Node, NodeInput, Span, Way};
use super::tape::{Edge, NodeRef, Tape, TensorRef};
use crate::{Checkpoint, StorageId, blocks};
use memfit_graph::{Grad, Graph, TensorId, order};
use std::ops::Range;

/// A run of nodes that is recomputed as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Positions of its nodes.
    pub(crate) nodes: Range<usize>,
    /// Tensors from outside that carry a gradient, with where they were in forward.
    pub(super) inputs: Vec<(TensorId, TensorRef)>,
    /// Tensors that are read outside.
    pub(super) outputs: Vec<TensorId>,
}

/// The segments of a graph, in order and disjoint.
pub(super) fn segments(graph: &Graph, how: Checkpoint) -> Vec<Segment> {
    let segment = |nodes| Segment { outputs: crossing(graph, &nodes), nodes, inputs: Vec::new() };
    blocks::recomputed(graph, how).into_iter().map(segment).collect()
}

/// What is made inside of a range of nodes and read outside.
fn crossing(graph: &Graph, nodes: &Range<usize>) -> Vec<TensorId> {
    let made =
        order::set(graph.nodes[nodes.clone()].iter().flat_map(|n| n.outputs.iter().flatten().copied()));
    let outside = graph.nodes[..nodes.start].iter().chain(&graph.nodes[nodes.end..]);
    let read = outside.flat_map(|n| n.inputs.iter().flatten().chain(&n.captures)).chain(&graph.outputs);
    order::set(read.filter(|id| made.contains(id)).copied()).into_iter().collect()
}

impl Runner<'_> {
    /// Runs a segment forward without autograd, and puts one node in its place.
    pub(super) fn run_checkpointed(&mut self, index: usize) {
        let segment = self.segments[index].clone();
        let graph = self.graph;
        let nodes = &graph.nodes[segment.nodes.clone()];
        let read = order::set(nodes.iter().flat_map(|n| n.inputs.iter().flatten().copied()));
        let inputs: Vec<(TensorId, TensorRef)> = read
            .into_iter()
            .filter_map(|id| Some((id, self.values[id.index()]?)))
            .filter(|(_, t)| matches!(self.tape.tensor(*t).edge, Edge::Node { .. }) || !self.is_stored(*t))
            .collect();
        let saved: Vec<StorageId> = inputs.iter().map(|(_, t)| self.tape.tensor(*t).storage).collect();
        for storage in &saved {
            self.tape.memory.hold(*storage);
        }
        self.tape.grad_mode = false;
        self.nodes(segment.nodes.clone());
        self.tape.grad_mode = true;
        let id = NodeRef(u32::try_from(self.tape.nodes.len()).unwrap_or(u32::MAX));
        let outputs: Vec<TensorRef> =
            segment.outputs.iter().filter_map(|id| self.values[id.index()]).collect();
        let tape = &mut self.tape;
        let starts = (tape.inputs.len(), tape.outputs.len(), tape.saved.len());
        for (_, t) in &inputs {
            let tensor = *tape.tensor(*t);
            tape.inputs.push(NodeInput { meta: tensor.meta(), edge: tensor.edge, grad: Grad::New });
        }
        for t in &outputs {
            let meta = tape.tensor(*t).meta();
            tape.outputs.push(meta);
        }
        tape.saved.extend(saved);
        let node = Node {
            function: "checkpoint",
            layer: tape.memory.layer,
            inputs: Span::since(starts.0, &tape.inputs),
            outputs: Span::since(starts.1, &tape.outputs),
            way: Way::Plain,
            saved: Span::since(starts.2, &tape.saved),
            scratch: Span::default(),
            workspace: Span::default(),
            segment: u32::try_from(index).ok(),
        };
        self.tape.nodes.push(node);
        for (output, t) in (0..).zip(&outputs) {
            let tensor = &mut self.tape.tensors[t.0 as usize];
            if tensor.dtype.is_float() {
                tensor.edge = Edge::Node { node: id, output };
            }
        }
        self.segments[index].inputs = inputs;
    }

    /// Whether a tensor is a parameter or buffer, which a segment reads where it is.
    fn is_stored(&self, t: TensorRef) -> bool {
        use crate::Category::{Buffer, Parameter};
        matches!(self.tape.memory.storage(self.tape.tensor(t).storage).category, Parameter | Buffer)
    }
}

impl Machine for Runner<'_> {
    fn tape(&mut self) -> &mut Tape {
        &mut self.tape
    }

    fn checkpoint(
        &mut self,
        segment: u32,
        incoming: &[Option<Gradient>],
        leaves: &mut Vec<Leaf>,
        options: Options,
    ) -> Vec<Option<Gradient>> {
        let segment = self.segments[segment as usize].clone();
        let graph = self.graph;
        let nodes = &graph.nodes[segment.nodes.clone()];
        for id in nodes.iter().flat_map(|n| n.inputs.iter().flatten().chain(&n.captures)) {
            self.uses[id.index()] += 1;
        }
        for id in &segment.outputs {
            self.uses[id.index()] += 1;
        }
        let own = leaves.len();
        for (id, t) in &segment.inputs {
            let mut tensor = *self.tape.tensor(*t);
            self.tape.hold(*t);
            if tensor.requires_grad() {
                let layout = self.tape.layouts.made_contiguous(tensor.layout);
                let (dtype, layer) = (tensor.dtype, self.tape.memory.layer);
                tensor.edge = Edge::Leaf(u32::try_from(leaves.len()).unwrap_or(u32::MAX));
                leaves.push(Leaf { layout, dtype, layer, is_table: false, grad: None });
            }
            self.values[id.index()] = Some(self.tape.add(tensor));
        }
        self.tape.autocast = super::autocast(self.structure, self.plan);
        self.nodes(segment.nodes.clone());
        self.tape.end_autocast();
        self.tape.autocast = None;
        let mut roots = Vec::new();
        for (id, gradient) in segment.outputs.iter().zip(incoming) {
            let Some(t) = self.values[id.index()] else { continue };
            if let Some(gradient) = gradient {
                roots.push((self.tape.tensor(t).edge, *gradient));
            }
            self.release_use(*id);
        }
        backward::run_from(self, roots, leaves, options);
        let mut pseudo = leaves.split_off(own).into_iter();
        let mut gradients = Vec::new();
        for (_, t) in &segment.inputs {
            let leaf = if self.tape.tensor(*t).requires_grad() { pseudo.next() } else { None };
            gradients.push(leaf.and_then(|leaf| {
                let Leaf { layout, dtype, grad, .. } = leaf;
                Some(Gradient { storage: grad?, layout, dtype })
            }));
        }
        gradients
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{Attributes, Role, Type};

    /// A chain of operators in these modules.
    fn chain(scopes: &[&str]) -> Graph {
        let mut g = Graph::default();
        let mut x = g.add_tensor("x", Type::Unknown, Role::Input);
        for scope in scopes {
            x = g.push("Relu", Attributes::default(), &[x], scope).unwrap();
            g.nodes.last_mut().unwrap().scope = (*scope).into();
        }
        g.outputs = vec![x];
        g
    }

    #[test]
    fn blocks_are_the_numbered_modules_that_repeat() {
        let g =
            chain(&["stem", "layers.0.a", "layers.0", "mid", "layers.1.a", "layers.1.b", "head.0", "head.1"]);
        let ranges = |how| segments(&g, how).into_iter().map(|s| s.nodes).collect::<Vec<_>>();
        assert_eq!(ranges(Checkpoint::Block), [1..3, 4..6]);
        assert_eq!(ranges(Checkpoint::Full), [0..1, 1..4, 4..8]);
        assert_eq!(segments(&g, Checkpoint::Block)[0].outputs, [g.find("layers.0").unwrap()]);
    }
}
