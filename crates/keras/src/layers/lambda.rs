//! Lambda. Keras 2 and 3.
//!
//! keras/src/layers/core/lambda_layer.py: Python code that the file holds as bytes, which nobody runs here. Its output is what
//! `output_shape` says, else what the file recorded where it is read. It has no variables.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::{Source, boxed};
use crate::spec::Spec;
use memfit_graph::{Dim, OpError};
use serde_json::Value;

/// Python code.
#[derive(Clone, Debug)]
pub struct Lambda {
    /// The shape without the batch, where it is written down.
    pub output_shape: Option<Vec<Option<u64>>>,
}

fn read(source: &Source<'_>) -> Lambda {
    let shape = source.object.config.get("output_shape").and_then(Value::as_array);
    let is_shape = |dims: &&Vec<Value>| dims.iter().all(|d| d.is_null() || d.is_u64());
    Lambda { output_shape: shape.filter(is_shape).map(|dims| dims.iter().map(Value::as_u64).collect()) }
}

/// How it is found.
pub const SPECS: &[LayerSpec] =
    &[LayerSpec { classes: &["Lambda"], keras: &[2, 3], build: |s| boxed(read(s)) }];

impl Layer for Lambda {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let Some(shape) = &self.output_shape else { return Ok(Vec::new()) };
        let batch = inputs.first().and_then(|x| x.dims().first().cloned()).unwrap_or(Dim::Known(1));
        let open = |(i, n): (usize, &Option<u64>)| {
            n.map_or_else(|| Dim::symbol(&format!("{}_d{}", call.facts.name, i + 1)), Dim::Known)
        };
        Ok(vec![call.output([batch].into_iter().chain(shape.iter().enumerate().map(open)))])
    }
}
