//! After forward: the loss over all outputs, backward, and the optimizer's step.

use super::backward::{self, Leaf};
use super::tape::{Edge, TensorRef};
use super::{Runner, keras_loss, loss, step_config};
use crate::optimizers::{self, StepEvent, keras_step};
use crate::step::SavedStorage;
use crate::{Category, Loss, Phase, StorageId, losses};
use memfit_graph::order::permuted;
use memfit_graph::{DType, Operand, TensorId};
use smallvec::SmallVec;

impl Runner<'_> {
    /// Loss, backward and optimizer step.
    pub(super) fn train(&mut self, leaves: &mut Vec<Leaf>, saved: &mut Vec<SavedStorage>) {
        let last = if self.is_fit() { self.zero_gradients(leaves) } else { Vec::new() };
        let losses = self.losses();
        // Outside of the region the casts that no node keeps are freed before backward.
        if !self.plan.autocast_backward {
            self.tape.end_autocast();
        }
        self.tape.autocast = None;
        saved.extend(self.saved_storages());
        let options = backward::Options { as_fake_tensors: self.plan.as_fake_tensors };
        self.tape.memory.phase = Phase::Backward;
        if let Some(loss) = losses {
            backward::run(self, loss, leaves, options);
            self.tape.release(loss);
        }
        self.tape.end_autocast();
        self.tape.memory.phase = Phase::OptimizerStep;
        self.optimizer_step(leaves);
        if self.is_fit() {
            self.release_outputs();
            let carried = last.iter().zip(&*leaves).filter_map(|(old, leaf)| Some(((*old)?, leaf.grad?)));
            self.tape.memory.carry(carried);
        } else if !self.plan.keep_gradients {
            for storage in leaves.iter_mut().filter_map(|leaf| leaf.grad.take()) {
                self.tape.memory.release(storage);
            }
        }
    }

    /// Gradients that an earlier micro-batch or step left.
    pub(super) fn keep_gradients(&mut self, leaves: &mut [Leaf]) {
        for leaf in leaves {
            let id = self.tape.new_storage(leaf.layout, leaf.dtype, Category::Gradient, "gradient");
            self.tape.memory.recategorize(id, Category::Gradient, leaf.layer);
            leaf.grad = Some(id);
        }
    }

    /// The loss over all outputs that a gradient flows through; the sum where there are several.
    fn losses(&mut self) -> Option<TensorRef> {
        self.tape.memory.layer = self.named_layer("(loss)");
        let outputs: Vec<(TensorId, TensorRef)> = self
            .graph
            .outputs
            .iter()
            .filter_map(|id| Some((*id, self.values[id.index()]?)))
            .filter(|(_, t)| self.tape.tensor(*t).requires_grad())
            .collect();
        let shape = |t: &TensorRef| self.tape.shape(*t).to_vec();
        let shapes: Vec<Vec<u64>> = outputs.iter().map(|(_, t)| shape(t)).collect();
        let inputs: Vec<(Vec<u64>, DType)> = self
            .graph
            .inputs
            .iter()
            .filter_map(|id| Some((self.inferred.shape(*id)?.upper()?, self.inferred.dtype(*id))))
            .collect();
        let loss = match self.plan.loss {
            Loss::Auto => {
                // Keras' images have their channels last.
                let turned = |shape: &mut Vec<u64>| match shape[..] {
                    [batch, height, width, channels] if self.structure.is_keras => {
                        *shape = vec![batch, channels, height, width];
                    }
                    _ => {}
                };
                let (mut shapes, mut inputs) = (shapes.clone(), inputs);
                shapes.iter_mut().chain(inputs.iter_mut().map(|(shape, _)| shape)).for_each(turned);
                let (loss, why) = losses::choose(&shapes, &inputs);
                self.assumptions.push(why);
                loss
            }
            given => given,
        };
        // Without a label to compare with, only the first output is taken; classifier heads all are.
        let used = if loss == Loss::CrossEntropy { losses::alike(&shapes) } else { 1 };
        let first = shapes.first().map_or(&[][..], |s| s);
        let of_first = outputs.first().map(|(id, _)| losses::classes(self.graph, self.structure, *id, first));
        let classes = of_first.unwrap_or_default();
        let target = self.target(loss, first, classes.axis);
        let targets = vec![target; used];
        let penalties = std::mem::take(&mut self.penalties);
        let reached = outputs.iter().take(used).map(|(_, t)| t).chain(&penalties);
        let roots: Vec<Edge> = reached.map(|t| self.tape.tensor(*t).edge).collect();
        self.tape.forget_unreached(&roots);
        let mut total: Option<TensorRef> = None;
        for ((_, t), target) in outputs.iter().zip(targets) {
            let one = match self.structure.is_keras {
                true => keras_loss::run(&mut self.tape, loss, *t, target),
                false => loss::run(&mut self.tape, loss, *t, target, classes),
            };
            total = Some(match total {
                None => one,
                Some(sum) => self.add_scalars(sum, one),
            });
        }
        for term in self.penalties_with(penalties) {
            total = total.map(|sum| self.add_scalars(sum, term));
        }
        if !self.is_fit() {
            self.release_outputs();
        }
        total
    }

    /// What the output is compared with: an input of its shape, or a tensor of its own.
    fn target(&mut self, loss: Loss, output: &[u64], class_axis: usize) -> Option<TensorRef> {
        let input = self.graph.inputs.iter().filter_map(|id| self.values[id.index()]).find(|t| {
            loss == Loss::Mse && self.tape.tensor(*t).dtype.is_float() && self.tape.shape(*t) == output
        });
        input.or_else(|| {
            let (shape, dtype) = losses::target(loss, output, class_axis)?;
            let dtype = if dtype.is_float() { self.plan.precision.model_dtype() } else { dtype };
            Some(self.tape.new_tensor(&shape, dtype, Category::Input, "target"))
        })
    }

    fn add_scalars(&mut self, a: TensorRef, b: TensorRef) -> TensorRef {
        use memfit_graph::{Call, Grad, OutDtype, Place};
        let call = Call::new("add")
            .input(Operand::Input(0), Grad::Pass)
            .input(Operand::Input(1), Grad::Pass)
            .output(&[], OutDtype::Promoted, Place::New);
        let sum = self.tape.run(&call, &[a, b])[0];
        for t in [a, b] {
            self.tape.release(t);
        }
        sum
    }

    /// The unique storages that autograd keeps now, parameters and buffers excluded, in the order in which they were made.
    fn saved_storages(&self) -> Vec<SavedStorage> {
        let mut places = vec![None; self.tape.memory.storages().len()];
        let mut kept: Vec<SavedStorage> = Vec::with_capacity(self.tape.saved.len());
        for node in &self.tape.nodes {
            for storage in &self.tape.saved[node.saved.range()] {
                let category = self.tape.memory.storage(*storage).category;
                if matches!(category, Category::Parameter | Category::Buffer) {
                    continue;
                }
                let place = *places[storage.0 as usize].get_or_insert_with(|| {
                    let holders = SmallVec::new();
                    kept.push(SavedStorage { storage: *storage, layer: node.layer, holders });
                    kept.len() - 1
                });
                let holders = &mut kept[place].holders;
                if !holders.contains(&node.function) {
                    holders.push(node.function);
                }
            }
        }
        permuted(kept, places.into_iter().flatten().collect())
    }

    fn optimizer_step(&mut self, leaves: &[Leaf]) {
        let Some(optimizer) = optimizers::find(&self.plan.optimizer) else { return };
        self.tape.memory.layer = self.named_layer("(optimizer)");
        let parameters = if leaves.len() == self.parameters.len() && leaves.iter().all(|l| l.grad.is_some()) {
            std::mem::take(&mut self.parameters)
        } else {
            self.parameters_of(leaves.iter().filter(|leaf| leaf.grad.is_some()))
        };
        // By temporary.
        let mut live: Vec<Option<StorageId>> = Vec::with_capacity(parameters.len());
        let is_own = self.is_fit();
        let own = is_own.then(|| keras_step(optimizer.name(), &parameters, self.plan, self.scales_loss()));
        let own = own.flatten();
        for event in own.unwrap_or_else(|| optimizer.step(&parameters, &step_config(self.plan))) {
            match event {
                StepEvent::Allocate { id, bytes, label, .. } => {
                    live.resize(live.len().max(id as usize + 1), None);
                    live[id as usize] = Some(self.tape.memory.allocate(bytes, Category::Transient, label));
                }
                StepEvent::Free { id } => {
                    if let Some(storage) = live.get_mut(id as usize).and_then(Option::take) {
                        self.tape.memory.release(storage);
                    }
                }
            }
        }
    }
}
