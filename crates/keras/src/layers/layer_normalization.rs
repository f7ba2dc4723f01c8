//! LayerNormalization and RMSNormalization. Keras 2 and 3; the second Keras 3.
//!
//! keras/src/layers/normalization/layer_normalization.py, rms_normalization.py: parameters of the normalized axes' shape. With
//! `rms_scaling` there is a gamma and no beta. Keras 2 runs the fused batch norm over the samples where the axes are the last ones and
//! epsilon is large enough (tf_keras/src/layers/normalization/layer_normalization.py, `_fused_can_be_used`), then scales and shifts.

use super::LayerSpec;
use crate::config;
use crate::layer::{Call, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{DType, OpError, elements};
use serde::{Deserialize, Deserializer};

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
    /// What is added to the variance.
    #[serde(default = "thousandth", deserialize_with = "epsilon")]
    pub epsilon: f64,
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

fn thousandth() -> f64 {
    1e-3
}

/// Keras 3 reads it when it first adds it, so that a file may hold anything that might be a number.
fn epsilon<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(config::number_or_none(deserializer)?.unwrap_or_else(thousandth))
}

/// The smallest epsilon of the fused kernel.
const LEAST: f64 = 1.001e-5;

/// The sizes of the axes in ascending order.
fn sizes(x: &Spec, axes: &[i64]) -> Result<Vec<u64>, OpError> {
    let mut axes = axes.iter().map(|a| x.axis(*a)).collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    axes.iter().map(|a| spec::number(&x.dims()[*a])).collect()
}

impl LayerNormalization {
    /// Where the axes begin of a tensor of this rank that Keras 2 runs fused.
    fn fused(&self, rank: usize) -> Option<usize> {
        let first = self.axis.iter().map(|axis| super::position(rank, *axis)).min()?;
        (rank - first == self.axis.len() && self.epsilon >= LEAST).then_some(first)
    }

    /// Keras 2's: fused, or composed as a batch norm is.
    fn second(&self, run: &mut Run<'_, '_>) {
        let shape = run.in_shape(0).to_vec();
        let mut each = shape.clone();
        super::ones_at(&mut each, &self.axis);
        let fused = self.fused(shape.len());
        // What is normalised together; of the last axis alone it broadcasts as it is.
        let own: Vec<u64> =
            each.iter().zip(&shape).map(|(one, all)| if one == all { 1 } else { *all }).collect();
        let own =
            if self.axis.len() > 1 { &own[..] } else { own.last().map_or(&[][..], std::slice::from_ref) };
        let mut k = 0;
        let mut next = |run: &mut Run<'_, '_>, given: bool| {
            given.then(|| {
                k += 1;
                let weight = if fused.is_some() { run.weight(k - 1) } else { run.weight_f32(k - 1) };
                if run.made(weight).elements() == elements(own) {
                    run.view("Reshape", weight, own)
                } else {
                    weight
                }
            })
        };
        let (scale, offset) = (next(run, self.scale), next(run, self.center));
        let Some(first) = fused else {
            let x = run.x_f32(0);
            let moments = run.moments(x, &each);
            let y = run.normalize(x, moments, scale, offset);
            let y = run.to_compute(y);
            return run.finish(y);
        };
        let x = run.x(0);
        let (samples, all) = (elements(&shape[..first]), elements(&shape[first..]));
        let flat = run.view("Reshape", x, &[1, samples, all, 1]);
        // Constants that come of a shape are not there before the tensor is (`ConstantFolding::MaterializeShapes`).
        let [ones, zeros] = [0; 2].map(|_| {
            let constant = run.constant(&[samples], DType::Float32);
            run.wait(constant, x);
            constant
        });
        let y = run.fused_batch_norm(flat, ones, zeros, &[]);
        let mut y = run.view("Reshape", y, &shape);
        if let Some(scale) = scale {
            y = run.binary("Mul", y, scale);
        }
        if let Some(offset) = offset {
            y = run.binary("AddV2", y, offset);
        }
        run.finish(y);
    }
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
        if !run.is_keras3() {
            return self.second(run);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keras_2_has_one_kernel_over_the_last_axes_alone() {
        for (config, fused) in [
            (json!({"axis": [-1]}), Some(3)),
            (json!({"axis": [1, 2, 3]}), Some(1)),
            (json!({"axis": [1]}), None),
            (json!({"axis": [1, 3]}), None),
            (json!({"axis": [3], "epsilon": 1e-6}), None),
        ] {
            let layer: LayerNormalization = serde_json::from_value(config.clone()).unwrap();
            assert_eq!(layer.fused(4), fused, "{config}");
        }
    }
}
