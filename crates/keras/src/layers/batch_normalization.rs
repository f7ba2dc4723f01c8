//! BatchNormalization and SyncBatchNormalization. Keras 2 and 3.
//!
//! keras/src/layers/normalization/batch_normalization.py: gamma and beta where `scale` and `center` say so, and two statistics that are
//! not trained. A frozen layer normalizes with the statistics and does not change them. Keras 3 computes in float32 and in
//! pieces. Keras 2 (tf-keras 2.21, `build` and `_fused_batch_norm`) runs `FusedBatchNormV3` over the one axis of the channels in
//! ranks 4 and 5, frozen or not: what is not scaled or centred gets a constant.

use super::LayerSpec;
use crate::layer::{Call, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::kernels::{Flow, Wire};
use memfit_graph::{DType, Dim, OpError};
use serde::Deserialize;
use serde_json::Value;

/// A batch norm.
#[derive(Clone, Debug, Deserialize)]
pub struct BatchNormalization {
    /// The axis or axes that keep statistics of their own.
    #[serde(default = "super::last_axis", deserialize_with = "super::axes")]
    pub axis: Vec<i64>,
    /// What the old averages weigh.
    #[serde(default, deserialize_with = "crate::config::number")]
    pub momentum: f64,
    /// Added to the variance.
    #[serde(default, deserialize_with = "crate::config::number")]
    pub epsilon: f64,
    /// Whether there is a beta.
    #[serde(default = "super::yes")]
    pub center: bool,
    /// Whether there is a gamma.
    #[serde(default = "super::yes")]
    pub scale: bool,
    /// Whether renormalization keeps three more statistics (Keras 2).
    #[serde(default)]
    pub renorm: bool,
    /// Keras 2's choice of kernel; `None` where Keras chooses. It writes it into no file, nor `synchronized`.
    #[serde(default)]
    pub fused: Option<bool>,
    /// Splits of the batch that are normalized apart (Keras 2).
    #[serde(default)]
    pub virtual_batch_size: Value,
    /// Whether statistics are those of all replicas (Keras 2).
    #[serde(default)]
    pub synchronized: bool,
}

/// How it is found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &[
        "BatchNormalization",
        "BatchNormalizationV1",
        "BatchNormalizationV2",
        "SyncBatchNormalization",
    ],
    keras: &[2, 3],
    build: |s| {
        let read: BatchNormalization = s.read()?;
        let synchronized = read.synchronized || s.class() == "SyncBatchNormalization";
        boxed(BatchNormalization { synchronized, ..read })
    },
}];

impl BatchNormalization {
    /// Whether Keras 2 runs its kernel on a tensor of this rank.
    fn is_fused(&self, rank: usize) -> bool {
        let over_channels =
            matches!(&self.axis[..], [axis] if *axis == 1 || super::position(rank, *axis) + 1 == rank);
        let is_plain = !self.synchronized && !self.renorm && self.virtual_batch_size.is_null();
        self.fused != Some(false) && is_plain && over_channels && matches!(rank, 4 | 5)
    }

    fn shape(&self, x: &Spec) -> Result<Vec<u64>, OpError> {
        let at = |axis: &i64| Ok::<Dim, OpError>(x.dims()[x.axis(*axis)?].clone());
        match &self.axis[..] {
            [one] => Ok(vec![spec::number(&at(one)?)?]),
            // Keras 2 keeps the rank of the input, with ones on the other axes.
            many => {
                let mut shape = vec![1; x.rank()];
                for axis in many {
                    shape[x.axis(*axis)?] = spec::number(&at(axis)?)?;
                }
                Ok(shape)
            }
        }
    }
}

/// Mean and variance as replicas put them together: of sums, `max(sum(x²) / n - (sum(x) / n)², 0)` (`_sync_calculate_mean_and_var`).
fn sums(flow: &mut Flow, x: Wire, shape: &[u64]) -> (Wire, Wire) {
    flow.within("moments", |flow| {
        let sum = flow.reduce("Sum", x, shape);
        let square = flow.unary("Square", x);
        let squares = flow.reduce("Sum", square, shape);
        let mean = flow.scaled("DivNoNan", sum);
        let of_squares = flow.scaled("DivNoNan", squares);
        let square = flow.unary("Square", mean);
        let difference = flow.binary("Sub", of_squares, square);
        (mean, flow.clip_side("Maximum", difference))
    })
}

