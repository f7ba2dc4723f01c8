//! One file per layer, or per family of layers that differ in name only.
//!
//! A file opens with what the layer is (classes of Keras 2 and 3, the source of its rule). Then come the struct with the part
//! of its config that matters, `SPECS` that reads it, the variables that it makes, the shapes that it gives, what a framework
//! runs for it, and tests. Adding a layer is its file, a `mod` line and one line in [`ALL`]; a test keeps the three
//! and the generated table in step.

use crate::layer::{Call, Keras, Layer, Weight};
use crate::reader::Source;
use crate::spatial::PerAxis;
use memfit_graph::DType;
use serde::{Deserialize, Deserializer};
use std::sync::Arc;

pub mod activation;
pub mod batch_normalization;
pub mod concatenate;
pub mod conv;
pub mod custom;
pub mod dense;
pub mod dropout;
pub mod flatten;
pub mod merge;
pub mod pooling;

mod quantized;

/// Makes a layer from what the file says of it.
pub(crate) type Build = fn(&Source<'_>) -> Result<Arc<dyn Layer>, String>;

/// How a layer is found and built.
pub struct LayerSpec {
    /// The class names.
    pub classes: &'static [&'static str],
    /// The major versions of Keras that have it.
    pub keras: &'static [u8],
    /// Reads the config.
    pub(crate) build: Build,
}

/// Every layer, family by family, in alphabetical order of the files.
pub static ALL: &[&[LayerSpec]] = &[
    activation::SPECS,
    batch_normalization::SPECS,
    concatenate::SPECS,
    conv::SPECS,
    dense::SPECS,
    dropout::SPECS,
    flatten::SPECS,
    merge::SPECS,
    pooling::SPECS,
];

/// The layer that the source describes; a custom one where Keras has none of this class.
pub(crate) fn build(source: &Source<'_>) -> Result<Arc<dyn Layer>, String> {
    if source.object.is_builtin() && !source.object.is_operation() {
        let spec = ALL.iter().copied().flatten().find(|spec| spec.classes.contains(&source.class()));
        if let Some(spec) = spec {
            return (spec.build)(source);
        }
    }
    Ok(Arc::new(custom::Custom))
}

fn yes() -> bool {
    true
}

fn one() -> PerAxis {
    PerAxis::all(1)
}

fn two() -> PerAxis {
    PerAxis::all(2)
}

fn one_u64() -> u64 {
    1
}

fn minus_one() -> i64 {
    -1
}

fn last_axis() -> Vec<i64> {
    vec![-1]
}

/// One axis or a list of them.
fn axes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<i64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Axes {
        One(i64),
        Many(Vec<i64>),
    }
    Ok(match Axes::deserialize(deserializer)? {
        Axes::One(axis) => vec![axis],
        Axes::Many(axes) => axes,
    })
}

/// The variables in float32 where the policy's are half, as Keras 2's norms keep them.
fn in_float32(call: &Call<'_>, mut weights: Vec<Weight>) -> Vec<Weight> {
    if call.facts.keras == Keras::V2 {
        weights.iter_mut().filter(|w| w.dtype.is_half()).for_each(|w| w.dtype = DType::Float32);
    }
    weights
}
