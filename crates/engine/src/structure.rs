//! What of a graph does not depend on sizes or on a plan: found once when a model is made ready, and read by each estimate.

use crate::frameworks::pytorch::{self, Layout, Layouts};
use crate::host::Reads;
use crate::parameters::{Stored, by_graph, by_use};
use crate::{Plan, Precision, losses};
use memfit_graph::{DType, Graph, Inferred, Role, TensorId};
use std::collections::HashMap;
use std::sync::Arc;

/// Facts about a graph by tensor and by node.
#[derive(Clone)]
pub(crate) struct Structure {
    /// By tensor, how often it is read; an output of the graph counts as read once more.
    pub(crate) uses: Vec<u32>,
    /// By tensor, the first node that reads it as an input.
    pub(crate) first_use: Vec<Option<u32>>,
    /// By tensor, what it is where it is stored.
    pub(crate) kinds: Vec<Option<Stored>>,
    /// Row-major layouts of what is stored.
    pub(crate) layouts: Layouts,
    /// By tensor, which of them it has.
    pub(crate) stored: Vec<Option<Layout>>,
    /// By node, how it reads its inputs.
    pub(crate) reads: Vec<Reads>,
    /// Layers in forward order, after the one of the inputs.
    pub(crate) layers: Vec<Arc<str>>,
    /// By node, what its operator is called.
    pub(crate) ops: Vec<Arc<str>>,
    /// By node, the layer it belongs to.
    pub(crate) node_layers: Vec<u32>,
    /// The number of each layer.
    pub(crate) layer_numbers: HashMap<Arc<str>, u32>,
    /// Names that keep tensors alive, in the order in which they go.
    pub(crate) names: Vec<Name>,
    /// The tokens of a causal language model, whose loss is computed in float32.
    pub(crate) causal_vocabulary: Option<u64>,
    /// Whether Keras runs and trains it.
    pub(crate) is_keras: bool,
    /// The mixed policy that Keras' layers have in the file.
    pub(crate) policy: Option<Precision>,
}

/// A Python name that keeps a tensor alive until a node has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The node after which it goes.
    pub(crate) until: u32,
    /// The tensor.
    pub(crate) tensor: TensorId,
    /// The name is bound anew by a sum, if that has the tensor's shape: then it keeps nothing alive.
    pub(crate) rebound: Option<TensorId>,
}

impl Structure {
    /// Reads a graph, of which `inferred` is known where its shapes go together.
    pub(crate) fn new(graph: &Graph, inferred: Option<&Inferred>) -> Structure {
        let mut uses = vec![0_u32; graph.tensors.len()];
        let mut first_use = vec![None; graph.tensors.len()];
        for (n, node) in (0..).zip(&graph.nodes) {
            for input in node.inputs.iter().flatten() {
                uses[input.index()] += 1;
                first_use[input.index()].get_or_insert(n);
            }
            for input in &node.captures {
                uses[input.index()] += 1;
            }
        }
        for output in &graph.outputs {
            uses[output.index()] += 1;
        }
        let mut ops: HashMap<&str, Arc<str>> = HashMap::new();
        let mut op = |name| ops.entry(name).or_insert_with(|| name.into()).clone();
        let mut layers = Layers::default();
        layers.number(&"(inputs)".into());
        let node_layers = graph.nodes.iter().map(|node| layers.number(node.path())).collect();
        let kinds = inferred.map_or_else(|| by_use(graph), |inferred| by_graph(graph, inferred));
        let mut layouts = Layouts::default();
        let stored = graph.tensors.iter().zip(&kinds).map(|(tensor, kind)| {
            kind.and_then(|_| Some(layouts.contiguous(&tensor.declared.shape()?.upper()?)))
        });
        Structure {
            uses,
            first_use,
            stored: stored.collect(),
            layouts,
            kinds,
            reads: graph.nodes.iter().map(Reads::of).collect(),
            layers: layers.names,
            ops: graph.nodes.iter().map(|node| op(node.op.name())).collect(),
            node_layers,
            layer_numbers: layers.numbers,
            names: pytorch::names(graph),
            causal_vocabulary: losses::causal_vocabulary(graph),
            is_keras: is_keras(graph),
            policy: policy(graph),
        }
    }

    /// What the plan has Keras' layers cast to: nothing where the file's own policy stands in each of them, another in some.
    pub(crate) fn global_policy(&self, plan: &Plan) -> Option<DType> {
        plan.precision.autocast().filter(|_| self.policy.is_none())
    }
}

/// Whether the nodes are Keras' layers.
pub(crate) fn is_keras(graph: &Graph) -> bool {
    graph.nodes.iter().any(|node| node.op.name().starts_with("keras."))
}

/// The mixed policy under which a model was made, where there was one: then most layers with variables in float32 give half. A file does not
/// hold it, but each layer's own.
fn policy(graph: &Graph) -> Option<Precision> {
    let dtype = |id: &TensorId| graph.tensor(*id).declared.dtype();
    let mut count = [0_usize; 3];
    for node in graph.nodes.iter().filter(|node| node.op.name().starts_with("keras.")) {
        let is_kept = |id: &&TensorId| graph.tensor(**id).role == Role::Initializer;
        if node.inputs.iter().flatten().filter(is_kept).any(|id| dtype(id) == Some(DType::Float32)) {
            match node.outputs.iter().flatten().next().and_then(dtype) {
                Some(DType::Float16) => count[0] += 1,
                Some(DType::Bfloat16) => count[1] += 1,
                _ => count[2] += 1,
            }
        }
    }
    let [half, brain, single] = count;
    match half + brain > single {
        true if half > brain => Some(Precision::MixedFp16),
        true => Some(Precision::MixedBf16),
        false => None,
    }
}

#[derive(Default)]
struct Layers {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Layers {
    fn number(&mut self, name: &Arc<str>) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.clone());
        self.numbers.insert(name.clone(), number);
        number
    }
}
