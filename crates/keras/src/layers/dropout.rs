//! Dropout, SpatialDropout, AlphaDropout, GaussianDropout, GaussianNoise. Keras 2 and 3.
//!
//! keras/src/layers/regularization/*.py. All keep the shape; they differ in the noise that they draw: a mask of the input's shape,
//! a mask with one element for each channel, a normal factor or a normal summand. A rate of zero draws none.

use super::LayerSpec;
use crate::config;
use crate::layer::{Call, Keras, Layer};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{DType, OpError};
use serde::Deserialize;
use serde_json::Value;

/// The noise that is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Noise {
    /// A mask for each element.
    #[default]
    Mask,
    /// A mask for each channel over this many spatial axes.
    Spatial(usize),
    /// A mask that keeps mean and variance (SELU networks).
    Alpha,
    /// A normal factor.
    GaussianFactor,
    /// A normal summand.
    GaussianSummand,
}

/// A layer that draws noise while it is trained.
#[derive(Clone, Debug, Deserialize)]
pub struct Dropout {
    /// What is drawn.
    #[serde(skip)]
    pub noise: Noise,
    /// The fraction that is dropped.
    #[serde(default, alias = "p", deserialize_with = "crate::config::rate")]
    pub rate: f64,
    /// The deviation of the summand.
    #[serde(default)]
    pub stddev: f64,
    /// The shape of the mask, broadcast to the input's.
    #[serde(default)]
    pub noise_shape: Value,
    /// What the noise begins with.
    #[serde(default)]
    pub seed: Value,
    /// Where the channels stand (spatial).
    #[serde(default)]
    pub data_format: crate::spatial::DataFormat,
}

fn noise(class: &str, axes: Result<usize, String>) -> Result<Noise, String> {
    Ok(match class {
        "Dropout" => Noise::Mask,
        "AlphaDropout" => Noise::Alpha,
        "GaussianDropout" => Noise::GaussianFactor,
        "GaussianNoise" => Noise::GaussianSummand,
        _ => Noise::Spatial(axes?),
    })
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &[
        "AlphaDropout",
        "Dropout",
        "GaussianDropout",
        "GaussianNoise",
        "SpatialDropout1D",
        "SpatialDropout2D",
        "SpatialDropout3D",
    ],
    keras: &[2, 3],
    build: |s| {
        let layer = Dropout { noise: noise(s.class(), s.spatial_axes())?, ..s.read()? };
        // Keras 2 takes any deviation.
        if s.facts.keras == Keras::V3 && !(0.0..=1.0).contains(&layer.stddev) {
            let found = Value::from(layer.stddev);
            return Err(format!("its config: {}", config::refused("stddev", "a number from 0 to 1", &found)));
        }
        boxed(layer)
    },
}];

impl Dropout {
    /// The shape of the mask for an input of this shape.
    fn noise(&self, shape: &[u64]) -> Vec<u64> {
        let given = self.noise_shape.as_array().map(Vec::as_slice).unwrap_or_default();
        let size = |(i, d): (usize, &u64)| given.get(i).and_then(Value::as_u64).unwrap_or(*d);
        shape.iter().enumerate().map(size).collect()
    }
}

impl Layer for Dropout {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        Ok(vec![call.seen(spec::input(inputs, 0)?)])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        // A spatial one writes its variables' dtype in the place of its policy (keras/src/layers/regularization/spatial_dropout.py,
        // `get_config`), so what it computes in is known by its input alone.
        let own = if matches!(self.noise, Noise::Spatial(_)) { run.argument(0, "inputs") } else { None };
        let x = own.unwrap_or_else(|| run.x(0));
        if !run.l.training || (self.rate == 0.0 && self.stddev == 0.0) {
            return run.finish(&x);
        }
        let y = match self.noise {
            Noise::Mask if self.seed.is_null() && self.noise_shape.is_null() => run.dropout(&x),
            Noise::Mask => {
                let noise = self.noise(&x.shape);
                run.dropout_by(&x, &noise)
            }
            Noise::Spatial(_) => {
                let channel = self.data_format.channel_axis(x.rank());
                let ones = |(i, d): (usize, &u64)| if i == 0 || i == channel { *d } else { 1 };
                let noise: Vec<u64> = x.shape.iter().enumerate().map(ones).collect();
                run.dropout_by(&x, &noise)
            }
            Noise::GaussianFactor => {
                let noise = run.noise(&x);
                run.mul(&x, &noise)
            }
            Noise::GaussianSummand => {
                let noise = run.noise(&x);
                run.add(&x, &noise)
            }
            // alpha_dropout.py: `a * (x * kept + alpha * (1 - kept)) + b`.
            Noise::Alpha => {
                let kept = run.noise(&x);
                let product = run.mul(&x, &kept);
                let rest = kept.scale(run.l, "rsub").scale(run.l, "mul");
                run.add(&product, &rest).scale(run.l, "mul").scale(run.l, "add")
            }
        };
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        // As under `pytorch`.
        let x = if matches!(self.noise, Noise::Spatial(_)) { run.raw(0) } else { run.x(0) };
        if !run.compute.training || (self.rate == 0.0 && self.stddev == 0.0) {
            return run.finish(x);
        }
        let shape = run.shape(x).to_vec();
        let dtype = run.dtype(x);
        let noise = self.noise(&shape);
        let y = match self.noise {
            Noise::Mask => run.dropout(x, &noise),
            Noise::Spatial(_) => {
                let channel = self.data_format.channel_axis(shape.len());
                let ones = |(i, d): (usize, &u64)| if i == 0 || i == channel { *d } else { 1 };
                let noise: Vec<u64> = shape.iter().enumerate().map(ones).collect();
                run.dropout(x, &noise)
            }
            Noise::Alpha => {
                // alpha_dropout.py: a * (x * kept + alpha * (1 - kept)) + b, of numbers in float32
                let uniform = run.make("StatelessRandomUniformV2", &[], &noise, DType::Float32, None);
                let kept = run.test("GreaterEqual", uniform);
                let kept = run.cast(kept, dtype);
                let rest = run.shifted("Sub", kept);
                let rest = run.scaled("Mul", rest);
                let product = run.binary("Mul", x, kept);
                let sum = run.binary("AddV2", product, rest);
                let scaled = run.scaled("Mul", sum);
                run.shifted("AddV2", scaled)
            }
            Noise::GaussianFactor | Noise::GaussianSummand => {
                let noise = run.make("StatelessRandomNormalV2", &[], &shape, dtype, None);
                let noise = run.scaled("Mul", noise);
                let noise = run.shifted("AddV2", noise);
                let name = if self.noise == Noise::GaussianFactor { "Mul" } else { "AddV2" };
                run.binary(name, x, noise)
            }
        };
        run.finish(y);
    }
}
