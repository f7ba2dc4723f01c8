//! PyTorch on CUDA: eager mode, autograd, autocast, `torch.optim`.
//!
//! The step is run call by call without computing anything: forward in graph order (`tape`), the loss (`loss`),
//! backward as the autograd engine would (`backward`), then the optimizer. Kernels' scratch memory is part of it (`workspace`). Rules are those of PyTorch 2.15.

mod autocast;
mod backward;
mod checkpoint;
mod cublas;
mod forward;
mod gradients;
mod in_place;
mod keras;
mod keras_loss;
mod layouts;
mod loss;
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
use crate::sizes::Sizes;
use crate::step::{LayerOps, Step};
use crate::structure::Name;
use crate::{Mode, Phase, Plan, StorageId, Structure};
use checkpoint::Segment;
use memfit_graph::{Call, DType, Graph, Inferred, Operand, TensorId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tape::{Tape, TensorRef};
use workspace::Kernels;

pub(crate) use layouts::{Layout, Layouts};
pub(crate) use names::names;
pub(crate) use workspace::alike;

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
