//! SeparableConv1D, SeparableConv2D. Keras 2 and 3.
//!
//! keras/src/layers/convolutional/base_separable_conv.py: a depthwise convolution, then a pointwise one, then one bias.

use super::LayerSpec;
use crate::activation::Activation;
use crate::layer::{Call, Layer, Weight};
use crate::run::Run;
use crate::spatial::Window;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::OpError;
use serde::Deserialize;

/// A depthwise and a pointwise convolution.
#[derive(Clone, Debug, Deserialize)]
pub struct SeparableConv {
    /// How the window moves.
    #[serde(skip)]
    pub window: Window,
    /// Channels of the output.
    #[serde(deserialize_with = "crate::config::positive")]
    pub filters: u64,
    /// Channels between the parts for each of the input.
    #[serde(default = "super::one_u64", deserialize_with = "crate::config::positive")]
    pub depth_multiplier: u64,
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
    build: |s| super::windowed(s, |layer: &mut SeparableConv| &mut layer.window),
}];

impl Layer for SeparableConv {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let x = self.window.input(inputs)?;
        let channels = self.window.channels(x)?;
        let mut depthwise = self.window.kernel()?;
        depthwise.extend([channels, self.depth_multiplier]);
        let mut pointwise = vec![1; self.window.axes];
        pointwise.extend([spec::times(channels, self.depth_multiplier)?, self.filters]);
        let mut weights =
            vec![call.weight("depthwise_kernel", depthwise), call.weight("pointwise_kernel", pointwise)];
        if self.use_bias {
            weights.push(call.weight("bias", [self.filters]));
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = self.window.input(inputs)?;
        let sizes = self.window.sizes(x)?;
        Ok(vec![call.output(self.window.shape(x, sizes, self.filters))])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (x, depthwise, pointwise, shape) = (run.x(0), run.weight(0), run.weight(1), run.out_shape());
        let mut between = shape.to_vec();
        let channel = self.window.data_format.channel_axis(shape.len());
        let channels = x.shape.get(channel).copied().unwrap_or(1).saturating_mul(self.depth_multiplier);
        between.get_mut(channel).into_iter().for_each(|d| *d = channels);
        let each = run.convolve_depthwise(&x, &depthwise, &self.window, &between);
        let one = crate::spatial::one;
        let window = Window {
            kernel_size: one(),
            strides: one(),
            dilation_rate: one(),
            padding: crate::spatial::Padding::Valid,
            ..self.window.clone()
        };
        let mut y = run.convolve(&each, &pointwise, &window, shape);
        if self.use_bias {
            y = run.add_bias(&y, 2, self.window.data_format);
        }
        let y = run.activate(&self.activation, &y);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let (x, depthwise, pointwise) = (run.x(0), run.weight(0), run.weight(1));
        let shape = run.out_shape(0);
        let mut between = shape.to_vec();
        let channel = self.window.data_format.channel_axis(shape.len());
        let channels =
            run.in_shape(0).get(channel).copied().unwrap_or(1).saturating_mul(self.depth_multiplier);
        between.get_mut(channel).into_iter().for_each(|d| *d = channels);
        let x = self.window.convolution(run, "DepthwiseConv2dNative", x, depthwise, &between);
        let y = self.window.in_plane(run, "Conv2D", x, pointwise, shape);
        self.window.finish(run, y, self.use_bias.then_some(2), &self.activation);
    }
}
