//! What is alive before the step: parameters, buffers, optimizer state and the batch.

use super::backward::Leaf;
use super::tape::{Edge, Tensor};
use super::{Runner, StoredTensor, step_config, strides};
use crate::Category;
use crate::host;
use crate::optimizers::{self, Parameter};
use crate::parameters::Stored;
use memfit_graph::{Bytes, DType};

impl Runner<'_> {
    /// Parameters, buffers, inputs and optimizer state, which are alive before the step.
    pub(super) fn set_up(&mut self, training: bool) -> (Vec<Leaf>, Vec<StoredTensor>) {
        let kinds;
        (kinds, self.host) = host::stored(self.graph, self.inferred, &self.plan.freeze);
        let first_use = self.first_use();
        let (mut leaves, mut stored) = (Vec::new(), Vec::new());
        for (i, kind) in kinds.iter().enumerate() {
            let Some(kind) = *kind else { continue };
            if self.uses[i] == 0 {
                continue;
            }
            let tensor = &self.graph.tensors[i];
            let Some(shape) = tensor.declared.shape().and_then(|s| s.upper()) else { continue };
            let dtype = self.plan.precision.applied_to(tensor.declared.dtype().unwrap_or(DType::Float32));
            let layer = match first_use[i] {
                Some(node) => self.node_layers[node],
                None => self.named_layer(&tensor.name),
            };
            self.tape.memory.layer = layer;
            let category = match kind {
                Stored::Parameter | Stored::Frozen => Category::Parameter,
                Stored::Buffer | Stored::Number => Category::Buffer,
            };
            let elements = shape.iter().fold(1_u64, |acc, d| acc.saturating_mul(*d));
            let bytes = if kind == Stored::Number { Bytes::ZERO } else { dtype.size_of(elements) };
            let storage = self.tape.memory.allocate_named(bytes, category, tensor.name.clone());
            let strides = strides::contiguous(&shape);
            let edge = if kind == Stored::Parameter && training {
                leaves.push(Leaf {
                    shape: shape[..].into(),
                    strides: strides.clone(),
                    dtype,
                    layer,
                    grad: None,
                });
                Edge::Leaf(u32::try_from(leaves.len() - 1).unwrap_or(u32::MAX))
            } else {
                Edge::None
            };
            let is_number = kind == Stored::Number;
            stored.push(StoredTensor { kind, elements, bytes, layer, optimizer_bytes: Bytes::ZERO });
            let shape = shape[..].into();
            self.values[i] = Some(self.tape.add(Tensor { storage, shape, strides, dtype, edge, is_number }));
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
                self.tape.memory.layer = self.node_layers[i];
                let storage = self.tape.new_storage(&[], *dtype, Category::Buffer, "num_batches_tracked");
                let bytes = self.tape.memory.storage(storage).bytes;
                let layer = self.tape.memory.layer;
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
        }
        for id in &self.graph.inputs {
            let name = self.graph.tensor(*id).name.clone();
            let Some(shape) = self.inferred.shape(*id).and_then(|s| s.upper()) else { continue };
            let dtype = self.plan.precision.applied_to(self.inferred.dtype(*id));
            self.tape.memory.layer = self.named_layer("(inputs)");
            let elements = shape.iter().fold(1_u64, |acc, d| acc.saturating_mul(*d));
            let storage = self.tape.memory.allocate_named(dtype.size_of(elements), Category::Input, name);
            let strides = strides::contiguous(&shape);
            let shape = shape[..].into();
            let tensor = Tensor { storage, shape, strides, dtype, edge: Edge::None, is_number: false };
            self.values[id.index()] = Some(self.tape.add(tensor));
        }
        (leaves, stored)
    }

    fn optimizer_state(&mut self, leaves: &[Leaf], stored: &mut [StoredTensor]) {
        let Some(optimizer) = optimizers::find(&self.plan.optimizer) else { return };
        let config = step_config(self.plan);
        let parameters: Vec<Parameter> =
            leaves.iter().map(|leaf| Parameter { shape: leaf.shape.to_vec(), dtype: leaf.dtype }).collect();
        for state in optimizer.shared_state(&parameters, &config).into_iter().filter(|s| s.on_device) {
            self.tape.memory.layer = self.named_layer("(optimizer)");
            self.tape.new_storage(&state.shape, state.dtype, Category::OptimizerState, "optimizer state");
        }
        let trained: Vec<usize> =
            (0..stored.len()).filter(|i| stored[*i].kind == Stored::Parameter).collect();
        for ((leaf, parameter), row) in leaves.iter().zip(&parameters).zip(trained) {
            self.tape.memory.layer = leaf.layer;
            let mut states: Vec<(Vec<u64>, DType)> = optimizer
                .state(parameter, &config)
                .into_iter()
                .filter(|s| s.on_device)
                .map(|s| (s.shape, s.dtype))
                .collect();
            if self.plan.ema {
                states.push((leaf.shape.to_vec(), leaf.dtype));
            }
            for (shape, dtype) in states {
                let id = self.tape.new_storage(&shape, dtype, Category::OptimizerState, "optimizer state");
                stored[row].optimizer_bytes += self.tape.memory.storage(id).bytes;
            }
        }
    }

    /// The first node that reads each tensor.
    fn first_use(&self) -> Vec<Option<usize>> {
        let mut first = vec![None; self.graph.tensors.len()];
        for (n, node) in self.graph.nodes.iter().enumerate() {
            for input in node.inputs.iter().flatten() {
                first[input.index()].get_or_insert(n);
            }
        }
        first
    }
}
