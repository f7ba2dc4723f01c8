//! LayerNormalization and RMSNormalization. Keras 2 and 3; the second Keras 3.
//!
//! keras/src/layers/normalization/layer_normalization.py, rms_normalization.py: parameters of the normalized axes' shape. With
//! `rms_scaling` there is a gamma and no beta.

use super::LayerSpec;
use crate::layer::{Call, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::OpError;
use serde::Deserialize;

/// A norm over axes of each sample.
#[derive(Clone, Debug, Deserialize)]
pub struct LayerNormalization {
    /// The axes.
    #[serde(default = "super::last_axis", deserialize_with = "super::axes")]
    pub axis: Vec<i64>,
    /// Whether there is a beta.
    #[serde(default = "super::yes")]
    pub center: bool,
    /// Whether there is a gamma.
    #[serde(default = "super::yes")]
    pub scale: bool,
    /// Whether it only divides by the root mean square, in float32.
    #[serde(default)]
    pub rms_scaling: bool,
}

/// A norm by the root mean square.
#[derive(Clone, Debug, Deserialize)]
pub struct RmsNormalization {
    /// The axes.
    #[serde(default = "super::last_axis", deserialize_with = "super::axes")]
    pub axis: Vec<i64>,
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec {
        classes: &["LayerNormalization"],
        keras: &[2, 3],
        build: |s| boxed(s.read::<LayerNormalization>()?),
    },
    LayerSpec {
        classes: &["RMSNormalization"],
        keras: &[3],
        build: |s| boxed(s.read::<RmsNormalization>()?),
    },
];

/// The sizes of the axes in ascending order.
fn sizes(x: &Spec, axes: &[i64]) -> Result<Vec<u64>, OpError> {
    let mut axes = axes.iter().map(|a| x.axis(*a)).collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    axes.iter().map(|a| spec::number(&x.dims()[*a])).collect()
}

impl Layer for LayerNormalization {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let shape = sizes(spec::input(inputs, 0)?, &self.axis)?;
        let mut weights = Vec::new();
        if self.scale || self.rms_scaling {
            weights.push(call.weight("gamma", shape.clone()));
        }
        if self.center && !self.rms_scaling {
            weights.push(call.weight("beta", shape));
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        Ok(vec![call.output(spec::input(inputs, 0)?.dims().iter().cloned())])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let x = run.widened(0);
        let mut rows = x.shape.clone();
        super::ones_at(&mut rows, &self.axis);
        if self.rms_scaling {
            let y = run.divided_by_root(&x, &rows);
            let y = run.narrowed(&y);
            return run.finish(&y);
        }
        let y = run.layer_norm(&x, &rows, false);
        let y = run.narrowed(&y);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let x = run.x_f32(0);
        let mut rows = run.shape(x).to_vec();
        super::ones_at(&mut rows, &self.axis);
        let mut k = 0;
        let mut next = |run: &mut Run<'_, '_>, given: bool| {
            given.then(|| {
                k += 1;
                run.weight_f32(k - 1)
            })
        };
        let scale = next(run, self.scale || self.rms_scaling);
        let offset = next(run, self.center && !self.rms_scaling);
        let y = if self.rms_scaling {
            // ops/nn.py, `_layer_normalization`: by the deviation, of what is not centred.
            let variance = run.variance(x, &rows, &rows);
            run.divided_by_root(x, variance, scale)
        } else {
            run.layer_norm(x, &rows, scale, offset)
        };
        let y = run.to_compute(y);
        run.finish(y);
    }
}

impl Layer for RmsNormalization {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        Ok(vec![call.weight("scale", sizes(spec::input(inputs, 0)?, &self.axis)?)])
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        Ok(vec![call.output(spec::input(inputs, 0)?.dims().iter().cloned())])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let x = run.widened(0);
        let mut rows = x.shape.clone();
        super::ones_at(&mut rows, &self.axis);
        let y = run.layer_norm(&x, &rows, true);
        let y = run.narrowed(&y);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let x = run.x_f32(0);
        let mut rows = run.shape(x).to_vec();
        super::ones_at(&mut rows, &self.axis);
        let scale = run.weight_f32(0);
        let y = run.rms_norm(x, &rows, Some(scale));
        let y = run.to_compute(y);
        run.finish(y);
    }
}
