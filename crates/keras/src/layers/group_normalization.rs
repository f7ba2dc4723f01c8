//! GroupNormalization. Keras 2 and 3.
//!
//! keras/src/layers/normalization/group_normalization.py: statistics for each group of channels of each sample. Keras 2 weights them by a mask
//! of ones, which are folded (tf.nn.weighted_moments); unlike `tf.nn.moments` the differences' gradient flows to the mean too.

use super::LayerSpec;
use crate::layer::{Call, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::OpError;
use serde::Deserialize;

/// A norm over groups of channels.
#[derive(Clone, Debug, Deserialize)]
pub struct GroupNormalization {
    /// How many groups; minus one for one a channel.
    #[serde(default = "groups", deserialize_with = "crate::config::groups")]
    pub groups: i64,
    /// The axis of the channels.
    #[serde(default = "super::minus_one")]
    pub axis: i64,
    /// Whether there is a beta.
    #[serde(default = "super::yes")]
    pub center: bool,
    /// Whether there is a gamma.
    #[serde(default = "super::yes")]
    pub scale: bool,
}

fn groups() -> i64 {
    32
}

/// How it is found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &["GroupNormalization"],
    keras: &[2, 3],
    build: |s| boxed(s.read::<GroupNormalization>()?),
}];

impl Layer for GroupNormalization {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let x = spec::input(inputs, 0)?;
        let channels = spec::number(&x.dims()[x.axis(self.axis)?])?;
        if let Ok(groups) = u64::try_from(self.groups)
            && (groups == 0 || !channels.is_multiple_of(groups))
        {
            return Err(OpError::mismatch(format!("groups that divide {channels} channels"), groups));
        }
        let mut weights = Vec::new();
        if self.scale {
            weights.push(call.weight("gamma", [channels]));
        }
        if self.center {
            weights.push(call.weight("beta", [channels]));
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        Ok(vec![call.output(spec::input(inputs, 0)?.dims().iter().cloned())])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (x, shape) = (run.x(0), run.out_shape());
        let axis = super::position(shape.len(), self.axis);
        let channels = shape.get(axis).copied().unwrap_or(1);
        let groups = u64::try_from(self.groups).unwrap_or(channels).max(1);
        let mut grouped = shape.to_vec();
        grouped.get_mut(axis).into_iter().for_each(|d| *d = channels.checked_div(groups).unwrap_or(1));
        grouped.insert(axis.min(grouped.len()), groups);
        let kept = |wanted: &[usize]| -> Vec<u64> {
            let size = |(i, d): (usize, &u64)| if wanted.contains(&i) { *d } else { 1 };
            grouped.iter().enumerate().map(size).collect()
        };
        let (per_group, per_channel) = (kept(&[0, axis]), kept(&[axis, axis + 1]));
        let x = x.reshape(run.l, &grouped);
        let wide = run.wide(&x);
        let y = run.group_norm(
            &wide,
            &per_group,
            &per_channel,
            [self.scale.then_some(0), self.center.then_some(usize::from(self.scale))],
        );
        let y = run.narrowed(&y);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let x = run.x_f32(0);
        let shape = run.shape(x).to_vec();
        let axis = super::position(shape.len(), self.axis);
        let channels = shape.get(axis).copied().unwrap_or(1);
        let groups = u64::try_from(self.groups).unwrap_or(channels).max(1);
        let batch = shape.first().copied().unwrap_or(1);
        let inner = run.made(x).elements().checked_div(batch.saturating_mul(groups)).unwrap_or(0);
        let width = channels.checked_div(groups).unwrap_or(1).max(1);
        let grouped = run.view("Reshape", x, &[batch, inner.checked_div(width).unwrap_or(0), groups, width]);
        let each = [batch, 1, groups, 1];
        let statistics = match run.is_keras3() {
            true => run.moments(grouped, &each),
            false => run.within("weighted_moments", |flow| {
                let sum = flow.reduce("Sum", grouped, &each);
                let mean = flow.scaled("DivNoNan", sum);
                let difference = flow.binary("SquaredDifference", grouped, mean);
                let sum = flow.reduce("Sum", difference, &each);
                (mean, flow.scaled("DivNoNan", sum))
            }),
        };
        // Scale and offset go into the statistics, which are small.
        let mut part = |given: bool, k: usize| {
            given.then(|| {
                let weight = run.weight_f32(k);
                run.view("Reshape", weight, &[1, 1, groups, width])
            })
        };
        let scale = part(self.scale, 0);
        let offset = part(self.center, usize::from(self.scale));
        let y = run.normalize(grouped, statistics, scale, offset);
        let y = run.view("Reshape", y, &shape);
        let y = run.to_compute(y);
        run.finish(y);
    }
}
