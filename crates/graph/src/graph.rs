//! The graph: tensors, nodes and the names the user knows them by.

use crate::{Attributes, Call, Grad, Op, Operand, OutDtype, Place, Problem, Saved, Type, Value};
use std::sync::Arc;

/// Index of a tensor in [`Graph::tensors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorId(pub u32);

/// Index of a node in [`Graph::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl TensorId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a tensor is to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Fed by the user at each step.
    Input,
    /// Stored in the file: a parameter, a buffer or a constant. Which of them follows from how it is used.
    Initializer,
    /// Written into the graph as a constant, not stored as a weight.
    Constant,
    /// Made by a node.
    Intermediate,
}

/// What a stored tensor is to training, where the file says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// Trained.
    Trainable,
    /// Trainable, but switched off by the user (`layer.trainable = False`).
    Frozen,
    /// State that is never trained: a running mean, a table.
    State,
}

/// What a regularizer adds to the loss for a parameter: sums over its elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Penalty {
    /// Of absolute values.
    pub l1: bool,
    /// Of squares.
    pub l2: bool,
}

impl Penalty {
    /// What PyTorch sums of a tensor of this shape, input 0 of each call: the factors of a gradient are made anew (derivatives.yaml: `abs`,
    /// `pow`).
    pub fn calls(self, shape: &[u64]) -> impl Iterator<Item = Call> {
        let term = |(name, factors): (&'static str, usize)| {
            let call = Call::new(name).input(Operand::Input(0), Grad::Pointwise).saves([Saved::Input(0)]);
            let call = call.output(shape, OutDtype::Like(0), Place::Pointwise);
            (0..factors).fold(call, |call, _| call.backward_scratch(shape, OutDtype::Promoted))
        };
        [self.l1.then_some(("abs", 1)), self.l2.then_some(("pow", 2))].into_iter().flatten().map(term)
    }
}

/// An edge of the graph.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The name in the file; unique in its graph.
    pub name: Arc<str>,
    /// What the file declares; [`crate::infer`] refines it.
    pub declared: Type,
    /// What it is to the model.
    pub role: Role,
    /// The elements of a small constant that shapes may depend on.
    pub value: Option<Arc<Value>>,
    /// What it is to training, where the format says so; else that follows from how it is used.
    pub variable: Option<Variable>,
    /// What a parameter adds to the loss, where the format says so.
    pub penalty: Penalty,
}

/// One operator with its edges.
#[derive(Clone, Debug)]
pub struct Node {
    /// The name in the file; made up from the operator type and position where the file gives none.
    pub name: Arc<str>,
    /// The module path that the framework's user knows (`encoder.layer.3.attention`), where the exporter wrote it.
    pub scope: Arc<str>,
    /// The operator.
    pub op: Arc<dyn Op>,
    /// Inputs in order; an omitted optional one is `None`.
    pub inputs: Vec<Option<TensorId>>,
    /// Outputs in order; an unused optional one is `None`.
    pub outputs: Vec<Option<TensorId>>,
    /// Tensors of this graph that the bodies of a control-flow operator read.
    pub captures: Vec<TensorId>,
}

impl Node {
    /// The module path, or the name where there is none.
    pub fn path(&self) -> &Arc<str> {
        if self.scope.is_empty() { &self.name } else { &self.scope }
    }
}

/// A model, or the body of a control-flow operator.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The name in the file.
    pub name: String,
    /// All edges.
    pub tensors: Vec<Tensor>,
    /// All operators, in an order in which each comes after the ones it reads from.
    pub nodes: Vec<Node>,
    /// Inputs that are fed; an initializer that is listed as an input too is not among them.
    pub inputs: Vec<TensorId>,
    /// Outputs in order.
    pub outputs: Vec<TensorId>,
    /// For a body: the outer graph's tensors it reads, as (index into [`Node::captures`], tensor of this graph).
    pub captures: Vec<(usize, TensorId)>,
}

impl Graph {
    /// Adds a tensor.
    pub fn add_tensor(&mut self, name: impl Into<Arc<str>>, declared: Type, role: Role) -> TensorId {
        let id = TensorId(u32::try_from(self.tensors.len()).unwrap_or(u32::MAX));
        self.tensors.push(Tensor {
            name: name.into(),
            declared,
            role,
            value: None,
            variable: None,
            penalty: Penalty::default(),
        });
        id
    }

    /// Adds a small constant.
    pub fn add_constant(&mut self, name: impl Into<Arc<str>>, value: Value) -> TensorId {
        let id = self.add_tensor(name, Type::tensor(value.dtype, value.dims()), Role::Initializer);
        self.tensors[id.index()].value = Some(Arc::new(value));
        id
    }

