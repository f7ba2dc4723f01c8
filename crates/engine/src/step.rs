//! One step as a framework's rules run it: its events, and what they belong to. Every profile gives this.

use crate::parameters::Stored;
use crate::{StorageId, Timeline};
use memfit_graph::{Bytes, Dims};
use smallvec::SmallVec;
use std::sync::Arc;

/// At most so many layers are none of the graph's: the loss, the optimizer.
pub(crate) const OWN_LAYERS: usize = 8;

/// Averaged weights, as a timeline labels them.
pub(crate) const AVERAGED: &str = "averaged weights";

/// One step under a framework's rules.
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
