//! Dropout, SpatialDropout, AlphaDropout, GaussianDropout, GaussianNoise. Keras 2 and 3.
//!
//! keras/src/layers/regularization/*.py. All keep the shape; they differ in the noise that they draw: a mask of the input's shape,
//! a mask with one element for each channel, a normal factor or a normal summand. A rate of zero draws none.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::boxed;
use crate::spec::{self, Spec};
use memfit_graph::OpError;
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
    #[serde(default, alias = "p")]
    pub rate: f64,
    /// The deviation of the summand.
    #[serde(default)]
    pub stddev: f64,
    /// The shape of the mask, broadcast to the input's.
    #[serde(default)]
    pub noise_shape: Value,
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
    build: |s| boxed(Dropout { noise: noise(s.class(), s.spatial_axes())?, ..s.read()? }),
}];

impl Layer for Dropout {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        Ok(vec![call.seen(spec::input(inputs, 0)?)])
    }
}
