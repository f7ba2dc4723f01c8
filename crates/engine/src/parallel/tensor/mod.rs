//! Tensor parallel training: each layer is split over the GPUs of a group.
//!
//! The rule is Megatron-LM's (Shoeybi et al., arXiv 1909.08053, section 3; `torch.distributed.tensor.parallel`'s `ColwiseParallel`
//! and `RowwiseParallel`): a product of something whole is split by its columns, so that its output is split too; what works on
//! values one by one, or head by head, keeps the split; the product that reads something split is split by its rows, and its
//! output is whole again. Embeddings are split by rows of their table. Here this is found by following the axis that is split
//! through the graph. An operator that needs the whole of a split tensor makes its producer gather it: from then on that tensor
//! is whole, weights stay split. So it works for any network, and for a transformer gives the split of the paper.
//!
//! Where there are fewer heads of keys and values than GPUs, each has the one head that its queries ask for: what the weights' parts
//! give is gathered, and the head cut out of it (Megatron-LM's `megatron/core/transformer/attention.py`, `num_query_groups` less than the
//! group's size). Heads are not split inside. A shape is known whole wherever it is asked for.
//!
//! What comes out is the same graph with the sizes that one GPU has; everything else follows from that.

mod rules;

use super::vocabulary::Vocabulary;
use crate::structure::is_keras;
use memfit_graph::{Dim, Graph, Inferred, Node, Role, Shape, TensorId, Type};
use rules::Output;
pub(super) use rules::RESHAPES;

/// Passes over the graph; each makes at least one more tensor whole. What is left then is made whole at once.
const MOST_PASSES: usize = 64;

/// A graph with the sizes that one of a group of GPUs has.
pub(crate) struct Split {
    pub(crate) graph: Graph,
    pub(crate) inferred: Inferred,
    /// What was assumed, in words.
    pub(crate) said: Vec<String>,
}

impl Split {
    /// Splits the layers over `ways` GPUs.
    pub(crate) fn over(graph: &Graph, inferred: &Inferred, ways: u32) -> Split {
        let mut found = Axes::new(graph, inferred, u64::from(ways));
        for pass in 0..=MOST_PASSES {
            found.pass();
            if found.needed.is_empty() {
                break;
            }
            if pass + 1 >= MOST_PASSES {
                found.whole.fill(true);
            }
            for id in std::mem::take(&mut found.needed) {
                found.whole[id.index()] = true;
            }
        }
        let (mut graph, mut inferred) = (graph.clone(), inferred.clone());
        let mut is_split = false;
        for (i, axis) in found.axis.iter().enumerate() {
            let Some(axis) = *axis else { continue };
            let part = |n| found.part(n).unwrap_or(n);
            resize(&mut inferred.types[i], axis, part);
            if let Some(copies) = found.copies[i] {
                resize(&mut inferred.types[i], axis + 1, |n| n / copies);
            }
            if graph.tensors[i].role != Role::Intermediate {
                is_split = true;
                resize(&mut graph.tensors[i].declared, axis, part);
                // Elements that were folded are those of the whole.
                inferred.values[i] = None;
                graph.tensors[i].value = None;
            }
        }
        Split { graph, inferred, said: found.said(is_split) }
    }
}

fn resize(ty: &mut Type, axis: usize, to: impl Fn(u64) -> u64) {
    if let Type::Tensor(tensor) = ty
        && let Some(dim) = tensor.shape.as_mut().and_then(|shape| shape.dims_mut().get_mut(axis))
        && let Some(n) = dim.known()
    {
        *dim = Dim::Known(to(n));
    }
}

/// Which axis of each tensor is split.
struct Axes<'a> {
    graph: &'a Graph,
    inferred: &'a Inferred,
    ways: u64,
    axis: Vec<Option<usize>>,
    /// Tensors that somebody needs whole.
    whole: Vec<bool>,
    /// Those that this pass found to be needed so.
    needed: Vec<TensorId>,
    /// Heads that are cut out of what is whole, by the tensor that has them: their axis.
    cut: Vec<Option<usize>>,
    /// Of heads that are repeated for their queries, behind the axis of the heads: in how many parts.
    copies: Vec<Option<u64>>,
    /// Those that are padded.
    vocabularies: Vec<Vocabulary>,
}