    /// Adds a node.
    pub fn add_node(
        &mut self,
        name: impl Into<Arc<str>>,
        op: Arc<dyn Op>,
        inputs: Vec<Option<TensorId>>,
        outputs: Vec<Option<TensorId>>,
    ) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        let (name, scope) = (name.into(), "".into());
        self.nodes.push(Node { name, scope, op, inputs, outputs, captures: Vec::new() });
        id
    }

    /// The tensor with this id.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.index()]
    }

    /// The tensor with this name, by a linear search.
    pub fn find(&self, name: &str) -> Option<TensorId> {
        let at = self.tensors.iter().position(|t| &*t.name == name)?;
        u32::try_from(at).ok().map(TensorId)
    }

    /// The node that makes each tensor, by tensor index.
    pub fn producers(&self) -> Vec<Option<NodeId>> {
        let mut producers = vec![None; self.tensors.len()];
        for (i, node) in (0..).zip(&self.nodes) {
            for output in node.outputs.iter().flatten() {
                producers[output.index()] = Some(NodeId(i));
            }
        }
        producers
    }

    /// The nodes that read each tensor (captures included), by tensor index, each once per use.
    pub fn consumers(&self) -> Vec<Vec<NodeId>> {
        let mut consumers = vec![Vec::new(); self.tensors.len()];
        for (i, node) in (0..).zip(&self.nodes) {
            for input in node.inputs.iter().flatten().chain(&node.captures) {
                consumers[input.index()].push(NodeId(i));
            }
        }
        consumers
    }

    /// Sorts the nodes so that each comes after the ones it reads from, keeping the file's order where it can.
    /// A cycle is a problem that names one of its nodes.
    pub fn sort(&mut self) -> Result<(), Problem> {
        let producers = self.producers();
        let consumers = self.consumers();
        let mut waiting: Vec<usize> = self
            .nodes
            .iter()
            .map(|n| {
                let reads = n.inputs.iter().flatten().chain(&n.captures);
                reads.filter(|t| producers[t.index()].is_some()).count()
            })
            .collect();
        let mut ready = crate::order::set((0..self.nodes.len()).filter(|i| waiting[*i] == 0));
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(next) = ready.pop_first() {
            order.push(next);
            for output in self.nodes[next].outputs.iter().flatten() {
                for consumer in &consumers[output.index()] {
                    let left = &mut waiting[consumer.index()];
                    // Already none where two nodes make the same tensor, which the importer reports.
                    if *left > 0 {
                        *left -= 1;
                        if *left == 0 {
                            ready.insert(consumer.index());
                        }
                    }
                }
            }
        }
        if let Some(mut stuck) = waiting.iter().position(|w| *w > 0) {
            // It may only read from the cycle: of what waits, each waits for another that does, until one comes again.
            let mut seen = std::collections::BTreeSet::new();
            while seen.insert(stuck) {
                let node = &self.nodes[stuck];
                let mut reads = node.inputs.iter().flatten().chain(&node.captures);
                let waits = |t: &TensorId| {
                    let producer = producers[t.index()]?.index();
                    (waiting[producer] > 0).then_some(producer)
                };
                stuck = reads.find_map(waits).unwrap_or(stuck);
            }
            return Err(Problem::new(&*self.nodes[stuck].name, "the node depends on its own output"));
        }
        if order.windows(2).any(|w| w[0] > w[1]) {
            let mut nodes: Vec<Option<Node>> =
                std::mem::take(&mut self.nodes).into_iter().map(Some).collect();
            self.nodes = order.into_iter().filter_map(|i| nodes[i].take()).collect();
        }
        Ok(())
    }

    /// Adds a node with a registered operator; for tests and small hand-made graphs.
    pub fn push(
        &mut self,
        op: &str,
        attributes: Attributes,
        inputs: &[TensorId],
        output: &str,
    ) -> Result<TensorId, crate::OpError> {
        let op = crate::find_op("", op, i64::MAX)
            .ok_or_else(|| crate::OpError::mismatch("a known operator", op))?
            .build(attributes, i64::MAX)?;
        let out = self.add_tensor(output, Type::Unknown, Role::Intermediate);
        self.add_node(output, op, inputs.iter().copied().map(Some).collect(), vec![Some(out)]);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relus(order: &[(&str, &str)]) -> Graph {
        let mut g = Graph::default();
        for name in ["x", "y", "z"] {
            g.add_tensor(name, Type::Unknown, Role::Intermediate);
        }
        for (from, to) in order {
            let (from, to) = (g.find(from).unwrap(), g.find(to).unwrap());
            let op = crate::find_op("", "Relu", 14).unwrap().build(Attributes::default(), 14).unwrap();
            g.add_node(format!("to_{}", g.tensor(to).name), op, vec![Some(from)], vec![Some(to)]);
        }
        g
    }

    #[test]
    fn nodes_are_sorted_and_cycles_named() {
        let mut g = relus(&[("y", "z"), ("x", "y")]);
        g.sort().unwrap();
        assert_eq!(&*g.nodes[0].name, "to_y");
        let error = relus(&[("y", "x"), ("x", "y")]).sort().unwrap_err();
        assert_eq!(error.place, "to_x");
    }

    #[test]
    fn what_only_reads_from_a_cycle_is_not_blamed() {
        let error = relus(&[("y", "z"), ("y", "x"), ("x", "y")]).sort().unwrap_err();
        assert_eq!(error.place, "to_y");
    }
}
