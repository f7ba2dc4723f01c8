//! What changes, and what stands in the way, when a size that a file fixes is replaced by another.

use crate::{Graph, Inferred, Node, Role, TensorId, Type, Value};
use std::collections::HashSet;

/// What was known of the tensors before this size was replaced.
#[derive(Clone, Copy)]
pub(crate) struct Earlier<'a> {
    /// In the file as exported.
    pub(crate) plain: &'a Inferred,
    /// After the sizes that were replaced already.
    pub(crate) before: &'a Inferred,
}

impl Earlier<'_> {
    /// Whether a node has nothing to do with this size: its inputs are as before, and it gives what the file alone says. What it
    /// gave before may have followed another size that was replaced.
    pub(crate) fn stays(self, node: &Node, inferred: &Inferred, outputs: &[(Type, Option<Value>)]) -> bool {
        let mut given = node.outputs.iter().zip(outputs).filter_map(|(id, output)| Some(((*id)?, output)));
        self.is_settled(node, inferred) && given.all(|(id, (ty, _))| self.plain.types[id.index()] == *ty)
    }

    /// Whether a node followed a size that was replaced already and has nothing to do with this one: its inputs alone do not show
    /// any more how it did.
    pub(crate) fn has_followed(self, node: &Node, inferred: &Inferred) -> bool {
        let mut read = node.inputs.iter().flatten();
        self.is_settled(node, inferred) && read.any(|id| !is_same(*id, self.plain, inferred))
    }

    /// Whether a node's inputs are as they were before this size.
    fn is_settled(self, node: &Node, inferred: &Inferred) -> bool {
        let mut read = node.inputs.iter().flatten().chain(&node.captures);
        !std::ptr::eq(self.plain, self.before) && read.all(|id| is_same(*id, self.before, inferred))
    }

    /// Leaves a tensor as it was before.
    pub(crate) fn keep(self, inferred: &mut Inferred, id: TensorId) {
        inferred.types[id.index()] = self.before.types[id.index()].clone();
        inferred.values[id.index()] = self.before.values[id.index()].clone();
    }
}

fn is_same(id: TensorId, before: &Inferred, now: &Inferred) -> bool {
    let i = id.index();
    before.types[i] == now.types[i] && before.values[i] == now.values[i]
}

/// What keeps a node from another size: the stored tensor behind an input that did not follow, for the user.
pub(crate) fn obstacle(graph: &Graph, node: &Node, before: &Inferred, now: &Inferred) -> String {
    let still = |id: &TensorId| is_same(*id, before, now) && now.shape(*id).is_some_and(|s| s.rank() > 0);
    let producers = graph.producers();
    let (mut seen, mut stored) = (HashSet::new(), Vec::new());
    let mut open: Vec<TensorId> = node.inputs.iter().flatten().copied().filter(still).collect();
    open.reverse();
    while let Some(id) = open.pop().filter(|_| seen.len() < MAX_STEPS) {
        if !seen.insert(id) {
            continue;
        }
        match producers[id.index()] {
            Some(node) => {
                open.extend(graph.nodes[node.index()].inputs.iter().flatten().copied().filter(still))
            }
            None if matches!(graph.tensor(id).role, Role::Initializer | Role::Constant) => stored.push(id),
            None => {}
        }
    }
    // A table rather than the numbers that say how it is cut.
    let largest = stored.into_iter().max_by_key(|id| now.shape(*id).and_then(crate::Shape::elements));
    match largest.map(|id| (graph.tensor(id), now.shape(id))) {
        Some((tensor, Some(shape))) => format!(
            "`{}` ({shape}) was stored for the exported size; export with a dynamic axis",
            tensor.name
        ),
        _ => "it has the exported size baked in; export with a dynamic axis".to_owned(),
    }
}

/// At most so many tensors are looked at.
const MAX_STEPS: usize = 1 << 12;
