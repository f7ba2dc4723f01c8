//! Puts the branch that runs in place of an `If` whose condition is known.
//!
//! A framework knows no `If` here: it ran one branch when the model was called. Exporters write one where a size decides
//! (`squeeze` of an axis that may have one element), and a condition on sizes folds.

use crate::ops::identity::Identity;
use crate::ops::if_::If;
use crate::{Graph, Inferred, Node, Role, TensorId};
use std::sync::Arc;

impl Graph {
    /// Replaces each `If` of the graph whose condition `inferred` knows by the nodes of the branch that it takes; whether there
    /// was one. Branches within branches take another call.
    pub fn inline_branches(&mut self, inferred: &Inferred) -> bool {
        let mut replaced = false;
        for node in std::mem::take(&mut self.nodes) {
            match taken(&node, inferred) {
                Some(body) => {
                    replaced = true;
                    self.splice(&node, body);
                }
                None => self.nodes.push(node),
            }
        }
        replaced
    }

    /// Adds the nodes of `body`, which stands for `node`.
    fn splice(&mut self, node: &Node, body: &Graph) {
        let made = Splice::new(node, body).iteration(self, None, &[], &node.outputs);
        // A branch may hand on what it captured, stored, or hands on already; that takes an Identity.
        for (made, outer) in made.into_iter().zip(&node.outputs).filter(|(made, outer)| made != *outer) {
            self.add_node(node.name.clone(), Arc::new(Identity), vec![made], vec![*outer]);
        }
    }
}

/// The branch that an `If` takes, where its condition is known.
fn taken<'n>(node: &'n Node, inferred: &Inferred) -> Option<&'n Graph> {
    let op = node.op.downcast::<If>()?;
    let condition = inferred.value(node.inputs.first().copied().flatten()?)?.single()?.as_i64()?;
    let body = if condition != 0 { &op.then } else { &op.otherwise };
    (body.outputs.len() == node.outputs.len()).then_some(body)
}

/// A body that is written out in the place of a node, once or several times.
pub(crate) struct Splice<'b> {
    node: &'b Node,
    body: &'b Graph,
    /// Outer tensors of what all iterations share, by body tensor: what is captured and what is stored.
    shared: Vec<Option<TensorId>>,
}

impl<'b> Splice<'b> {
    pub(crate) fn new(node: &'b Node, body: &'b Graph) -> Splice<'b> {
        let mut shared = vec![None; body.tensors.len()];
        for (slot, id) in &body.captures {
            shared[id.index()] = node.captures.get(*slot).copied();
        }
        Splice { node, body, shared }
    }

    /// Adds the body's nodes for these inputs; gives what its outputs are. An output that a node of the body makes is the outer
    /// tensor in `outputs`, where there is one.
    pub(crate) fn iteration(
        &mut self,
        graph: &mut Graph,
        trip: Option<u64>,
        inputs: &[Option<TensorId>],
        outputs: &[Option<TensorId>],
    ) -> Vec<Option<TensorId>> {
        let (node, body) = (self.node, self.body);
        let mut ids = self.shared.clone();
        for (id, outer) in body.inputs.iter().zip(inputs) {
            ids[id.index()] = *outer;
        }
        for (id, outer) in body.outputs.iter().zip(outputs) {
            if body.tensor(*id).role == Role::Intermediate && ids[id.index()].is_none() {
                ids[id.index()] = *outer;
            }
        }
        let prefix = match trip {
            Some(trip) => format!("{}/{trip}", node.name),
            None => node.name.to_string(),
        };
        for (i, tensor) in body.tensors.iter().enumerate() {
            if ids[i].is_some() {
                continue;
            }
            let is_stored = matches!(tensor.role, Role::Initializer | Role::Constant);
            let path = if is_stored { &*node.name } else { &prefix };
            let new =
                graph.add_tensor(format!("{path}/{}", tensor.name), tensor.declared.clone(), tensor.role);
            graph.tensors[new.index()].value.clone_from(&tensor.value);
            ids[i] = Some(new);
            self.shared[i] = self.shared[i].or(is_stored.then_some(new));
        }
        let renamed = |list: &[Option<TensorId>]| list.iter().map(|id| ids[(*id)?.index()]).collect();
        for inner in &body.nodes {
            let scope = if inner.scope.is_empty() { node.scope.clone() } else { inner.scope.clone() };
            let name: Arc<str> = format!("{prefix}/{}", inner.name).into();
            let captures = inner.captures.iter().filter_map(|id| ids[id.index()]).collect();
            let (inputs, outputs) = (renamed(&inner.inputs), renamed(&inner.outputs));
            graph.nodes.push(Node { name, scope, op: inner.op.clone(), inputs, outputs, captures });
        }
        body.outputs.iter().map(|id| ids[id.index()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Attributes, Binding, DType, Shape, Type, Value, find_op, infer};

    /// y = If(condition){ relu(x + w) }{ x captured and handed on }
    fn graph(condition: i64) -> Graph {
        let mut then = Graph::default();
        let x = then.add_tensor("x", Type::Unknown, Role::Intermediate);
        then.captures = vec![(0, x)];
        let w = then.add_tensor("w", Type::tensor(DType::Float32, Shape::from([3])), Role::Initializer);
        let sum = then.push("Add", Attributes::default(), &[x, w], "sum").unwrap();
        let relu = then.push("Relu", Attributes::default(), &[sum], "relu").unwrap();
        then.outputs = vec![relu];
        let mut otherwise = Graph::default();
        let x = otherwise.add_tensor("x", Type::Unknown, Role::Intermediate);
        otherwise.captures = vec![(0, x)];
        otherwise.outputs = vec![x];

        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([2, 3])), Role::Input);
        g.inputs = vec![x];
        let c = g.add_constant("c", Value::scalar(DType::Bool, condition));
        let y = g.add_tensor("y", Type::Unknown, Role::Intermediate);
        let branches = Attributes::from([
            ("then_branch", Attribute::Graph(Box::new(then))),
            ("else_branch", Attribute::Graph(Box::new(otherwise))),
        ]);
        let op = find_op("", "If", 13).unwrap().build(branches, 13).unwrap();
        g.add_node("if", op, vec![Some(c)], vec![Some(y)]);
        g.nodes[0].captures = vec![x];
        g.outputs = vec![y];
        g
    }

    #[test]
    fn the_branch_that_runs_takes_the_place() {
        let mut g = graph(1);
        let before = infer(&g, &Binding::default()).unwrap();
        assert!(g.inline_branches(&before));
        assert_eq!(g.nodes.iter().map(|n| &*n.name).collect::<Vec<_>>(), ["if/sum", "if/relu"]);
        let after = infer(&g, &Binding::default()).unwrap();
        assert_eq!(after.types[g.outputs[0].index()], before.types[g.outputs[0].index()]);
        assert_eq!(g.tensor(g.find("if/w").unwrap()).role, Role::Initializer);
        assert!(!g.inline_branches(&after));
    }

    #[test]
    fn what_a_branch_hands_on_is_the_same_tensor() {
        let mut g = graph(0);
        let inferred = infer(&g, &Binding::default()).unwrap();
        assert!(g.inline_branches(&inferred));
        assert_eq!(g.nodes.iter().map(|n| n.op.name()).collect::<Vec<_>>(), ["Identity"]);
        assert_eq!(g.nodes[0].inputs, [Some(g.inputs[0])]);
        assert_eq!(g.nodes[0].outputs, [Some(g.outputs[0])]);
    }
}
