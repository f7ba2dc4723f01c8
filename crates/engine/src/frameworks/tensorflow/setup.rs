//! What is alive before the step: variables, optimizer slots and the batch.

use super::{Builder, Resident};
use crate::parameters::Stored;
use crate::step::StoredTensor;
use crate::{Category, Mode, host};
use memfit_graph::kernels::{Effect, Made, Place, Source};
use memfit_graph::{Bytes, DType, elements};

impl Builder<'_> {
    /// Variables, constants and feeds.
    pub(super) fn set_up(&mut self) {
        let kinds;
        (kinds, self.host) = host::stored(self.graph, self.structure, self.inferred, &self.plan.freeze);
        let first_use = self.first_use();
        for (i, kind) in kinds.iter().enumerate() {
            let (Some(kind), Some(first)) = (*kind, first_use[i]) else { continue };
            let tensor = &self.graph.tensors[i];
            let Some(shape) = tensor.declared.shape().and_then(|s| s.upper()) else { continue };
            let dtype = self.plan.precision.applied_to(tensor.declared.dtype().unwrap_or(DType::Float32));
            if kind == Stored::Number {
                self.sources[i] = Some(Source::Constant);
                continue;
            }
            let layer = self.node_layer(&self.graph.nodes[first]);
            let trainable = kind == Stored::Parameter && self.plan.mode == Mode::Train;
            let category = if kind == Stored::Buffer { Category::Buffer } else { Category::Parameter };
            let variable = self.variable(&shape, dtype, trainable, category, &tensor.name.clone(), layer);
            self.sources[i] = Some(Source::Variable(variable));
            let elements = elements(&shape);
            let bytes = dtype.size_of(elements);
            self.stored.push(StoredTensor { kind, elements, bytes, layer, optimizer_bytes: Bytes::ZERO });
        }
        let layer = self.layer("(inputs)");
        for id in &self.graph.inputs {
            let tensor = self.graph.tensor(*id);
            let Some(shape) = self.inferred.shape(*id).and_then(|s| s.upper()) else { continue };
            let dtype = self.plan.precision.applied_to(self.inferred.dtype(*id));
            let wire = self.feed(&shape, dtype, &tensor.name.clone(), layer);
            self.sources[id.index()] = Some(Source::Wire(wire));
        }
    }

    /// A tensor of the batch.
    pub(super) fn feed(
        &mut self,
        shape: &[u64],
        dtype: DType,
        name: &std::sync::Arc<str>,
        layer: u32,
    ) -> memfit_graph::kernels::Wire {
        let feed = u32::try_from(self.feeds.len()).unwrap_or(u32::MAX);
        self.feeds.push(Resident { name: name.clone(), category: Category::Input, layer });
        self.flow.layer = layer;
        let made = Made { shape: shape.to_vec(), dtype, place: Place::Alias };
        self.flow.effect("_Arg", &[], vec![made], Effect::Feed(feed), None)
    }

    /// A variable of the flow with its name.
    pub(super) fn variable(
        &mut self,
        shape: &[u64],
        dtype: DType,
        trainable: bool,
        category: Category,
        name: &std::sync::Arc<str>,
        layer: u32,
    ) -> u32 {
        self.residents.push(Resident { name: name.clone(), category, layer });
        self.flow.variable(shape, dtype, trainable)
    }

    /// The first node that reads each tensor.
    fn first_use(&self) -> Vec<Option<usize>> {
        let mut first = vec![None; self.graph.tensors.len()];
        for (n, node) in self.graph.nodes.iter().enumerate() {
            for input in node.inputs.iter().flatten().chain(&node.captures) {
                first[input.index()].get_or_insert(n);
            }
        }
        first
    }
}
