//! Forward: each operator writes its kernels into the step's graph.

use super::{Builder, Source};
use crate::Mode;
use memfit_graph::kernels::{Compute, Made, Place, TfLowering};
use memfit_graph::{Node, TensorId, Value};
use smallvec::smallvec;
use std::sync::Arc;

impl Builder<'_> {
    /// Lowers all operators.
    pub(super) fn forward(&mut self) {
        let graph = self.graph;
        for (node, op) in graph.nodes.iter().zip(&self.structure.ops) {
            self.node(node, op);
        }
    }

    fn node(&mut self, node: &Node, op: &Arc<str>) {
        let layer = self.node_layer(node);
        self.flow.layer = layer;
        self.flow.scope = "";
        if !node.outputs.is_empty() && node.outputs.iter().flatten().all(|id| self.host[id.index()]) {
            let made = |id: &TensorId| self.sources[id.index()] = Some(Source::Constant);
            return node.outputs.iter().flatten().for_each(made);
        }
        let inputs: Vec<Made> = node.inputs.iter().map(|id| self.made(*id).unwrap_or_else(none)).collect();
        let outputs: Vec<Option<Made>> = node.outputs.iter().map(|id| self.made(*id)).collect();
        let values: Vec<Option<&Value>> = node.inputs.iter().map(|id| self.inferred.value((*id)?)).collect();
        let sources: Vec<Option<Source>> = node
            .inputs
            .iter()
            .map(|id| id.map(|id| self.sources[id.index()].unwrap_or(Source::Constant)))
            .collect();
        let row = &mut self.layer_ops[layer as usize];
        row.ran(op);
        if let Some(Some(made)) = outputs.first() {
            row.output_shapes = smallvec![made.shape[..].into()];
        }
        let compute = Compute {
            autocast: self.structure.global_policy(self.plan),
            training: self.plan.mode == Mode::Train,
            channels_first: !self.plan.xla
                && !self.plan.eager
                && !self.plan.as_fake_tensors
                && self.plan.precision == crate::Precision::Fp32,
        };
        let mut lowering = TfLowering::new(&mut self.flow, &sources, &inputs, &outputs, &values, compute);
        node.op.tensorflow(&mut lowering);
        let (bound, modelled) = lowering.into_parts();
        let is_known = modelled && self.sizes.are_known(node, &self.structure.uses, self.inferred);
        if !is_known && !self.unknown.iter().any(|n| n == node.op.name()) {
            self.unknown.push(node.op.name().to_owned());
        }
        for (j, wire) in bound {
            if let Some(Some(id)) = node.outputs.get(j) {
                self.sources[id.index()] = Some(Source::Wire(wire));
                self.given.push(wire);
            }
        }
    }

    /// What inference says of a tensor.
    fn made(&self, id: Option<TensorId>) -> Option<Made> {
        let id = id?;
        let shape = self.inferred.shape(id)?.upper()?;
        let dtype = self.plan.precision.applied_to(self.inferred.dtype(id));
        Some(Made { shape, dtype, place: Place::New })
    }
}

fn none() -> Made {
    Made { shape: Vec::new(), dtype: memfit_graph::DType::Float32, place: Place::Host }
}
