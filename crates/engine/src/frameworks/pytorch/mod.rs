//! PyTorch on CUDA: eager mode, autograd, autocast, `torch.optim`.
//!
//! The step is run call by call without computing anything: forward in graph order (`tape`), the loss (`loss`),
//! backward as the autograd engine would (`backward`), then the optimizer. Kernels' scratch memory is part of it (`workspace`). Rules are those of PyTorch 2.15.

mod autocast;
mod backward;
pub(crate) mod checkpoint;
mod cublas;
mod forward;
mod gradients;
mod in_place;
mod keras;
mod keras_loss;
mod layouts;
pub(crate) mod loss;
mod memory;
mod names;
mod reach;
mod record;
mod setup;
mod strides;
mod tape;
mod train;
mod workspace;

use crate::optimizers::{Parameter, StepConfig};
use crate::parameters::Stored;
use crate::sizes::Sizes;
use crate::structure::Name;
use crate::{Mode, Phase, Plan, StorageId, Structure, Timeline};
use checkpoint::Segment;
use memfit_graph::{Bytes, Call, DType, Dims, Graph, Inferred, Operand, TensorId};
use memory::OWN_LAYERS;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tape::{Tape, TensorRef};
use workspace::Kernels;

pub(crate) use keras::{is_keras, policy};
pub(crate) use layouts::{Layout, Layouts};
#[cfg(feature = "burn")]
pub(crate) use loss::choose as choose_loss;
pub(crate) use names::names;
pub(crate) use setup::AVERAGED;
pub(crate) use workspace::alike;

/// One step under PyTorch's rules.
pub(crate) struct Step {
    /// All events.
    pub(crate) timeline: Timeline,
    /// Unique storages that autograd holds at the end of forward, parameters and buffers excluded, as requested.
    pub(crate) saved: Vec<SavedStorage>,
    /// What ran in each layer, by layer of the timeline.
    pub(crate) layer_ops: Vec<LayerOps>,
    /// The storage of each stored tensor that takes memory, with its kind and the layer that first uses it.
    pub(crate) stored: Vec<StoredTensor>,
    /// Operators without a rule, and those that make tensors whose size is not known.
    pub(crate) unknown: Vec<String>,
    /// What was assumed.
    pub(crate) assumptions: Vec<String>,
}

/// A storage kept for backward, with the functions that keep it.
pub(crate) struct SavedStorage {
    pub(crate) storage: StorageId,
    pub(crate) layer: u32,
    pub(crate) holders: SmallVec<[&'static str; 2]>,
}

/// What ran in a layer.
#[derive(Default)]
pub(crate) struct LayerOps {
    pub(crate) ops: SmallVec<[Arc<str>; 1]>,
    pub(crate) output_shapes: SmallVec<[Dims; 1]>,
}

impl LayerOps {
    /// So many layers in which nothing has run.
    pub(crate) fn of(layers: usize) -> Vec<LayerOps> {
        let mut all = Vec::with_capacity(layers + OWN_LAYERS);
        all.resize_with(layers, LayerOps::default);
        all
    }

    /// An operator runs.
    pub(crate) fn ran(&mut self, op: &Arc<str>) {
        if !self.ops.contains(op) {
            self.ops.push(op.clone());
        }
    }
}

/// A parameter or buffer.
#[derive(Clone)]
pub(crate) struct StoredTensor {
    pub(crate) kind: Stored,
    pub(crate) elements: u64,
    pub(crate) bytes: Bytes,
    pub(crate) layer: u32,
    pub(crate) optimizer_bytes: Bytes,
}

impl StoredTensor {
    /// How many values it counts among the model's parameters.
    pub(crate) fn parameters(&self) -> u64 {
        if matches!(self.kind, Stored::Parameter | Stored::Frozen) { self.elements } else { 0 }
    }
}

/// Operators for which memory is set aside at once; what is larger grows as it goes.
const LARGE_GRAPH: usize = 1 << 13;

struct Runner<'a> {
    graph: &'a Graph,
    structure: &'a Structure,
    inferred: &'a Inferred,
    sizes: Sizes,
    plan: &'a Plan,
    tape: Tape,
    /// By graph tensor, whether it is a Python number.
    host: Vec<bool>,
    /// By graph tensor.
    values: Vec<Option<TensorRef>>,
    /// What had which dtype before a model cast it to float32 for a while.
    dtypes: BTreeMap<TensorId, memfit_graph::DType>,
    /// Remaining uses by graph tensor, Python's names included.
    uses: Vec<u32>,
    /// Names that keep tensors alive, in the order in which they go.
    names: Vec<Name>,
    /// How many are gone.
    names_gone: usize,
    /// Lists of calls, to write into again.
    lists: (Vec<Call>, Vec<(usize, Operand)>),
    /// Layers that are none of the graph's.
    layers: BTreeMap<Arc<str>, u32>,
    layer_ops: Vec<LayerOps>,
    segments: Vec<Segment>,
    /// What layers add to the loss.
    penalties: Vec<TensorRef>,
    unknown: Vec<String>,
    /// What is trained, as the optimizer sees it.
    parameters: Vec<Parameter>,
    assumptions: Vec<String>,
}

