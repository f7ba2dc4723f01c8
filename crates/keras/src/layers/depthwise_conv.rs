//! DepthwiseConv1D, DepthwiseConv2D. Keras 2 and 3.
//!
//! keras/src/layers/convolutional/base_depthwise_conv.py: `kernel` is `[*kernel_size, channels, depth_multiplier]`. Keras 2 names it
//! `depthwise_kernel` (convolutional/base_depthwise_conv.py).

use super::LayerSpec;
use crate::activation::Activation;
use crate::layer::{Call, Keras, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spatial::{self, DataFormat, Padding, PerAxis, windowed};
use crate::spec::{self, Spec};
use memfit_graph::{Dim, OpError};
use serde::Deserialize;

/// A convolution of each channel alone.
#[derive(Clone, Debug, Deserialize)]
pub struct DepthwiseConv {
    /// Spatial axes, told by the class.
    #[serde(skip)]
    pub axes: usize,
    /// The window.
    pub kernel_size: PerAxis,
    /// Its step.
    #[serde(default = "super::one")]
    pub strides: PerAxis,
    /// How the ends are padded.
    #[serde(default)]
    pub padding: Padding,
    /// Outputs for each channel.
    #[serde(default = "super::one_u64")]
    pub depth_multiplier: u64,
    /// Where the channels stand.
    #[serde(default)]
    pub data_format: DataFormat,
    /// The distance of the window's elements.
    #[serde(default = "super::one")]
    pub dilation_rate: PerAxis,
    /// Applied to the sum.
    #[serde(default)]
    pub activation: Activation,
    /// Whether there is a bias.
    #[serde(default = "super::yes")]
    pub use_bias: bool,
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &["DepthwiseConv1D", "DepthwiseConv2D"],
    keras: &[2, 3],
    build: |s| boxed(DepthwiseConv { axes: s.spatial_axes()?, ..s.read()? }),
}];

impl DepthwiseConv {
    /// The channels of input and output.
    fn channels(&self, x: &Spec) -> Result<(u64, u64), OpError> {
        let channels = spec::number(spatial::channels(x, self.data_format)?)?;
        Ok((channels, spec::times(channels, self.depth_multiplier)?))
    }
}

impl Layer for DepthwiseConv {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let (channels, made) = self.channels(spec::input_of_rank(inputs, 0, self.axes + 2)?)?;
        let mut kernel = self.kernel_size.expand(self.axes)?;
        kernel.extend([channels, self.depth_multiplier]);
        let name = if call.facts.keras == Keras::V2 { "depthwise_kernel" } else { "kernel" };
        let mut weights = vec![call.weight(name, kernel)];
        if self.use_bias {
            weights.push(call.weight("bias", [made]));
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input_of_rank(inputs, 0, self.axes + 2)?;
        let sizes = spatial::spatial(x, self.data_format, self.axes).iter().enumerate();
        let sizes = sizes.map(|(i, d)| {
            windowed(d, self.kernel_size.at(i), self.strides.at(i), self.dilation_rate.at(i), self.padding)
        });
        let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
        let made = Dim::Known(self.channels(x)?.1);
        Ok(vec![call.output(self.data_format.shape(x.dims()[0].clone(), sizes, made))])
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let (x, kernel, shape) = (run.x(0), run.weight(0), run.out_shape(0));
        let mut y = run.convolution("DepthwiseConv2dNative", x, kernel, shape);
        if self.use_bias {
            y = run.add_bias(y, 1, self.data_format.channel_axis(shape.len()));
        }
        let y = run.activate(&self.activation, y);
        run.finish(y);
    }
}
