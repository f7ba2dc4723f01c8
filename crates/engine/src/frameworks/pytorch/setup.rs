//! What is alive before the step: parameters, buffers, optimizer state and the batch.

use super::backward::Leaf;
use super::cublas::Workspaces;
use super::tape::{Edge, Tensor};
use super::{Runner, step_config};
use crate::Category;
use crate::host;
use crate::optimizers::{self, Parameter, StateTensor, keras_slots};
use crate::parameters::{Stored, is_table};
use crate::step::{AVERAGED, StoredTensor};
use memfit_graph::{Bytes, DType, Dims, elements};
use smallvec::SmallVec;

impl Runner<'_> {
    /// Parameters, buffers, inputs and optimizer state, which are alive before the step.
    pub(super) fn set_up(&mut self, training: bool) -> (Vec<Leaf>, Vec<StoredTensor>) {
        let kinds;
        (kinds, self.host) = host::stored(self.graph, self.structure, self.inferred, &self.plan.freeze);
        let tensors = kinds.iter().flatten().count();
        let (mut leaves, mut stored) = (Vec::with_capacity(tensors), Vec::with_capacity(2 * tensors));
        for (i, kind) in kinds.iter().enumerate() {
            let Some(kind) = *kind else { continue };
            if self.uses[i] == 0 {
                continue;
            }
            let tensor = &self.graph.tensors[i];
            let Some(layout) = self.structure.stored[i] else { continue };
            let dtype = self.plan.precision.applied_to(tensor.declared.dtype().unwrap_or(DType::Float32));
            let layer = match self.structure.first_use[i] {
                Some(node) => self.structure.node_layers[node as usize],
                None => self.named_layer(&tensor.name),
            };
            self.tape.memory.layer = layer;
            let category = match kind {
                Stored::Parameter | Stored::Frozen => Category::Parameter,
                Stored::Buffer | Stored::Number => Category::Buffer,
            };
            let elements = self.tape.layouts.elements(layout);
            let bytes = if kind == Stored::Number { Bytes::ZERO } else { dtype.size_of(elements) };
            let storage = self.tape.memory.allocate_named(bytes, category, tensor.name.clone());
            let edge = if kind == Stored::Parameter && training {
                let is_table = is_table(self.graph, self.structure, i);
                leaves.push(Leaf { layout, dtype, layer, is_table, grad: None });
                Edge::Leaf(u32::try_from(leaves.len() - 1).unwrap_or(u32::MAX))
            } else {
                Edge::None
            };
            let is_number = kind == Stored::Number;
            stored.push(StoredTensor { kind, elements, bytes, layer, optimizer_bytes: Bytes::ZERO });
            self.values[i] =
                Some(self.tape.add(Tensor { storage, layout, dtype, edge, is_number, held: None }));
        }
        for (i, node) in self.graph.nodes.iter().enumerate() {
            let keeps_state = node.op.buffer_inputs().iter().any(|i| {
                node.inputs
                    .get(*i)
                    .copied()
                    .flatten()
                    .is_some_and(|id| kinds[id.index()] == Some(Stored::Buffer))
            });
            for dtype in node.op.unexported_buffers().iter().filter(|_| keeps_state) {
                let layer = self.structure.node_layers[i];
                self.tape.memory.layer = layer;
                let bytes = dtype.size_of(1);
                self.tape.memory.allocate(bytes, Category::Buffer, "num_batches_tracked");
                stored.push(StoredTensor {
                    kind: Stored::Buffer,
                    elements: 1,
                    bytes,
                    layer,
                    optimizer_bytes: Bytes::ZERO,
                });
            }
        }
        if training {
            self.optimizer_state(&leaves, &mut stored);
            self.averaged_weights(&mut stored);
        }
        if !self.plan.as_fake_tensors {
            self.tape.memory.layer = self.named_layer("(cuBLAS)");
            self.tape.cublas = Some(Workspaces::set_up(&mut self.tape.memory, self.plan));
        }
        for id in &self.graph.inputs {
            let name = self.graph.tensor(*id).name.clone();
            let Some(shape) = self.sizes.of(*id) else { continue };
            let dtype = self.plan.precision.applied_to(self.inferred.dtype(*id));
            let layout = self.tape.layouts.contiguous(shape);
            self.tape.memory.layer = self.named_layer("(inputs)");
            let bytes = dtype.size_of(self.tape.layouts.elements(layout));
            let storage = self.tape.memory.allocate_named(bytes, Category::Input, name);
            let tensor = Tensor { storage, layout, dtype, edge: Edge::None, is_number: false, held: None };
            self.values[id.index()] = Some(self.tape.add(tensor));
        }
        (leaves, stored)
    }

    fn optimizer_state(&mut self, leaves: &[Leaf], stored: &mut [StoredTensor]) {
        let Some(optimizer) = optimizers::find(&self.plan.optimizer) else { return };
        let config = step_config(self.plan);
        let parameters = self.parameters_of(leaves);
        for state in optimizer.shared_state(&parameters, &config).into_iter().filter(|s| s.on_device) {
            self.tape.memory.layer = self.named_layer("(optimizer)");
            self.tape.memory.allocate(state.device_bytes(), Category::OptimizerState, "optimizer state");
        }
        let trained: Vec<usize> =
            (0..stored.len()).filter(|i| stored[*i].kind == Stored::Parameter).collect();
        for ((leaf, parameter), row) in leaves.iter().zip(&parameters).zip(trained) {
            self.tape.memory.layer = leaf.layer;
            let kept = if self.is_fit() {
                let size = |shape: &Dims| parameter.dtype.size_of(elements(shape));
                let mut slots: SmallVec<[Bytes; 4]> =
                    keras_slots(optimizer.name(), parameter).iter().map(size).collect();
                // Gradients are summed beside the ones of the step (`gradient_accumulation_steps`).
                slots.extend((self.plan.accumulate > 1).then(|| parameter.bytes()));
                slots
            } else {
                let state = optimizer.state(parameter, &config);
                state.iter().filter(|state| state.on_device).map(StateTensor::device_bytes).collect()
            };
            for bytes in kept {
                self.tape.memory.allocate(bytes, Category::OptimizerState, "optimizer state");
                stored[row].optimizer_bytes += bytes;
            }
        }
        self.parameters = parameters;
    }

    /// An averaged model is a copy of all that the model stores (torch/optim/swa_utils.py, `AveragedModel`: `deepcopy`); an optimizer of
    /// Keras averages what it trains (keras/src/optimizers/base_optimizer.py, `use_ema`).
    fn averaged_weights(&mut self, stored: &mut [StoredTensor]) {
        let of_all = !self.structure.is_keras;
        let copied = |row: &StoredTensor| match row.kind {
            Stored::Parameter => true,
            Stored::Frozen | Stored::Buffer => of_all,
            Stored::Number => false,
        };
        for row in stored.iter_mut().filter(|row| self.plan.ema && copied(row)) {
            self.tape.memory.layer = row.layer;
            self.tape.memory.allocate(row.bytes, Category::OptimizerState, AVERAGED);
            row.optimizer_bytes += row.bytes;
        }
    }

    /// Trained parameters as an optimizer sees them.
    pub(super) fn parameters_of<'l>(&self, leaves: impl IntoIterator<Item = &'l Leaf>) -> Vec<Parameter> {
        let shape = |leaf: &Leaf| SmallVec::from_slice(self.tape.layouts.shape(leaf.layout));
        let of = |leaf: &Leaf| Parameter { shape: shape(leaf), dtype: leaf.dtype, is_table: leaf.is_table };
        leaves.into_iter().map(of).collect()
    }
}
