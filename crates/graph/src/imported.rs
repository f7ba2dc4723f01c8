//! What an importer makes of a file, the same for every format, so that a host need not know which it was.

use crate::{Graph, Problem};
use std::ops::Range;

/// A model as it was read.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// `onnx` or `keras`.
    pub format: &'static str,
    /// Its graph.
    pub graph: Graph,
    /// What wrote the file, with its version: `pytorch 2.5.1`, `keras 3.5.0`.
    pub producer: String,
    /// The version of the default operator set, where the format has one.
    pub opset: Option<i64>,
    /// Nodes in the file, those of bodies and functions included; layer calls of a Keras model.
    pub operators: u64,
    /// What it was compiled with, where the file says it.
    pub compiled: Option<Compiled>,
    /// What is odd but does no harm.
    pub warnings: Vec<Problem>,
    /// The parts of the file that say all this; none of a Keras file, whose config does.
    pub structure: Vec<Range<u64>>,
}

/// The optimizer and the loss of Keras' `compile()`, as far as they are Keras' own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// The optimizer by its class and what changes its slots: `adam`, `amsgrad`, `nesterov`, `rmsprop-centered`.
    pub optimizer: Option<String>,
    /// Whether weights decay.
    pub weight_decay: bool,
    /// Whether gradients are clipped by the norm of all of them together.
    pub global_clipnorm: bool,
    /// Whether an average of the weights is kept.
    pub ema: bool,
    /// Steps over which gradients are summed.
    pub accumulate: u32,
    /// The loss in small letters, where it is one for all outputs: `sparse_categorical_crossentropy`.
    pub loss: Option<String>,
}
