//! Concatenate. Keras 2 and 3.
//!
//! keras/src/layers/merging/concatenate.py: along `axis`, which counts the batch.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::OpError;
use serde::Deserialize;

/// Inputs one after the other along an axis.
#[derive(Clone, Debug, Deserialize)]
pub struct Concatenate {
    /// The axis.
    #[serde(default = "super::minus_one")]
    pub axis: i64,
}

/// How it is found.
pub const SPECS: &[LayerSpec] =
    &[LayerSpec { classes: &["Concatenate"], keras: &[2, 3], build: |s| boxed(s.read::<Concatenate>()?) }];

/// The inputs one after the other along `axis`.
pub(crate) fn joined(inputs: &[Spec], axis: i64) -> Result<Spec, OpError> {
    let first = spec::input(inputs, 0)?;
    let at = first.axis(axis)?;
    let mut total = first.clone();
    for (i, input) in inputs.iter().enumerate().skip(1) {
        if input.rank() != first.rank() {
            return Err(OpError::input(
                i,
                format!("rank {}", first.rank()),
                format!("shape {}", input.shape),
            ));
        }
        let mut dims: Vec<_> = total.dims().to_vec();
        for (axis, (have, found)) in dims.iter_mut().zip(input.dims()).enumerate() {
            if axis == at {
                *have = spec::sum(have, found)?;
            } else if have.known().is_none() {
                *have = found.clone();
            } else if found.known().is_some() && found != have {
                return Err(OpError::input(
                    i,
                    format!("{have} along axis {axis}"),
                    format!("shape {}", input.shape),
                ));
            }
        }
        total = Spec { dtype: total.dtype.promote(input.dtype), ..total.with(dims) };
    }
    Ok(total)
}

impl Layer for Concatenate {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let seen: Vec<Spec> = inputs.iter().map(|s| call.seen(s)).collect();
        Ok(vec![joined(&seen, self.axis)?])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        run.concatenate();
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let parts: Vec<_> = (0..run.tensors()).map(|i| run.x(i)).collect();
        let shape = run.out_shape(0);
        let y = run.concat(&parts, shape);
        run.finish(y);
    }
}