impl<'a> Axes<'a> {
    fn new(graph: &'a Graph, inferred: &'a Inferred, ways: u64) -> Axes<'a> {
        let mut whole = vec![false; graph.tensors.len()];
        for id in &graph.outputs {
            whole[id.index()] = true;
        }
        let none = vec![None; graph.tensors.len()];
        let (axis, cut, copies) = (none.clone(), none, vec![None; graph.tensors.len()]);
        let vocabularies = Vocabulary::all(graph, inferred, ways);
        Axes { graph, inferred, ways, axis, whole, needed: Vec::new(), cut, copies, vocabularies }
    }

    /// One GPU's part of so many values.
    fn part(&self, n: u64) -> Option<u64> {
        match n {
            _ if n > 0 && n.is_multiple_of(self.ways) => Some(n / self.ways),
            // One of fewer heads than GPUs.
            _ if self.is_shared(n) => Some(1),
            _ => self.vocabularies.iter().find(|v| v.words == n).map(|v| v.rows),
        }
    }

    /// What to say of a split that is found.
    fn said(&self, is_split: bool) -> Vec<String> {
        let ways = self.ways;
        let mut said = vec![if is_split {
            format!(
                "layers are split over {ways} GPUs: products by columns, then by rows, as Megatron-LM does; what stands between \
                 them, norms and the logits are whole"
            )
        } else if is_keras(self.graph) {
            "Keras splits layers over devices under JAX alone (`keras.distribution.ModelParallel`), so each GPU has all".into()
        } else {
            format!(
                "no layer was split over {ways} GPUs: none has a known rule and a size that divides by it, so each GPU has all"
            )
        }];
        if !is_split {
            return said;
        }
        said.extend(self.vocabularies.iter().map(|vocabulary| vocabulary.said(ways)));
        let attention = self.graph.nodes.iter().filter(|node| node.op.name() == "ScaledDotProductAttention");
        let heads = attention.filter_map(|node| self.dim(self.input(node, 0)?, 1));
        let mut heads: Vec<u64> = heads.filter(|n| !n.is_multiple_of(ways)).collect();
        heads.sort_unstable();
        heads.dedup();
        said.extend(heads.iter().map(|n| {
            format!(
                "{n} heads of attention do not go over {ways} GPUs, and a head is not split: each GPU runs all of them. \
                 Megatron-LM refuses that: heads are to be a multiple of the GPUs"
            )
        }));
        said
    }

    /// Follows the split through the graph once.
    fn pass(&mut self) {
        self.axis.fill(None);
        for node in &self.graph.nodes {
            match self.outputs(node) {
                Output::Whole => {}
                Output::Split(axis) => self.put(node, axis),
                Output::NeedsWhole => self.need(node),
            }
        }
        self.needed.retain(|id| self.graph.tensor(*id).role == Role::Intermediate);
        self.needed.sort_unstable();
        self.needed.dedup();
    }

    /// A node needs all of its inputs whole.
    fn need(&mut self, node: &Node) {
        let (axis, needed) = (&self.axis, &mut self.needed);
        needed.extend(node.inputs.iter().flatten().filter(|id| axis[id.index()].is_some()));
    }

    fn of(&self, id: TensorId) -> Option<usize> {
        self.axis[id.index()]
    }

    fn input(&self, node: &Node, i: usize) -> Option<TensorId> {
        node.inputs.get(i).copied().flatten()
    }

    fn shape(&self, id: TensorId) -> Option<&Shape> {
        self.inferred.shape(id)
    }

    fn dim(&self, id: TensorId, axis: usize) -> Option<u64> {
        self.shape(id)?.dims().get(axis)?.known()
    }

    fn is_weight(&self, id: TensorId) -> bool {
        let tensor = self.graph.tensor(id);
        tensor.role == Role::Initializer && tensor.declared.dtype().is_some_and(|d| d.is_float())
    }

    /// Whether a tensor has a whole number of values for each GPU along an axis.
    fn divides(&self, id: TensorId, axis: usize) -> bool {
        self.dim(id, axis).is_some_and(|n| n > 0 && n.is_multiple_of(self.ways))
    }

    /// Whether there are fewer heads than GPUs, and the same number of GPUs for each.
    fn is_shared(&self, n: u64) -> bool {
        n > 1 && n < self.ways && self.ways.is_multiple_of(n)
    }

    fn shares(&self, id: TensorId, axis: usize) -> bool {
        self.dim(id, axis).is_some_and(|n| self.is_shared(n))
    }

    /// Whether so many values of a weight are padded.
    fn pads(&self, id: TensorId, axis: usize) -> bool {
        self.dim(id, axis).is_some_and(|n| self.vocabularies.iter().any(|v| v.words == n))
    }

    /// Splits a weight along an axis, unless it is split along another.
    fn split_weight(&mut self, id: TensorId, axis: usize) -> bool {
        let has_parts = self.divides(id, axis) || self.pads(id, axis);
        let agrees = self.of(id).is_none_or(|known| known == axis) && has_parts;
        if agrees && self.is_weight(id) {
            self.axis[id.index()] = Some(axis);
        }
        agrees && self.is_weight(id)
    }

    /// Gives a node's outputs their axis; where one must be whole, so must the inputs.
    fn put(&mut self, node: &Node, axis: usize) {
        let rank = |axes: &Self, id: &TensorId| axes.shape(*id).map(Shape::rank);
        let first = node.outputs.iter().flatten().next().and_then(|id| rank(self, id));
        // Others are statistics of a norm.
        for id in node.outputs.iter().flatten() {
            if rank(self, id) != first {
                continue;
            }
            if self.whole[id.index()] || !(self.divides(*id, axis) || self.shares(*id, axis)) {
                self.need(node);
            } else {
                self.axis[id.index()] = Some(axis);
            }
        }
    }
}
