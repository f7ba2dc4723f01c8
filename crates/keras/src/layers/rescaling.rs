//! Rescaling. Keras 2 and 3.
//!
//! keras/src/layers/preprocessing/rescaling.py: `x * scale + offset` in the policy's dtype, integers included.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::OpError;

/// A product and a sum with constants.
#[derive(Clone, Copy, Debug)]
pub struct Rescaling;

/// How it is found.
pub const SPECS: &[LayerSpec] =
    &[LayerSpec { classes: &["Rescaling"], keras: &[2, 3], build: |_| boxed(Rescaling) }];

impl Layer for Rescaling {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        Ok(vec![call.output(spec::input(inputs, 0)?.dims().iter().cloned())])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let x = run.x(0);
        let y = x.scale(run.l, "mul").scale(run.l, "add");
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let x = run.x(0);
        let scaled = run.scaled("Mul", x);
        let y = run.shifted("AddV2", scaled);
        run.finish(y);
    }
}
