//! What Keras' own training loop does to memory on its PyTorch backend.
//!
//! keras/src/backend/torch/trainer.py, `train_step` (3.15): the model is called, the last step's gradients go (`zero_grad`), loss and
//! backward, the optimizer; predictions live until the end, gradients until the next step has called the model. A functional model
//! holds the outputs of its layers in a dictionary until its call returns (keras/src/ops/function.py, `_run_through_graph`); a
//! Sequential one runs as such.

use super::Runner;
use super::backward::Leaf;
use super::tape::TensorRef;
use crate::structure::Name;
use crate::{Precision, StorageId};
use memfit_graph::order::sorted_by_key;
use memfit_graph::{Call, Graph, Operand};

/// The dictionaries of the model and of the models inside it, as names, in the order in which they go.
pub(super) fn names(graph: &Graph) -> Vec<Name> {
    let consumers = graph.consumers();
    let end_of_all = graph.nodes.len().saturating_sub(1);
    let mut names = Vec::new();
    // The models that a node runs in, from the outermost, each with the last node before its call returns.
    let mut calls: Vec<(&str, usize)> = Vec::new();
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        let path = &**node.path();
        while calls.pop_if(|(model, _)| !is_inside(path, model)).is_some() {}
        let known = calls.last().map_or(0, |(model, _)| model.len() + 1);
        calls.extend(path.match_indices('/').filter(|(at, _)| *at >= known).map(|(at, _)| (&path[..at], i)));
        for tensor in node.outputs.iter().flatten() {
            let last = consumers[tensor.index()].last().map_or(i, |reader| reader.index());
            // What a model gives back, the one around it holds as well.
            let end = calls.iter().rev().map(|(_, end)| *end).find(|end| *end >= last).unwrap_or(end_of_all);
            names.extend(u32::try_from(end).ok().map(|until| Name { until, tensor: *tensor, rebound: None }));
        }
    }
    sorted_by_key(names, |name| name.until.into())
}

fn is_inside(path: &str, model: &str) -> bool {
    path.strip_prefix(model).is_some_and(|rest| rest.starts_with('/'))
}

impl Runner<'_> {
    /// Whether Keras' own loop runs the step.
    pub(super) fn is_fit(&self) -> bool {
        self.structure.is_keras && !self.plan.keep_gradients
    }

    /// Whether the loss is scaled, so that the optimizer works on unscaled copies of the gradients
    /// (keras/src/optimizers/loss_scale_optimizer.py): `compile` sees to it where the policy is `mixed_float16`.
    pub(super) fn scales_loss(&self) -> bool {
        self.plan.loss_scale && self.plan.precision == Precision::MixedFp16
    }

    /// What layers add to the loss, and what regularizers sum of their variables, as these are (trainer.py, `compute_loss`; layer.py,
    /// `_get_regularization_losses`). Backward begins with the latter: their gradients wait for those of the model.
    pub(super) fn penalties_with(&mut self, mut terms: Vec<TensorRef>) -> Vec<TensorRef> {
        for (tensor, value) in self.graph.tensors.iter().zip(&self.values) {
            let Some(t) = value.filter(|t| self.tape.tensor(*t).requires_grad()) else { continue };
            let shape = self.tape.shape(t).to_vec();
            for call in tensor.penalty.calls(&shape) {
                let term = self.tape.run(&call, &[t])[0];
                terms.push(self.tape.run(&Call::sum_of_all(Operand::Input(0)), &[term])[0]);
                self.tape.release(term);
            }
        }
        terms
    }

    /// The last step's gradients go.
    pub(super) fn zero_gradients(&mut self, leaves: &mut [Leaf]) -> Vec<Option<StorageId>> {
        let old: Vec<Option<StorageId>> = leaves.iter_mut().map(|leaf| leaf.grad.take()).collect();
        old.iter().flatten().for_each(|storage| self.tape.memory.release(*storage));
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{Attributes, DType, Role, Shape, TensorId, Type};

    #[test]
    fn a_model_holds_its_layers_outputs_until_it_returns() {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([2])), Role::Input);
        let mut at = x;
        let mut made = Vec::new();
        for path in ["first", "part/a", "part/inner/b", "part/c", "last"] {
            at = g.push("Relu", Attributes::default(), &[at], path).unwrap();
            made.push(at);
        }
        let names = names(&g);
        let until = |t: TensorId| names.iter().find(|name| name.tensor == t).unwrap().until;
        // What `inner` gives back is held by `part`, what `part` gives back by the whole.
        assert_eq!(made.iter().map(|t| until(*t)).collect::<Vec<_>>(), [4, 3, 3, 4, 4]);
    }
}
