//! SeparableConv1D, SeparableConv2D. Keras 2 and 3.
//!
//! keras/src/layers/convolutional/base_separable_conv.py: a depthwise convolution, then a pointwise one, then one bias.

use super::LayerSpec;
use crate::activation::Activation;
use crate::layer::{Call, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spatial::{self, DataFormat, Padding, PerAxis, windowed};
use crate::spec::{self, Spec};
use memfit_graph::{Dim, OpError};
use serde::Deserialize;

/// A depthwise and a pointwise convolution.
#[derive(Clone, Debug, Deserialize)]
pub struct SeparableConv {
    /// Spatial axes, told by the class.
    #[serde(skip)]
    pub axes: usize,
    /// Channels of the output.
    pub filters: u64,
    /// The window of the depthwise part.
    pub kernel_size: PerAxis,
    /// Its step.
    #[serde(default = "super::one")]
    pub strides: PerAxis,
    /// How the ends are padded.
    #[serde(default)]
    pub padding: Padding,
    /// Channels between the parts for each of the input.
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
    classes: &["SeparableConv1D", "SeparableConv2D", "SeparableConvolution1D", "SeparableConvolution2D"],
    keras: &[2, 3],
    build: |s| boxed(SeparableConv { axes: s.spatial_axes()?, ..s.read()? }),
}];

impl Layer for SeparableConv {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let x = spec::input_of_rank(inputs, 0, self.axes + 2)?;
        let channels = spec::number(spatial::channels(x, self.data_format)?)?;
        let mut depthwise = self.kernel_size.expand(self.axes)?;
        depthwise.extend([channels, self.depth_multiplier]);
        let mut pointwise = vec![1; self.axes];
        pointwise.extend([spec::times(channels, self.depth_multiplier)?, self.filters]);
        let mut weights =
            vec![call.weight("depthwise_kernel", depthwise), call.weight("pointwise_kernel", pointwise)];
        if self.use_bias {
            weights.push(call.weight("bias", [self.filters]));
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
        Ok(vec![call.output(self.data_format.shape(x.dims()[0].clone(), sizes, Dim::Known(self.filters)))])
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let (x, depthwise, pointwise) = (run.x(0), run.weight(0), run.weight(1));
        let shape = run.out_shape(0);
        let mut between = shape.to_vec();
        let channel = self.data_format.channel_axis(shape.len());
        let channels =
            run.in_shape(0).get(channel).copied().unwrap_or(1).saturating_mul(self.depth_multiplier);
        between.get_mut(channel).into_iter().for_each(|d| *d = channels);
        let x = run.convolution("DepthwiseConv2dNative", x, depthwise, &between);
        let mut y = run.convolution("Conv2D", x, pointwise, shape);
        if self.use_bias {
            y = run.add_bias(y, 2, channel);
        }
        let y = run.activate(&self.activation, y);
        run.finish(y);
    }
}
