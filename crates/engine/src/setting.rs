//! What a program that runs a model's step for real has to know beside the graph: which stored tensors are trained, which are numbers of
//! the program, and what the outputs are compared with. The same answers stand behind the estimate.

use crate::parameters::{Stored, is_table};
use crate::prepared::Prepared;
use crate::{Loss, Model, Plan, blocks, host, losses};
use memfit_graph::{Binding, DType, Graph, Inferred, Problem, TensorId, infer};
use std::borrow::Cow;
use std::ops::Range;

/// A model with everything bound that a step needs.
pub struct Setting<'a> {
    /// The graph as the framework runs it.
    pub graph: Cow<'a, Graph>,
    /// Types and folded elements.
    pub inferred: Inferred,
    /// By tensor, what it is where it is stored.
    pub stored: Vec<Option<Stored>>,
    /// By tensor, whether it is an embedding's table, which some optimizers treat in a way of their own.
    pub tables: Vec<bool>,
    /// By tensor, whether it is a number or a size and never on the device.
    pub host: Vec<bool>,
    /// Which loss: never [`Loss::Auto`].
    pub loss: Loss,
    /// The outputs it is computed of, summed where there are several.
    pub compared: Vec<TensorId>,
    /// What they are compared with.
    pub target: Target,
    /// The axis of the outputs on which classes lie.
    pub class_axis: usize,
    /// Whether logits are cast up to float32 before the loss.
    pub upcast: bool,
    /// The runs of nodes that the plan computes again in backward, in order.
    pub recomputed: Vec<Range<usize>>,
}

/// What an output is compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Nothing.
    None,
    /// An input of the same shape.
    Input(TensorId),
    /// A tensor of its own.
    New(Vec<u64>, DType),
}

impl Model {
    /// What a real step of `plan` has to know.
    ///
    /// # Errors
    /// As [`Model::estimate`].
    pub fn setting(&self, binding: &Binding, plan: &Plan) -> Result<Setting<'_>, Vec<Problem>> {
        if let Some(problem) = plan.refusal() {
            return Err(vec![problem]);
        }
        let plan = &*self.under_policy(plan);
        let prepared = self.prepared_for(binding, plan);
        let Prepared { graph, structure, .. } = &*prepared;
        let inferred = infer(graph, binding)?;
        let (stored, host) = host::stored(graph, structure, &inferred, &plan.freeze);
        let is_stored = |i: usize| matches!(stored[i], Some(Stored::Parameter | Stored::Frozen));
        let tables = (0..stored.len()).map(|i| is_stored(i) && is_table(graph, structure, i)).collect();
        let shape = |id: &TensorId| inferred.shape(*id).and_then(|s| s.known());
        let outputs: Vec<(TensorId, Vec<u64>)> = graph
            .outputs
            .iter()
            .filter(|id| inferred.dtype(**id).is_float())
            .filter_map(|id| Some((*id, shape(id)?)))
            .collect();
        let shapes: Vec<Vec<u64>> = outputs.iter().map(|(_, shape)| shape.clone()).collect();
        let inputs: Vec<(Vec<u64>, DType)> =
            graph.inputs.iter().filter_map(|id| Some((shape(id)?, inferred.dtype(*id)))).collect();
        let loss = if plan.loss == Loss::Auto { losses::choose(&shapes, &inputs).0 } else { plan.loss };
        let used = if loss == Loss::CrossEntropy { losses::alike(&shapes) } else { shapes.len().min(1) };
        let first = shapes.first().map_or(&[][..], |s| s);
        let own = |id: &&TensorId| {
            loss == Loss::Mse && inferred.dtype(**id).is_float() && shape(id).is_some_and(|s| s == first)
        };
        let classes = outputs.first().map(|(id, shape)| losses::classes(graph, structure, *id, shape));
        let classes = classes.unwrap_or_default();
        let target = match (graph.inputs.iter().find(own), losses::target(loss, first, classes.axis)) {
            (Some(id), _) => Target::Input(*id),
            (None, Some((shape, dtype))) => {
                Target::New(shape, if dtype.is_float() { plan.precision.model_dtype() } else { dtype })
            }
            (None, None) => Target::None,
        };
        let compared = outputs.iter().take(used).map(|(id, _)| *id).collect();
        let upcast = loss == Loss::CrossEntropy && classes.upcast;
        let recomputed = blocks::recomputed(graph, plan.checkpoint);
        let graph = match prepared {
            Cow::Borrowed(prepared) => Cow::Borrowed(&prepared.graph),
            Cow::Owned(prepared) => Cow::Owned(prepared.graph),
        };
        Ok(Setting {
            graph,
            inferred,
            stored,
            tables,
            host,
            loss,
            compared,
            target,
            class_axis: classes.axis,
            upcast,
            recomputed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{Attributes, Role, Shape, Type};

    #[test]
    fn a_classifier_is_compared_with_classes_and_an_autoencoder_with_its_input() {
        let model = |outputs: u64| {
            let mut g = Graph::default();
            let float = |shape: &[u64]| Type::tensor(DType::Float32, Shape::from(shape));
            let x = g.add_tensor("x", float(&[4, 8]), Role::Input);
            g.inputs = vec![x];
            let w = g.add_tensor("fc.weight", float(&[8, outputs]), Role::Initializer);
            let y = g.push("MatMul", Attributes::default(), &[x, w], "y").unwrap();
            g.outputs = vec![y];
            Model::new(g, "m", "onnx", 1)
        };
        let classifier = model(3);
        let setting = classifier.setting(&Binding::default(), &Plan::default()).unwrap();
        assert_eq!(setting.loss, Loss::CrossEntropy);
        assert_eq!(setting.target, Target::New(vec![4], DType::Int64));
        assert_eq!((setting.compared.len(), setting.upcast), (1, false));
        assert!(setting.stored.contains(&Some(Stored::Parameter)));
        let autoencoder = model(8);
        let setting = autoencoder.setting(&Binding::default(), &Plan::default()).unwrap();
        assert_eq!((setting.loss, setting.target), (Loss::Mse, Target::Input(setting.graph.inputs[0])));
    }
}
