//! MultiHeadAttention. Keras 2 (2.5) and 3.
//!
//! keras/src/layers/attention/multi_head_attention.py: query, key and value are projected by EinsumDense layers to
//! `[batch, T, heads, dim]`, the result by one more. Without dropout and without returned scores Keras 3 calls
//! `dot_product_attention`; else scores of `[batch, heads, T, S]` are materialised. A gate (3.12) is one projection more.

use super::LayerSpec;
use super::einsum_dense::projection;
use super::projected::Projected;
use crate::layer::{Call, Keras, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{Dim, OpError};
use serde::Deserialize;

/// Attention over several heads.
#[derive(Clone, Debug, Deserialize)]
pub struct MultiHeadAttention {
    /// Heads.
    #[serde(deserialize_with = "crate::config::positive")]
    pub num_heads: u64,
    /// Elements of a head's query and key.
    #[serde(deserialize_with = "crate::config::positive")]
    pub key_dim: u64,
    /// Elements of a head's value; the key's where it is not given.
    #[serde(default, deserialize_with = "crate::config::positive_or_none")]
    pub value_dim: Option<u64>,
    /// The fraction of scores that is dropped.
    #[serde(default, deserialize_with = "crate::config::rate")]
    pub dropout: f64,
    /// Whether the projections have biases.
    #[serde(default = "super::yes")]
    pub use_bias: bool,
    /// The last axes of the output; the query's where it is not given.
    #[serde(default, deserialize_with = "shape")]
    pub output_shape: Option<Vec<u64>>,
    /// The axes that are attended over; all but the first and the last where it is not given.
    #[serde(default, deserialize_with = "axes")]
    pub attention_axes: Option<Vec<i64>>,
    /// Whether the result is gated.
    #[serde(default)]
    pub use_gate: bool,
    /// How many keys before its own a query sees.
    #[serde(default, deserialize_with = "crate::config::positive_or_none")]
    pub sliding_window: Option<u64>,
    /// Whether the fused kernel is wanted.
    #[serde(default)]
    pub flash_attention: Option<bool>,
}

fn shape<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u64>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Shape {
        One(u64),
        Many(Vec<u64>),
        None,
    }
    Ok(match Shape::deserialize(deserializer)? {
        Shape::One(n) => Some(vec![n]),
        Shape::Many(dims) => Some(dims).filter(|d| !d.is_empty()),
        Shape::None => None,
    })
}

fn axes<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<i64>>, D::Error> {
    Ok(super::axes_or_none(deserializer)?.filter(|axes| !axes.is_empty()))
}

/// How it is found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &["MultiHeadAttention"],
    keras: &[2, 3],
    build: |s| boxed(s.read::<MultiHeadAttention>()?),
}];

/// Query, value and key of a call: the key is the value where it is not given.
pub(super) fn operands<'a>(call: &Call<'_>, inputs: &'a [Spec]) -> Result<[&'a Spec; 3], OpError> {
    let find = |position: usize, name: &str, or: Option<usize>| {
        let at = call.arguments.tensor(position, name).or(or);
        at.map(|i| spec::input_from_rank(inputs, i, 2)).transpose()
    };
    let query = find(0, "query", Some(0))?.ok_or(OpError::MissingInput { index: 0 })?;
    let value = find(1, "value", Some(1))?.ok_or(OpError::MissingInput { index: 1 })?;
    let key = find(2, "key", None)?.unwrap_or(value);
    Ok([query, value, key])
}

/// The variables of a projection inside of the layer, named below it; the projection may have a policy of its own.
pub(super) fn inside(
    call: &Call<'_>,
    name: &str,
    kernel: Vec<u64>,
    reduced: &[bool],
    ones: usize,
    bias: Option<Vec<u64>>,
) -> Result<impl Iterator<Item = Weight> + use<>, OpError> {
    let facts = call.part(name);
    let weights = projection(&Call { facts: &facts, ..*call }, kernel, reduced, ones, bias, None)?;
    let prefix = format!("{name}/");
    Ok(weights.into_iter().map(move |w| Weight { name: format!("{prefix}{}", w.name), ..w }))
}

/// Which tensors of the call are query, key and value.
pub(super) fn places(call: &Call<'_>, tensors: usize) -> [usize; 3] {
    let at = |position, name| call.arguments.tensor(position, name);
    let value = at(1, "value").unwrap_or(1.min(tensors.saturating_sub(1)));
    [at(0, "query").unwrap_or(0), at(2, "key").unwrap_or(value), value]
}

impl MultiHeadAttention {
    fn projected(&self) -> Projected {
        Projected {
            heads: [self.num_heads; 3],
            dims: [self.key_dim, self.key_dim, self.value_dim.unwrap_or(self.key_dim)],
            gate: self.use_gate,
            bias: self.use_bias,
            dropout: self.dropout,
            turned: false,
            axes: self.attention_axes.clone(),
            windowed: self.sliding_window.is_some(),
        }
    }

    fn out(&self, query: &Spec) -> Result<Vec<u64>, OpError> {
        match &self.output_shape {
            Some(dims) => Ok(dims.clone()),
            None => Ok(vec![spec::number(query.last()?)?]),
        }
    }
}

impl Layer for MultiHeadAttention {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let [query, value, key] = operands(call, inputs)?;
        let value_dim = self.value_dim.unwrap_or(self.key_dim);
        let mut weights = Vec::new();
        let mut project = |name: &str, x: &Spec, dim: u64| {
            let kernel = vec![spec::number(x.last()?)?, self.num_heads, dim];
            let bias = self.use_bias.then(|| vec![self.num_heads, dim]);
            weights.extend(inside(call, name, kernel, &[true, false, false], x.rank() - 1, bias)?);
            Ok::<(), OpError>(())
        };
        project("query", query, self.key_dim)?;
        project("key", key, self.key_dim)?;
        if self.use_gate {
            project("gate", query, value_dim)?;
        }
        project("value", value, value_dim)?;
        let out = self.out(query)?;
        let kernel = [&[self.num_heads, value_dim][..], &out].concat();
        let reduced: Vec<bool> = (0..kernel.len()).map(|i| i < 2).collect();
        let bias = self.use_bias.then_some(out);
        weights.extend(inside(call, "attention_output", kernel, &reduced, query.rank() - 1, bias)?);
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let [query, _, key] = operands(call, inputs)?;
        let mut dims: Vec<Dim> = query.dims().to_vec();
        if let Some(out) = &self.output_shape {
            dims.pop();
            dims.extend(out.iter().copied().map(Dim::Known));
        }
        let mut outputs = vec![call.output(dims)];
        if call.arguments.flag("return_attention_scores") == Some(true) {
            // Keras 3 reports the query's length for both axes.
            let [batch, length] = [query.dims()[0].clone(), query.dims()[1].clone()];
            let other = if call.facts.keras == Keras::V3 { &length } else { &key.dims()[1] }.clone();
            outputs.push(call.output([batch, Dim::Known(self.num_heads), length, other]));
        }
        Ok(outputs)
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        self.projected().aten(run, places(run.call, run.tensors()));
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        self.projected().run(run, places(run.call, run.tensors()));
    }
}