/// Runs one training step (or one inference) in its steady state.
pub(crate) fn run(
    graph: &Graph,
    structure: &Structure,
    inferred: &Inferred,
    sizes: Sizes,
    plan: &Plan,
) -> Step {
    let training = plan.mode == Mode::Train;
    let mut tape = Tape::new(autocast(structure, plan), training);
    tape.layouts = structure.layouts.clone();
    tape.reserve(graph.nodes.len().min(LARGE_GRAPH), graph.tensors.len().min(2 * LARGE_GRAPH));
    tape.kernels = (!plan.as_fake_tensors).then(|| Kernels::of(plan));
    // Layers are shown in forward order, not in that of the parameters that are set up first.
    tape.memory.set_layers(&structure.layers);
    // A sum of the same shape binds its name anew.
    let keeps =
        |name: &&Name| name.rebound.is_none_or(|sum| inferred.shape(sum) != inferred.shape(name.tensor));
    let mut runner = Runner {
        graph,
        structure,
        inferred,
        sizes,
        plan,
        tape,
        host: Vec::new(),
        values: vec![None; graph.tensors.len()],
        dtypes: BTreeMap::new(),
        uses: structure.uses.clone(),
        names: structure.names.iter().filter(keeps).copied().collect(),
        names_gone: 0,
        lists: Default::default(),
        layers: BTreeMap::new(),
        layer_ops: LayerOps::of(structure.layers.len()),
        segments: if training { checkpoint::segments(graph, plan.checkpoint) } else { Vec::new() },
        penalties: Vec::new(),
        unknown: Vec::new(),
        parameters: Vec::new(),
        assumptions: Vec::new(),
    };
    let is_recurrent = |node: &memfit_graph::Node| ["LSTM", "GRU", "RNN"].contains(&node.op.name());
    if training && !plan.as_fake_tensors && graph.nodes.iter().any(is_recurrent) {
        let said = "what cuDNN keeps of recurrent layers is not documented: gates and states of each step are counted";
        runner.assumptions.push(said.into());
    }
    for name in &runner.names {
        runner.uses[name.tensor.index()] += 1;
    }
    let (mut leaves, stored) = runner.set_up(training);
    if training && (plan.keep_gradients || plan.accumulate > 1 || structure.is_keras) {
        runner.keep_gradients(&mut leaves);
    }
    runner.tape.memory.phase = Phase::Forward;
    runner.forward();
    let mut saved = Vec::new();
    if training {
        runner.train(&mut leaves, &mut saved);
    } else {
        runner.tape.end_autocast();
        runner.release_outputs();
    }
    Step {
        saved,
        layer_ops: runner.layer_ops,
        stored,
        unknown: runner.unknown,
        assumptions: runner.assumptions,
        timeline: runner.tape.memory.into_timeline(),
    }
}

/// What autocast casts to: Keras has a dtype policy in its place, which its layers follow themselves.
fn autocast(structure: &Structure, plan: &Plan) -> Option<DType> {
    plan.precision.autocast().filter(|_| !structure.is_keras)
}

/// How the plan runs its optimizer.
fn step_config(plan: &Plan) -> StepConfig {
    StepConfig {
        implementation: plan.optimizer_impl,
        weight_decay: plan.weight_decay,
        master_weights: plan.master_weights,
    }
}

impl Runner<'_> {
    fn named_layer(&mut self, name: &str) -> u32 {
        if let Some(layer) = self.structure.layer_numbers.get(name).or_else(|| self.layers.get(name)) {
            return *layer;
        }
        let name: Arc<str> = name.into();
        let layer = self.tape.memory.add_layer(name.clone());
        self.layers.insert(name, layer);
        self.layer_ops.push(LayerOps::default());
        layer
    }

    fn release_outputs(&mut self) {
        let given = self.graph.outputs.iter().filter_map(|id| self.values[id.index()]);
        let given: BTreeSet<StorageId> = given.map(|t| self.tape.tensor(t).storage).collect();
        self.tape.memory.give(given);
        for id in &self.graph.outputs {
            self.release_use(*id);
        }
    }
}
