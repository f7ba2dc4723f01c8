//! What memfit says about a step: plain data, which reports print and hosts serialise.

use crate::devices::context::ContextItem;
use crate::{Category, Fit, Phase, Plan, Timeline};
use memfit_graph::{Bytes, Dims};
use smallvec::SmallVec;
use std::sync::Arc;

/// The model in numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSummary {
    /// The graph's name, or the file's.
    pub name: String,
    /// `onnx` or `keras`.
    pub format: String,
    /// Elements of trainable parameters, tied ones once.
    pub parameters_trainable: u64,
    /// Elements of frozen parameters.
    pub parameters_frozen: u64,
    /// Elements of buffers.
    pub buffers: u64,
    /// Nodes in the file, bodies included.
    pub operators: u64,
}

/// The highest point of the step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peak {
    /// Bytes held by live tensors, each rounded up to the allocator's block.
    pub allocated: Bytes,
    /// Bytes the framework's allocator holds.
    pub reserved: Bytes,
    /// Bytes the driver shows for the process.
    pub device: Bytes,
    /// Where the range of `device` begins.
    pub device_low: Bytes,
    /// Where it ends.
    pub device_high: Bytes,
    /// The phase of the peak.
    pub phase: Phase,
    /// The layer that runs then.
    pub layer: String,
}

/// The state at the moment of the peak. All but the last two re-add to `peak.allocated`; with `allocator` to
/// `peak.reserved`; with `context` to `peak.device`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Breakdown {
    pub parameters: Bytes,
    pub buffers: Bytes,
    pub gradients: Bytes,
    pub optimizer: Bytes,
    pub activations: Bytes,
    pub activation_gradients: Bytes,
    pub workspace: Bytes,
    pub inputs: Bytes,
    pub transients: Bytes,
    /// What the allocator holds beyond live tensors.
    pub allocator: Bytes,
    /// Driver context and libraries.
    pub context: Bytes,
}

impl Breakdown {
    /// Adds to one category.
    pub fn add(&mut self, category: Category, bytes: Bytes) {
        let slot = match category {
            Category::Parameter => &mut self.parameters,
            Category::Buffer => &mut self.buffers,
            Category::Gradient => &mut self.gradients,
            Category::OptimizerState => &mut self.optimizer,
            Category::Activation => &mut self.activations,
            Category::ActivationGradient => &mut self.activation_gradients,
            Category::Workspace => &mut self.workspace,
            Category::Input => &mut self.inputs,
            Category::Transient => &mut self.transients,
        };
        *slot += bytes;
    }

    /// What re-adds to `peak.allocated`, in the order of the step.
    pub fn categories(&self) -> [(Category, Bytes); 9] {
        [
            (Category::Parameter, self.parameters),
            (Category::Buffer, self.buffers),
            (Category::Gradient, self.gradients),
            (Category::OptimizerState, self.optimizer),
            (Category::Activation, self.activations),
            (Category::ActivationGradient, self.activation_gradients),
            (Category::Workspace, self.workspace),
            (Category::Input, self.inputs),
            (Category::Transient, self.transients),
        ]
    }

    /// The sum of the categories.
    pub fn allocated(&self) -> Bytes {
        self.categories().into_iter().map(|(_, bytes)| bytes).sum()
    }
}

/// One layer's share. The sizes are the layer's own over the whole step, not those at the peak.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerRow {
    /// Module path, or the node's name where the exporter wrote none.
    pub name: Arc<str>,
    /// The operator type, several joined by `+`.
    pub op: Arc<str>,
    /// The shapes of its outputs.
    pub output_shapes: SmallVec<[Dims; 1]>,
    /// Elements of the parameters it is the first to use.
    pub parameters: u64,
    /// Their bytes.
    pub parameter_bytes: Bytes,
    /// Bytes of their gradients.
    pub gradient_bytes: Bytes,
    /// Bytes of their optimizer state.
    pub optimizer_bytes: Bytes,
    /// Bytes it is the first to keep for backward.
    pub saved_bytes: Bytes,
    /// The largest scratch of its kernels.
    pub workspace_bytes: Bytes,
    /// Its bytes alive at the moment of the peak, by category; these re-add over all rows to `peak.allocated`.
    pub at_peak: Breakdown,
}

/// A tensor alive at the peak.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveTensor {
    /// Its name or the kernel that made it.
    pub label: String,
    /// The layer it belongs to.
    pub layer: String,
    /// What it is for.
    pub category: Category,
    /// Its size, rounded up to the allocator's block.
    pub bytes: Bytes,
}

/// All that memfit says about a step.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// The model in numbers.
    pub model: ModelSummary,
    /// The plan it was made for.
    pub plan: Plan,
    /// The batch size, where an input has a batch axis.
    pub batch_size: Option<u64>,
    /// The highest point.
    pub peak: Peak,
    /// The state at that moment.
    pub breakdown: Breakdown,
    /// What the driver and the libraries hold, of which `breakdown.context` is the expected sum.
    pub context: Vec<ContextItem>,
    /// How the step gets on inside of a card, where one is given.
    pub fit: Option<Fit>,
    /// What autograd holds at the end of forward, parameters excluded.
    pub saved_for_backward: Bytes,
    /// The parts of the process around the step, where they were asked for.
    pub scenario: Option<crate::Scenario>,
    /// One row a layer, in forward order.
    pub layers: Vec<LayerRow>,
    /// The largest tensors alive at the peak, largest first.
    pub largest: Vec<LiveTensor>,
    /// The whole step, for drawing.
    pub timeline: Timeline,
    /// Operators without a rule, and those that make tensors whose size is not known, by name. Where there are some the estimate is
    /// not exact: they keep all inputs and outputs that have a size, and what else they need is missing.
    pub unknown: Vec<String>,
    /// What was assumed.
    pub assumptions: Vec<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
}
