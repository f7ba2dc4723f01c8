//! GroupQueryAttention (class `GroupedQueryAttention`). Keras 3.
//!
//! keras/src/layers/attention/grouped_query_attention.py: fewer heads of key and value than of the query; they are repeated before the
//! product.

use super::LayerSpec;
use super::multi_head_attention::{inside, operands, places};
use super::projected::Projected;
use crate::layer::{Call, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{Dim, OpError};
use serde::Deserialize;

/// Attention whose keys and values serve several queries.
#[derive(Clone, Debug, Deserialize)]
pub struct GroupedQueryAttention {
    /// Elements of a head.
    #[serde(deserialize_with = "crate::config::positive")]
    pub head_dim: u64,
    /// Heads of the query.
    pub num_query_heads: u64,
    /// Heads of key and value.
    #[serde(deserialize_with = "crate::config::positive")]
    pub num_key_value_heads: u64,
    /// The fraction of scores that is dropped.
    #[serde(default, deserialize_with = "crate::config::rate")]
    pub dropout: f64,
    /// Whether the projections have biases.
    #[serde(default = "super::yes")]
    pub use_bias: bool,
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

/// How it is found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &["GroupQueryAttention", "GroupedQueryAttention"],
    keras: &[3],
    build: |s| boxed(s.read::<GroupedQueryAttention>()?),
}];

impl GroupedQueryAttention {
    fn projected(&self) -> Projected {
        Projected {
            heads: [self.num_query_heads, self.num_key_value_heads, self.num_key_value_heads],
            dims: [self.head_dim; 3],
            gate: self.use_gate,
            bias: self.use_bias,
            dropout: self.dropout,
            turned: true,
            axes: None,
            windowed: self.sliding_window.is_some(),
        }
    }
}

impl Layer for GroupedQueryAttention {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let [query, value, key] = operands(call, inputs)?;
        let mut weights = Vec::new();
        let mut project = |name: &str, x: &Spec, heads: u64| {
            let kernel = vec![spec::number(x.last()?)?, heads, self.head_dim];
            let bias = self.use_bias.then(|| vec![heads, self.head_dim]);
            weights.extend(inside(call, name, kernel, &[true, false, false], x.rank() - 1, bias)?);
            Ok::<(), OpError>(())
        };
        project("query", query, self.num_query_heads)?;
        project("key", key, self.num_key_value_heads)?;
        if self.use_gate {
            project("gate", query, self.num_query_heads)?;
        }
        project("value", value, self.num_key_value_heads)?;
        let features = spec::number(query.last()?)?;
        let kernel = vec![self.num_query_heads, self.head_dim, features];
        let bias = self.use_bias.then(|| vec![features]);
        let ones = query.rank() - 1;
        weights.extend(inside(call, "attention_output", kernel, &[true, true, false], ones, bias)?);
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let [query, value, key] = operands(call, inputs)?;
        if query.last()?.known() != value.last()?.known() {
            return Err(OpError::mismatch(
                "query and value with as many features",
                format!("{} and {}", query.shape, value.shape),
            ));
        }
        let mut outputs = vec![call.output(query.dims().iter().cloned())];
        if call.arguments.flag("return_attention_scores") == Some(true) {
            let [batch, rows, columns] = [&query.dims()[0], &query.dims()[1], &key.dims()[1]].map(Dim::clone);
            outputs.push(call.output([batch, Dim::Known(self.num_query_heads), rows, columns]));
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
