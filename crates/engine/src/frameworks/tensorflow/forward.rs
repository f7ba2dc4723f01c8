//! Forward: each operator writes its kernels into the step's graph.

use super::{Builder, Source};
use crate::Mode;
use memfit_graph::kernels::{Compute, Made, Place, TfLowering};
use memfit_graph::{DType, Node, TensorId, Value};
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
        // A mask that rides along is no output of the layer.
        let is_shown = |made: &Made| made.dtype != DType::Bool || row.output_shapes.is_empty();
        if let Some(Some(made)) = outputs.first().filter(|made| made.as_ref().is_some_and(is_shown)) {
            row.output_shapes = smallvec![made.shape[..].into()];
        }
        let half = Some(self.plan.precision.model_dtype()).filter(|dtype| dtype.is_half());
        let compute = Compute {
            // A policy of one half-precision dtype casts to it as a mixed one does: a norm's result that was made in float32.
            autocast: self.structure.global_policy(self.plan).or(half),
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

#[cfg(test)]
mod tests {
    use crate::{Framework, Model, Plan, Precision};
    use memfit_graph::{Attributes, Binding, DType, Graph, Role, Shape, Type};

    #[test]
    fn what_follows_a_norm_is_half_under_a_half_policy() {
        let mut g = Graph::default();
        let float = |g: &mut Graph, name: &str, dims: &[u64], role| {
            g.add_tensor(name, Type::tensor(DType::Float32, Shape::from(dims)), role)
        };
        let mut x = float(&mut g, "x", &[8, 16, 32, 32], Role::Input);
        g.inputs = vec![x];
        for layer in ["a", "b", "c"] {
            let [scale, offset, mean, variance] = ["scale", "offset", "mean", "variance"]
                .map(|name| float(&mut g, &format!("{layer}.{name}"), &[16], Role::Initializer));
            let inputs = [x, scale, offset, mean, variance];
            x = g.push("BatchNormalization", Attributes::default(), &inputs, layer).unwrap();
            x = g.push("Relu", Attributes::default(), &[x], &format!("{layer}.relu")).unwrap();
        }
        g.outputs = vec![x];
        let model = Model::new(g, "m", "onnx", 6);
        let half = |precision| {
            let plan = Plan { framework: Framework::Tensorflow, precision, xla: false, ..Plan::default() };
            let timeline = model.estimate(&Binding::default(), &plan).unwrap().timeline;
            timeline.storages.iter().filter(|storage| storage.bytes.0 == 2 * 8 * 16 * 32 * 32).count()
        };
        // The input and, for each norm, what it gives, which the activation is written over, and that one's gradient.
        assert_eq!([Precision::Fp32, Precision::Bf16].map(half), [0, 7]);
    }
}
