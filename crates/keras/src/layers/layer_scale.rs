//! LayerScale and StochasticDepth of keras.applications' ConvNeXt. Keras 2 and 3.
//!
//! keras/src/applications/convnext.py: a trained factor for each channel; a mask for each sample of a residual branch.

use super::LayerSpec;
use crate::layer::{Call, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::OpError;
use serde::Deserialize;

/// A factor for each channel.
#[derive(Clone, Debug, Deserialize)]
pub struct LayerScale {
    /// How many channels.
    pub projection_dim: u64,
}

/// A mask for each sample.
#[derive(Clone, Debug, Deserialize)]
pub struct StochasticDepth {
    /// The fraction of samples whose branch is dropped.
    #[serde(default)]
    pub drop_path_rate: f64,
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec { classes: &["LayerScale"], keras: &[2, 3], build: |s| boxed(s.read::<LayerScale>()?) },
    LayerSpec {
        classes: &["StochasticDepth"],
        keras: &[2, 3],
        build: |s| boxed(s.read::<StochasticDepth>()?),
    },
];

impl Layer for LayerScale {
    fn weights(&self, call: &Call<'_>, _: &[Spec]) -> Result<Vec<Weight>, OpError> {
        Ok(vec![call.weight("gamma", [self.projection_dim])])
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        Ok(vec![call.output(spec::input(inputs, 0)?.dims().iter().cloned())])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (x, gamma) = (run.x(0), run.weight(0));
        let y = run.mul(&x, &gamma);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let (x, gamma) = (run.x(0), run.weight(0));
        let y = run.binary("Mul", x, gamma);
        run.finish(y);
    }
}

impl Layer for StochasticDepth {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        Ok(vec![call.seen(spec::input(inputs, 0)?)])
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        // inputs / keep * floor(keep + uniform), one number for each sample
        let x = run.x(0);
        if !run.compute.training || self.drop_path_rate == 0.0 {
            return run.finish(x);
        }
        let mut each = vec![1; run.shape(x).len()];
        each.first_mut().into_iter().for_each(|d| *d = run.in_shape(0).first().copied().unwrap_or(1));
        let dtype = run.dtype(x);
        let uniform = run.make("StatelessRandomUniformV2", &[], &each, dtype, None);
        let kept = run.unary("Floor", uniform);
        let scaled = run.scaled("RealDiv", x);
        let y = run.binary("Mul", scaled, kept);
        run.finish(y);
    }
}
