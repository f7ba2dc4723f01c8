//! LocallyConnected1D, LocallyConnected2D. Keras 2.
//!
//! tf_keras/src/layers/locally_connected/*.py: a convolution whose kernel differs from position to position. `implementation` 1 keeps
//! a kernel for each position, 2 a dense matrix from all inputs to all outputs, 3 the nonzero elements of that matrix.

use super::LayerSpec;
use crate::activation::Activation;
use crate::layer::{Call, Layer, Weight};
use crate::reader::boxed;
use crate::spatial::{self, DataFormat, Padding, PerAxis, windowed};
use crate::spec::{self, Spec};
use memfit_graph::{Dim, OpError};
use serde::Deserialize;

/// A convolution without shared weights.
#[derive(Clone, Debug, Deserialize)]
pub struct LocallyConnected {
    /// Spatial axes, told by the class.
    #[serde(skip)]
    pub axes: usize,
    /// Channels of the output.
    #[serde(deserialize_with = "crate::config::positive")]
    pub filters: u64,
    /// The window.
    pub kernel_size: PerAxis,
    /// Its step.
    #[serde(default = "crate::spatial::one")]
    pub strides: PerAxis,
    /// How the ends are padded.
    #[serde(default)]
    pub padding: Padding,
    /// Where the channels stand.
    #[serde(default)]
    pub data_format: DataFormat,
    /// Applied to the sum.
    #[serde(default)]
    pub activation: Activation,
    /// Whether there is a bias.
    #[serde(default = "super::yes")]
    pub use_bias: bool,
    /// How the kernel is kept.
    #[serde(default = "super::one_u64")]
    pub implementation: u64,
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &["LocallyConnected1D", "LocallyConnected2D"],
    keras: &[2],
    build: |s| {
        let layer = LocallyConnected { axes: s.spatial_axes()?, ..s.read()? };
        layer.kernel_size.along(layer.axes, "kernel_size")?;
        layer.strides.along(layer.axes, "strides")?;
        boxed(layer)
    },
}];

impl LocallyConnected {
    fn sizes(&self, x: &Spec) -> Result<Vec<Dim>, OpError> {
        let sizes = spatial::spatial(x, self.data_format, self.axes).iter().enumerate();
        sizes.map(|(i, d)| windowed(d, self.kernel_size.at(i), self.strides.at(i), 1, self.padding)).collect()
    }
}

impl Layer for LocallyConnected {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let x = spec::input_of_rank(inputs, 0, self.axes + 2)?;
        let channels = spec::number(spatial::channels(x, self.data_format)?)?;
        let numbers = |dims: &[Dim]| dims.iter().map(spec::number).collect::<Result<Vec<u64>, _>>();
        let (ins, outs) =
            (numbers(spatial::spatial(x, self.data_format, self.axes))?, numbers(&self.sizes(x)?)?);
        let product = |list: &[u64]| list.iter().try_fold(1_u64, |a, b| spec::times(a, *b));
        let window = product(&self.kernel_size.expand(self.axes)?)?;
        let kernel = match (self.implementation, self.data_format) {
            (1, _) => vec![product(&outs)?, spec::times(window, channels)?, self.filters],
            (2, DataFormat::ChannelsLast) => [&ins[..], &[channels], &outs, &[self.filters]].concat(),
            (2, DataFormat::ChannelsFirst) => [&[channels][..], &ins, &[self.filters], &outs].concat(),
            // Each output sees a whole window; at padded ends a part of it lies outside of the input.
            _ => vec![product(&[product(&outs)?, window, channels, self.filters])?],
        };
        let mut weights = vec![call.weight("kernel", kernel)];
        if self.use_bias {
            weights.push(call.weight("bias", [&outs[..], &[self.filters]].concat()));
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input_of_rank(inputs, 0, self.axes + 2)?;
        Ok(vec![call.output(self.data_format.shape(
            x.dims()[0].clone(),
            self.sizes(x)?,
            Dim::Known(self.filters),
        ))])
    }
}