impl Layer for BatchNormalization {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let shape = self.shape(spec::input(inputs, 0)?)?;
        let mut weights = Vec::new();
        if self.scale {
            weights.push(call.weight("gamma", shape.clone()));
        }
        if self.center {
            weights.push(call.weight("beta", shape.clone()));
        }
        weights.push(call.state("moving_mean", shape.clone()));
        weights.push(call.state("moving_variance", shape.clone()));
        if self.renorm {
            weights.push(call.state("moving_stddev", shape.clone()));
            weights.push(call.state("renorm_mean", shape.clone()));
            weights.push(call.state("renorm_stddev", shape));
        }
        Ok(super::in_float32(call, weights))
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        Ok(vec![call.output(spec::input(inputs, 0)?.dims().iter().cloned())])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let x = run.widened(0);
        if self.renorm {
            return run.not_modelled();
        }
        let mut per_channel = x.shape.clone();
        let kept: Vec<usize> = self.axis.iter().map(|axis| super::position(x.rank(), *axis)).collect();
        for (i, dim) in per_channel.iter_mut().enumerate() {
            *dim = if kept.contains(&i) { *dim } else { 1 };
        }
        let scale = self.scale.then_some(0);
        let offset = self.center.then_some(usize::from(self.scale));
        let y = if run.trains() {
            run.batch_norm(&x, &per_channel, scale, offset)
        } else {
            let first = usize::from(self.scale) + usize::from(self.center);
            let [mean, variance] = [first, first + 1].map(|k| run.own_weight(k).reshape(run.l, &per_channel));
            run.normalized(&x, [&mean, &variance], scale, offset)
        };
        let y = run.narrowed(&y);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let shape = run.in_shape(0).to_vec();
        let mut per_channel = vec![1; shape.len()];
        for axis in &self.axis {
            let at = if *axis < 0 {
                shape.len().checked_add_signed(*axis as isize)
            } else {
                usize::try_from(*axis).ok()
            };
            if let Some((to, from)) = at.and_then(|at| Some((per_channel.get_mut(at)?, shape.get(at)?))) {
                *to = *from;
            }
        }
        let mut k = 0;
        let mut next = |run: &mut Run<'_, '_>, given: bool| {
            given.then(|| {
                k += 1;
                run.weight_f32(k - 1)
            })
        };
        let scale = next(run, self.scale);
        let offset = next(run, self.center);
        let training = run.trains();
        if !run.is_keras3() && self.is_fused(shape.len()) {
            let channels: Vec<u64> = per_channel.iter().copied().filter(|d| *d != 1).collect();
            let [scale, offset] =
                [scale, offset].map(|given| given.unwrap_or_else(|| run.constant(&channels, DType::Float32)));
            let given: Vec<Wire> = (0..2).filter_map(|_| next(run, !training)).collect();
            let x = run.x(0);
            let y = run.fused_batch_norm(x, scale, offset, &given);
            return run.finish(y);
        }
        let x = run.x_f32(0);
        let statistics = if training {
            // Without the axes of one element that they are over.
            let channels: Vec<u64> = per_channel.iter().copied().filter(|d| *d != 1).collect();
            let (mean, variance) = match self.synchronized && !run.is_keras3() {
                true => sums(run, x, &per_channel),
                false => run.moments(x, &per_channel),
            };
            (run.view("Squeeze", mean, &channels), run.view("Squeeze", variance, &channels))
        } else {
            let (mean, variance) = (next(run, true), next(run, true));
            let Some(statistics) = mean.zip(variance) else { return run.finish(x) };
            statistics
        };
        // What belongs to the last axis broadcasts as it is.
        if shape.last() == per_channel.last() && per_channel.iter().filter(|d| **d != 1).count() == 1 {
            per_channel.retain(|d| *d != 1);
        }
        let (mean, variance) = statistics;
        let statistics =
            (run.view("Reshape", mean, &per_channel), run.view("Reshape", variance, &per_channel));
        let [scale, offset] = [scale, offset].map(|w| w.map(|w| run.view("Reshape", w, &per_channel)));
        let y = run.normalize(x, statistics, scale, offset);
        let y = run.to_compute(y);
        run.finish(y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keras_2_has_one_kernel_over_the_channels_of_images_alone() {
        let read = |config: Value| serde_json::from_value::<BatchNormalization>(config).unwrap();
        for (config, rank, fused) in [
            (json!({}), 4, true),
            (json!({"scale": false, "center": false}), 4, true),
            (json!({"axis": [4]}), 5, true),
            (json!({"axis": 1}), 4, true),
            (json!({}), 2, false),
            (json!({"axis": 2}), 5, false),
            (json!({"axis": [1, 3]}), 4, false),
            (json!({"fused": false}), 4, false),
            (json!({"renorm": true}), 4, false),
            (json!({"synchronized": true}), 4, false),
            (json!({"virtual_batch_size": 4}), 4, false),
        ] {
            assert_eq!(read(config.clone()).is_fused(rank), fused, "{config} {rank}");
        }
    }
}
