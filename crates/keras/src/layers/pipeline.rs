//! Pipeline. Keras 3.
//!
//! keras/src/layers/preprocessing/pipeline.py: layers of preprocessing one after the other.

use super::LayerSpec;
use crate::layer::{Call, Configured, Layer, Weight};
use crate::reader::boxed;
use crate::spec::Spec;
use memfit_graph::OpError;

/// Layers in a row.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// The first one first.
    pub layers: Vec<Configured>,
}

/// How it is found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &["Pipeline"],
    keras: &[3],
    build: |s| boxed(Pipeline { layers: s.inners("layers")? }),
}];

impl Layer for Pipeline {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let (mut weights, mut flow) = (Vec::new(), inputs.to_vec());
        for layer in &self.layers {
            weights.extend(layer.weights(call.arguments, &flow)?);
            flow = layer.outputs(call.arguments, &flow)?;
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        self.layers.iter().try_fold(inputs.to_vec(), |flow, layer| layer.outputs(call.arguments, &flow))
    }
}
