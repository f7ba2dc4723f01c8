//! Pipeline. Keras 3.
//!
//! keras/src/layers/preprocessing/pipeline.py: layers of preprocessing one after the other, which have no variables that are trained.

use super::LayerSpec;
use crate::arguments::Arguments;
use crate::layer::{Call, Configured, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::Spec;
use crate::torch::Torch;
use memfit_graph::{OpError, Shape};

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

    fn calls(&self, call: &Call<'_>, inputs: &[Spec], most: u64) -> u64 {
        let (mut calls, mut flow) = (0_u64, inputs.to_vec());
        for layer in &self.layers {
            calls = calls.saturating_add(layer.calls(call.arguments, &flow, most));
            flow = layer.outputs(call.arguments, &flow).unwrap_or_default();
        }
        calls
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let mut flow = run.x(0);
        let mut spec = Spec::new(Shape::from(&flow.shape[..]), run.dtype());
        for layer in &self.layers {
            let made = layer.output(&Arguments::plain(1), &[spec]);
            let Some((next, shape)) = made.ok().and_then(|next| Some((next.clone(), next.shape.upper()?)))
            else {
                return run.not_modelled();
            };
            let Some(y) = run.inner(layer, &[flow], 0, &shape) else { return run.not_modelled() };
            (flow, spec) = (y, next);
        }
        run.finish(&flow);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let mut flow = run.x(0);
        for layer in &self.layers {
            let Some(y) = run.inner(layer, &[flow], 0).first().copied() else { return run.not_modelled() };
            flow = y;
        }
        run.finish(flow);
    }
}
