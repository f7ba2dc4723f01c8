//! What Keras' own training loop does to memory on its PyTorch backend.
//!
//! keras/src/backend/torch/trainer.py, `train_step` (3.15): the model is called, the last step's gradients go (`zero_grad`), loss and
//! backward, the optimizer; predictions live until the end, gradients until the next step has called the model. A functional model
//! holds the outputs of its layers in a dictionary until its call returns (keras/src/ops/function.py, `_run_through_graph`); a
//! Sequential one runs as such.

use super::Runner;
use super::backward::Leaf;
use crate::StorageId;
use crate::structure::Name;
use memfit_graph::order::sorted_by_key;
use memfit_graph::{DType, Graph, TensorId};

/// Whether the nodes are Keras' layers.
pub(crate) fn is_keras(graph: &Graph) -> bool {
    graph.nodes.iter().any(|node| node.op.name().starts_with("keras."))
}

/// The dictionaries of the model and of the models inside it, as names, in the order in which they go.
pub(super) fn names(graph: &Graph) -> Vec<Name> {
    let consumers = graph.consumers();
    let mut names = Vec::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        for tensor in node.outputs.iter().flatten() {
            let last = consumers[tensor.index()].last().map_or(i, |reader| reader.index());
            let mut model = parent(node.path());
            let mut end = returns(graph, i, model);
            // What a model gives back, the one around it holds as well.
            while end < last && !model.is_empty() {
                model = parent(model);
                end = returns(graph, i, model);
            }
            names.extend(u32::try_from(end).ok().map(|until| Name { until, tensor: *tensor, rebound: None }));
        }
    }
    sorted_by_key(names, |name| name.until.into())
}

/// The path of the model that a layer is called in.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(model, _)| model)
}

/// The last node that runs before the call of `model` returns in which node `first` runs.
fn returns(graph: &Graph, first: usize, model: &str) -> usize {
    if model.is_empty() {
        return graph.nodes.len().saturating_sub(1);
    }
    let is_inside = |path: &str| path.strip_prefix(model).is_some_and(|rest| rest.starts_with('/'));
    first + graph.nodes[first + 1..].iter().take_while(|node| is_inside(node.path())).count()
}

impl Runner<'_> {
    /// Whether Keras' own loop runs the step.
    pub(super) fn is_fit(&self) -> bool {
        self.structure.is_keras && !self.plan.keep_gradients && self.plan.accumulate <= 1
    }

    /// Whether the loss is scaled, so that the optimizer works on unscaled copies of the gradients
    /// (keras/src/optimizers/loss_scale_optimizer.py): `compile` sees to it where the policy is `mixed_float16`.
    pub(super) fn scales_loss(&self) -> bool {
        let is_half = |id: &TensorId| self.inferred.dtype(*id) == DType::Float16;
        let of_file = || self.graph.nodes.iter().flat_map(|node| node.outputs.iter().flatten()).any(is_half);
        self.plan.loss_scale && (self.plan.precision.autocast() == Some(DType::Float16) || of_file())
    }

    /// The last step's gradients go.
    pub(super) fn zero_gradients(&mut self, leaves: &mut [Leaf]) -> Vec<Option<StorageId>> {
        let old: Vec<Option<StorageId>> = leaves.iter_mut().map(|leaf| leaf.grad.take()).collect();
        old.iter().flatten().for_each(|storage| self.tape.memory.release(*storage));
        old
    }
}
