//! A model inside of a layer on Keras' PyTorch backend: its layers' calls, one after the other.

use super::Torch;
use crate::layer::{Call, LayerCall};
use memfit_graph::ops::Traced;
use memfit_graph::{Graph, TensorId};
use std::any::Any;
use std::collections::HashMap;

impl Torch<'_, '_> {
    /// Runs the layers of a graph, whose inputs are these tensors and whose variables are this layer's, in order. `None` where one gives
    /// several tensors or none.
    pub(crate) fn graph(&mut self, graph: &Graph, tensors: &[Traced]) -> Option<Vec<Traced>> {
        let variables = graph.tensors.iter().enumerate().filter(|(_, t)| t.variable.is_some());
        let places: HashMap<usize, usize> = variables.enumerate().map(|(k, (id, _))| (id, k)).collect();
        let mut made: HashMap<TensorId, Traced> =
            graph.inputs.iter().copied().zip(tensors.iter().cloned()).collect();
        for node in &graph.nodes {
            let op: &dyn Any = &*node.op;
            let layer: &LayerCall = op.downcast_ref()?;
            let (given, own) = node.inputs.split_at_checked(layer.tensors)?;
            let first = own.first().and_then(|id| places.get(&(*id)?.index())).copied().unwrap_or(0);
            let [Some(output)] = node.outputs[..] else { return None };
            let shape = graph.tensor(output).declared.shape()?.upper()?;
            let mut inner = Torch {
                call: &Call { facts: &layer.layer.facts, arguments: &layer.arguments },
                l: &mut *self.l,
                tensors: layer.tensors,
                variables: [self.variables[0] + first, own.len()],
                shape: &shape,
                mixed: self.mixed,
                given: given.iter().map(|id| made.get(&(*id)?).cloned()).collect::<Option<_>>()?,
                made: None,
                others: Vec::new(),
            };
            layer.layer.layer.pytorch(&mut inner);
            let y = inner.made?;
            made.insert(output, y);
        }
        graph.outputs.iter().map(|id| made.get(id).cloned()).collect()
    }
}
