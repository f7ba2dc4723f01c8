//! PReLU. Keras 2 and 3.
//!
//! keras/src/layers/activations/prelu.py: a slope for each element but the batch, one along the shared axes.

use super::LayerSpec;
use crate::activation::Activation;
use crate::layer::{Call, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::OpError;
use serde::Deserialize;

/// ReLU with trained slopes.
#[derive(Clone, Debug, Deserialize)]
pub struct PRelu {
    /// Axes, the batch counted, along which there is one slope.
    #[serde(default)]
    pub shared_axes: Option<Vec<u64>>,
}

/// How it is found.
pub const SPECS: &[LayerSpec] =
    &[LayerSpec { classes: &["PReLU"], keras: &[2, 3], build: |s| boxed(s.read::<PRelu>()?) }];

impl Layer for PRelu {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let x = spec::input_from_rank(inputs, 0, 1)?;
        let shared = self.shared_axes.as_deref().unwrap_or(&[]);
        let dims = (1_u64..).zip(&x.dims()[1..]);
        let dims = dims.map(|(axis, d)| if shared.contains(&axis) { Ok(1) } else { spec::number(d) });
        Ok(vec![call.weight("alpha", dims.collect::<Result<Vec<_>, _>>()?)])
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        Ok(vec![call.seen(spec::input(inputs, 0)?)])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (x, alpha) = (run.x(0), run.weight(0));
        let positive = run.activate(&Activation::Relu, &x);
        let slope = alpha.scale(run.l, "neg");
        let negative = x.scale(run.l, "neg");
        let rest = run.activate(&Activation::Relu, &negative);
        let scaled = run.mul(&slope, &rest);
        let y = run.add(&positive, &scaled);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        // relu(x) - alpha * relu(-x)
        let (x, alpha) = (run.x(0), run.weight(0));
        let positive = run.unary("Relu", x);
        let slope = run.unary("Neg", alpha);
        let negative = run.unary("Neg", x);
        let rest = run.unary("Relu", negative);
        let scaled = run.binary("Mul", slope, rest);
        let y = run.binary("AddV2", positive, scaled);
        run.finish(y);
    }
}
