//! A model inside of a layer: `TimeDistributed(encoder)`.
//!
//! A model that is called by a model is not this: its layers become nodes of their own. A wrapper asks its inner layer for variables and
//! shapes, so a model in it answers as one layer.

use crate::builder::Builder;
use crate::layer::{Call, Keras, Layer, LayerCall, Weight};
use crate::model::Model;
use crate::object::Object;
use crate::options::Options;
use crate::reader::{Reader, Shared, Source};
use crate::run::Run;
use crate::spec::Spec;
use crate::torch::Torch;
use memfit_graph::{Graph, Node, OpError, Shape, TensorId, Variable};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// A model that a layer holds.
#[derive(Clone, Debug)]
pub struct Nested {
    object: Value,
    options: Options,
    depth: u32,
    /// What it was last called on, and the graph that it is then: a wrapper calls it with the same for every step.
    last: Arc<Mutex<Option<Called>>>,
}

/// A model called on these inputs.
#[derive(Clone, Debug)]
struct Called {
    keras: Keras,
    inputs: Vec<Spec>,
    graph: Arc<Graph>,
}

/// The model as a layer.
pub(super) fn build(source: &Source<'_>) -> Result<Arc<dyn Layer>, String> {
    // Read once, so that what is wrong with it is told at import.
    let lines = |problems: Vec<memfit_graph::Problem>| {
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    Model::read(&source.object, &source.reader, true, "").map_err(lines)?;
    let (object, options) = (source.object.raw.clone(), source.reader.options.clone());
    Ok(Arc::new(Nested { object, options, depth: source.reader.depth, last: Arc::default() }))
}

impl Nested {
    /// The model called on these inputs, as a graph of its own.
    pub fn graph(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Arc<Graph>, OpError> {
        let keras = call.facts.keras;
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = last().as_ref().filter(|last| last.keras == keras && last.inputs == inputs) {
            return Ok(known.graph.clone());
        }
        let graph = Arc::new(self.read(keras, inputs)?);
        *last() = Some(Called { keras, inputs: inputs.to_vec(), graph: graph.clone() });
        Ok(graph)
    }

    fn read(&self, keras: Keras, inputs: &[Spec]) -> Result<Graph, OpError> {
        let object = Object::read(&self.object).map_err(|e| OpError::mismatch("a model", e))?;
        let shared = Shared::default();
        let (options, depth) = (&self.options, self.depth);
        let reader = Reader { keras, options, shared: &shared, depth };
        let mut model = Model::read(&object, &reader, true, "").map_err(OpError::Body)?;
        let mut builder = Builder::new(&self.options);
        let flows: Vec<_> = inputs
            .iter()
            .enumerate()
            .map(|(i, spec)| builder.input(&format!("input_{i}"), spec.clone()))
            .collect();
        let outputs = model.run(&mut builder, "", &flows);
        if !builder.problems.is_empty() {
            return Err(OpError::Body(builder.problems));
        }
        builder.graph.outputs = outputs.iter().map(|f| f.id).collect();
        Ok(builder.graph)
    }
}

impl Layer for Nested {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let graph = self.graph(call, inputs)?;
        let weight = |t: &memfit_graph::Tensor| {
            let shape = t.declared.shape()?.known()?;
            let variable: Variable = t.variable?;
            Some(Weight { name: t.name.to_string(), shape, dtype: t.declared.dtype()?, variable })
        };
        Ok(graph.tensors.iter().filter_map(weight).collect())
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let graph = self.graph(call, inputs)?;
        let spec = |id: &TensorId| {
            let tensor = graph.tensor(*id).declared.as_tensor()?;
            Some(Spec::new(tensor.shape.clone()?, tensor.dtype))
        };
        Ok(graph.outputs.iter().filter_map(spec).collect())
    }

    fn calls(&self, call: &Call<'_>, inputs: &[Spec], most: u64) -> u64 {
        let Ok(graph) = self.graph(call, inputs) else { return 1 };
        let of_node = |node: &Node| {
            let layer = node.op.downcast::<LayerCall>()?;
            let spec = |id: &Option<TensorId>| {
                let tensor = graph.tensor((*id)?).declared.as_tensor()?;
                Some(Spec::new(tensor.shape.clone()?, tensor.dtype))
            };
            let inputs: Option<Vec<Spec>> = node.inputs.iter().take(layer.tensors).map(spec).collect();
            Some(layer.layer.calls(&layer.arguments, &inputs?, most))
        };
        // The model's own call is one as well.
        graph.nodes.iter().fold(1, |calls, node| calls.saturating_add(of_node(node).unwrap_or(1)))
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let tensors: Vec<_> = (0..run.tensors()).map(|i| run.x(i)).collect();
        let dtype = run.dtype();
        let specs: Vec<_> = tensors.iter().map(|x| Spec::new(Shape::from(&x.shape[..]), dtype)).collect();
        let made = self.graph(run.call, &specs).ok().and_then(|graph| run.graph(&graph, &tensors));
        match made.as_deref() {
            Some([y]) => run.finish(y),
            _ => run.not_modelled(),
        }
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let tensors: Vec<_> = (0..run.tensors()).map(|i| run.x(i)).collect();
        let specs: Vec<_> =
            tensors.iter().map(|x| Spec::new(Shape::from(run.shape(*x)), run.dtype(*x))).collect();
        let made = self.graph(run.call, &specs).ok().and_then(|graph| run.graph(&graph, &tensors));
        match made {
            Some(made) => made.into_iter().enumerate().for_each(|(j, y)| run.bind(j, y)),
            None => run.not_modelled(),
        }
    }
}
