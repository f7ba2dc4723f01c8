//! One training step as allocate and free events, in the framework's own order.

use memfit_graph::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A block of device memory; views share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageId(pub u32);

/// What a storage is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Trainable values.
    Parameter,
    /// Non-trainable state: running statistics, tables, constants.
    Buffer,
    /// Of a parameter.
    Gradient,
    /// Moments, momentum, master weights, averaged weights.
    OptimizerState,
    /// Made by forward.
    Activation,
    /// Of an intermediate tensor, alive only inside backward.
    ActivationGradient,
    /// Scratch memory of one kernel.
    Workspace,
    /// Batches and targets.
    Input,
    /// Freed before its phase ends.
    Transient,
}

/// A part of the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Before the step: parameters, buffers, optimizer state, inputs.
    #[default]
    Setup,
    /// The model and the loss.
    Forward,
    /// Gradients.
    Backward,
    /// The optimizer.
    OptimizerStep,
}

impl Phase {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Setup => "setup",
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::OptimizerStep => "optimizer step",
        }
    }
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The storage comes to life.
    Allocate,
    /// The storage is given back.
    Free,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happens.
    pub kind: EventKind,
    /// To which storage.
    pub storage: StorageId,
    /// When.
    pub phase: Phase,
    /// Index into [`Timeline::layers`] of the layer that runs.
    pub layer: u32,
}

/// A storage's facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Size as requested, before any allocator's rounding.
    pub bytes: Bytes,
    /// What it is for.
    pub category: Category,
    /// Index into [`Timeline::layers`] of the layer it belongs to.
    pub layer: u32,
    /// Index into [`Timeline::labels`]: the tensor's name or the kernel that made it.
    pub label: u32,
}

/// Plans for a kernel are compared, once: PyTorch does so with `torch.backends.cudnn.benchmark`, and empties its allocator's
/// cache afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// The event before which this happens, in the first step only.
    pub event: usize,
    /// The largest scratch memory that a plan on offer asks for; the plans that ask for more than there is are not tried.
    pub trial: Bytes,
}

/// A whole step. Storages that are alive before it are allocated in [`Phase::Setup`].
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// In order.
    pub events: Vec<Event>,
    /// By [`StorageId`].
    pub storages: Vec<Storage>,
    /// Module paths or node names.
    pub layers: Vec<Arc<str>>,
    /// Names of tensors and kernels.
    pub labels: Vec<Arc<str>>,
    /// By event.
    pub searches: Vec<Search>,
    /// What takes the place of what when a step ends, by the storages' names in this step: a framework that makes new parameters
    /// and leaves the old ones behind.
    pub carried: Vec<(StorageId, StorageId)>,
    /// What the model gives where forward runs alone; in training only the loss outlives it.
    pub outputs: Vec<StorageId>,
    /// Scratch memory that a kernel can do without, in ascending order: where it can't be had, another plan runs.
    pub optional: Vec<StorageId>,
    /// By how much, in thousandths, the highest point may lie above this step's where the same kernels run in another order.
    pub spread: u64,
    /// Whether something ran whose need is not known: an operator without a rule, or one that makes a tensor of unknown size.
    pub is_partial: bool,
}

impl Timeline {
    /// A new label.
    pub(crate) fn label(&mut self, text: impl Into<Arc<str>>) -> u32 {
        self.labels.push(text.into());
        u32::try_from(self.labels.len() - 1).unwrap_or(u32::MAX)
    }

    /// A new storage, without its events.
    pub(crate) fn add(&mut self, storage: Storage) -> StorageId {
        self.storages.push(storage);
        StorageId(u32::try_from(self.storages.len() - 1).unwrap_or(u32::MAX))
    }

    /// The first event of the step itself.
    pub(crate) fn setup_end(&self) -> usize {
        self.events.iter().position(|e| e.phase != Phase::Setup).unwrap_or(self.events.len())
    }

    /// The most bytes that storages which the step itself makes hold at once, without what is alive before it: what a trace of a step's
    /// allocations shows.
    pub fn step_peak(&self) -> Bytes {
        let mut own = vec![Bytes::ZERO; self.storages.len()];
        let (mut live, mut peak) = (Bytes::ZERO, Bytes::ZERO);
        for event in self.events.iter().filter(|event| event.phase != Phase::Setup) {
            let at = event.storage.0 as usize;
            match event.kind {
                EventKind::Allocate => {
                    own[at] = self.storages[at].bytes;
                    live += own[at];
                    peak = peak.max(live);
                }
                EventKind::Free => live -= own[at],
            }
        }
        peak
    }

    /// The bytes of what the model gives, as forward alone made it: a view holds the whole of what it is a part of.
    pub(crate) fn output_bytes(&self) -> Bytes {
        let made = [Category::Activation, Category::Transient];
        let storages = self.outputs.iter().map(|id| &self.storages[id.0 as usize]);
        storages.filter(|s| made.contains(&s.category)).map(|s| s.bytes).sum()
    }

    /// Puts events before those at given places.
    pub(crate) fn insert(&mut self, mut before: BTreeMap<usize, Vec<Event>>) {
        let events = std::mem::take(&mut self.events);
        for search in &mut self.searches {
            search.event += before.range(..=search.event).map(|(_, added)| added.len()).sum::<usize>();
        }
        for (i, event) in events.into_iter().enumerate() {
            self.events.extend(before.remove(&i).unwrap_or_default());
            self.events.push(event);
        }
        self.events.extend(before.into_values().flatten());
    }
}
