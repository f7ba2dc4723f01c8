//! One file per layer, or per family of layers that differ in name only.
//!
//! A file opens with what the layer is (classes of Keras 2 and 3, the source of its rule). Then come the struct with the part
//! of its config that matters, `SPECS` that reads it, the variables that it makes, the shapes that it gives, what a framework
//! runs for it, and tests. Adding a layer is its file, a `mod` line and one line in [`ALL`]; a test keeps the three
//! and the generated table in step.

use crate::arguments::Argument;
use crate::layer::{Call, Keras, Layer, Weight};
use crate::model::Model;
use crate::operations;
use crate::reader::{Source, boxed};
use crate::spatial::{PerAxis, Window};
use crate::spec::Spec;
use memfit_graph::{DType, OpError};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::sync::Arc;

pub mod activation;
pub mod attention;
pub mod augmentation;
pub mod batch_normalization;
pub mod bidirectional;
pub mod concatenate;
pub mod conv;
pub mod conv_lstm;
pub mod conv_transpose;
pub mod custom;
pub mod dense;
pub mod depthwise_conv;
pub mod dot;
pub mod dropout;
pub mod einsum_dense;
pub mod embedding;
pub mod encoding;
pub mod flatten;
pub mod group_normalization;
pub mod grouped_query_attention;
pub mod identity;
pub mod lambda;
pub mod layer_normalization;
pub mod layer_scale;
pub mod locally_connected;
pub mod merge;
pub mod multi_head_attention;
pub mod nested;
pub mod normalization;
pub mod pipeline;
pub mod pooling;
pub mod prelu;
pub mod recurrent;
pub mod rescaling;
pub mod reshape;
pub mod resizing;
pub mod rnn;
pub mod separable_conv;
pub mod softmax;
pub mod spectral_normalization;
pub mod spectrogram;
pub mod time_distributed;
pub mod zero_padding;

mod gates;
mod projected;
mod quantized;
mod recurrence;

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
    attention::SPECS,
    augmentation::SPECS,
    batch_normalization::SPECS,
    bidirectional::SPECS,
    concatenate::SPECS,
    conv::SPECS,
    conv_lstm::SPECS,
    conv_transpose::SPECS,
    dense::SPECS,
    depthwise_conv::SPECS,
    dot::SPECS,
    dropout::SPECS,
    einsum_dense::SPECS,
    embedding::SPECS,
    encoding::SPECS,
    flatten::SPECS,
    group_normalization::SPECS,
    grouped_query_attention::SPECS,
    identity::SPECS,
    lambda::SPECS,
    layer_normalization::SPECS,
    layer_scale::SPECS,
    locally_connected::SPECS,
    merge::SPECS,
    multi_head_attention::SPECS,
    normalization::SPECS,
    pipeline::SPECS,
    pooling::SPECS,
    prelu::SPECS,
    recurrent::SPECS,
    rescaling::SPECS,
    reshape::SPECS,
    resizing::SPECS,
    rnn::SPECS,
    separable_conv::SPECS,
    softmax::SPECS,
    spectral_normalization::SPECS,
    spectrogram::SPECS,
    time_distributed::SPECS,
    zero_padding::SPECS,
];

/// The layer that the source describes; a custom one where Keras has none of this class.
pub(crate) fn build(source: &Source<'_>) -> Result<Arc<dyn Layer>, String> {
    if Model::is(&source.object) {
        return nested::build(source);
    }
    if let Some(operation) = operations::build(source) {
        return Ok(operation);
    }
    if source.object.is_builtin() {
        let spec = ALL.iter().copied().flatten().find(|spec| spec.classes.contains(&source.class()));
        if let Some(spec) = spec {
            return (spec.build)(source);
        }
    }
    Ok(Arc::new(custom::Custom))
}

/// A layer whose window has as many axes as its class tells.
fn windowed<L: Layer + DeserializeOwned + 'static>(
    source: &Source<'_>,
    window: fn(&mut L) -> &mut Window,
) -> Result<Arc<dyn Layer>, String> {
    let mut layer: L = source.read()?;
    *window(&mut layer) = Window::of(source)?;
    boxed(layer)
}

/// Outputs of the shapes of the inputs.
fn as_given(call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    if inputs.is_empty() {
        return Err(OpError::MissingInput { index: 0 });
    }
    Ok(inputs.iter().map(|s| call.seen(s)).collect())
}

/// An axis counted from the front; the last one where there is no such axis.
fn position(rank: usize, axis: i64) -> usize {
    let at = usize::try_from(axis).ok().or_else(|| rank.checked_add_signed(isize::try_from(axis).ok()?));
    at.filter(|at| *at < rank).unwrap_or(rank.saturating_sub(1))
}

/// Makes the sizes along these axes one, counted from the back when negative.
fn ones_at(shape: &mut [u64], axes: &[i64]) {
    for axis in axes {
        let at = position(shape.len(), *axis);
        shape.get_mut(at).into_iter().for_each(|d| *d = 1);
    }
}

fn yes() -> bool {
    true
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

const AXES: &str = "expected an axis or a list of them";

/// One axis or a list of them.
fn axes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<i64>, D::Error> {
    axes_or_none(deserializer)?.ok_or_else(|| D::Error::custom(AXES))
}

/// The same, or `None`.
fn axes_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<i64>>, D::Error> {
    let value = Argument::Json(Value::deserialize(deserializer)?);
    match value.is_null() {
        true => Ok(None),
        false => value.ints().map(Some).ok_or_else(|| D::Error::custom(AXES)),
    }
}

/// The variables in float32 where the policy's are half, as Keras 2's norms keep them.
fn in_float32(call: &Call<'_>, mut weights: Vec<Weight>) -> Vec<Weight> {
    if call.facts.keras != Keras::V3 {
        weights.iter_mut().filter(|w| w.dtype.is_half()).for_each(|w| w.dtype = DType::Float32);
    }
    weights
}
