//! TensorFlow in graph mode: one dataflow graph for the whole step, as `tf.function` makes it of a Keras `train_step`.
//!
//! Forward, loss, gradients (`tape`) and the optimizer's update are kernels of one graph (`Flow`). What nobody needs is
//! pruned, the rest is put in the order in which the executor runs it (`schedule`; `orders` says which of several), and reference counts
//! are played through (`memory`): a buffer is freed after its last reader, and written over where a kernel may. XLA, where it is on,
//! first runs others in place of some kernels (`rewritten`, `padded`, `turned`, `stacked`), fuses chains of elementwise ones (`xla`) and updates
//! (`together`), and of two orders takes the one that needs less. Rules are those of TensorFlow 2.21 and Keras 3.15.

mod centred;
mod constants;
mod convolutions;
mod dependencies;
mod eager;
mod forward;
mod grappler;
mod loss;
mod memory;
mod merged;
mod names;
mod optimizers;
mod orders;
mod padded;
mod pushed;
mod rewritten;
mod roots;
mod schedule;
mod setup;
mod stacked;
mod tape;
mod together;
mod turned;
mod turns;
mod update;
mod xla;

use self::convolutions::Convolutions;
use crate::sizes::Sizes;
use crate::step::{LayerOps, Step, StoredTensor};
use crate::{Category, Mode, Plan, Structure};
use memfit_graph::kernels::{Effect, Flow, Place, Source, Stage, Wire};
use memfit_graph::{Graph, Inferred};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a variable or a fed tensor is.
pub(super) struct Resident {
    name: Arc<str>,
    category: Category,
    layer: u32,
}

/// The step's graph as it grows.
struct Builder<'a> {
    graph: &'a Graph,
    structure: &'a Structure,
    inferred: &'a Inferred,
    sizes: Sizes,
    plan: &'a Plan,
    flow: Flow,
    /// By graph tensor, whether it is a Python number.
    host: Vec<bool>,
    /// By graph tensor, what it is to the kernels that read it.
    sources: Vec<Option<Source>>,
    /// By variable of the flow.
    residents: Vec<Resident>,
    /// By feed.
    feeds: Vec<Resident>,
    layers: Vec<Arc<str>>,
    by_name: BTreeMap<Arc<str>, u32>,
    layer_ops: Vec<LayerOps>,
    stored: Vec<StoredTensor>,
    /// What the model's layers gave, in order.
    given: Vec<Wire>,
    unknown: Vec<String>,
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
    let mut builder = Builder {
        graph,
        structure,
        inferred,
        sizes,
        plan,
        flow: Flow::default(),
        host: Vec::new(),
        sources: vec![None; graph.tensors.len()],
        residents: Vec::new(),
        feeds: Vec::new(),
        layers: Vec::new(),
        by_name: BTreeMap::new(),
        layer_ops: Vec::new(),
        stored: Vec::new(),
        given: Vec::new(),
        unknown: Vec::new(),
        assumptions: Vec::new(),
    };
    builder.flow.lists = !plan.xla && !plan.eager;
    builder.layer("(inputs)");
    for node in &graph.nodes {
        builder.node_layer(node);
    }
    builder.set_up();
    builder.forward();
    if plan.xla && builder.flow.uncompiled {
        // `jit_compile="auto"` (keras/src/trainers/trainer.py, `model_supports_jit`)
        let mut step = run(graph, structure, inferred, builder.sizes, &Plan { xla: false, ..plan.clone() });
        step.assumptions.push("Keras compiles no model with LSTM or GRU on cuDNN, lookup tables or random crops, shifts and turns".into());
        return step;
    }
    let (mut kept, mut roots) = (Vec::new(), Vec::new());
    let mut gradients = BTreeMap::new();
    if plan.mode == Mode::Train {
        if let Some(loss) = builder.losses() {
            builder.flow.stage = Stage::Backward;
            builder.flow.folds = plan.grappler && !plan.xla && !plan.eager;
            kept.push(loss);
            gradients = tape::gradients(&mut builder.flow, loss);
            builder.flow.stage = Stage::Update;
            roots = builder.update(&gradients);
        }
    } else {
        kept.extend(graph.outputs.iter().filter_map(|id| match builder.sources[id.index()] {
            Some(Source::Wire(wire)) => Some(wire),
            _ => None,
        }));
    }
    if plan.xla {
        merged::merge(&mut builder.flow, true);
        xla::fuse(&mut builder.flow, &kept);
    }
    builder.state_assumptions();
    let played = orders::played(&mut builder, &kept, &gradients, &roots);
    Step {
        timeline: played.timeline,
        saved: played.saved,
        layer_ops: builder.layer_ops,
        stored: builder.stored,
        unknown: builder.unknown,
        assumptions: builder.assumptions,
    }
}

impl Builder<'_> {
    /// What was assumed of how the step is run.
    fn state_assumptions(&mut self) {
        self.assumptions.push(
            match self.plan.xla {
                _ if self.plan.eager => "the step runs eagerly: no kernel writes over its input, layers' outputs live until forward ends and gradients until all are applied",
                true => "XLA is on, as Keras 3 turns it on by itself on a GPU: chains of elementwise kernels are fused into all that read them (--no-xla)",
                false => "XLA is off: each kernel's output is a buffer, and grappler turns fed images channels first (--xla)",
            }
            .into(),
        );
        if !self.plan.eager && !self.plan.xla {
            self.assumptions.push("the executor's order is that of one thread, depth first".into());
        }
        if Convolutions::of(self.plan).is_none()
            && self.flow.kernels.iter().any(|kernel| kernel.name.contains("Conv"))
        {
            self.assumptions.push(
                "what convolutions hold while they run is left out: it depends on the card (--gpu)".into(),
            );
        }
    }

    /// The number of a layer by its name.
    fn layer(&mut self, name: &str) -> u32 {
        if let Some(layer) = self.by_name.get(name) {
            return *layer;
        }
        let name: Arc<str> = name.into();
        let layer = u32::try_from(self.layers.len()).unwrap_or(u32::MAX);
        self.layers.push(name.clone());
        self.by_name.insert(name, layer);
        self.layer_ops.push(LayerOps::default());
        layer
    }

    fn node_layer(&mut self, node: &memfit_graph::Node) -> u32 {
        self.layer(node.path())
    }
}
