//! DepthwiseConv1D, DepthwiseConv2D. Keras 2 and 3.
//!
//! keras/src/layers/convolutional/base_depthwise_conv.py: `kernel` is `[*kernel_size, channels, depth_multiplier]`. Keras 2 names it
//! `depthwise_kernel` (convolutional/base_depthwise_conv.py).

use super::LayerSpec;
use crate::activation::Activation;
use crate::layer::{Call, Keras, Layer, Weight};
use crate::run::Run;
use crate::spatial::Window;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::OpError;
use serde::Deserialize;

/// A convolution of each channel alone.
#[derive(Clone, Debug, Deserialize)]
pub struct DepthwiseConv {
    /// How the window moves.
    #[serde(skip)]
    pub window: Window,
    /// Outputs for each channel.
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
    classes: &["DepthwiseConv1D", "DepthwiseConv2D"],
    keras: &[2, 3],
    build: |s| super::windowed(s, |layer: &mut DepthwiseConv| &mut layer.window),
}];

impl DepthwiseConv {
    /// The channels of input and output.
    fn channels(&self, x: &Spec) -> Result<(u64, u64), OpError> {
        let channels = self.window.channels(x)?;
        Ok((channels, spec::times(channels, self.depth_multiplier)?))
    }
}

impl Layer for DepthwiseConv {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let (channels, made) = self.channels(self.window.input(inputs)?)?;
        let mut kernel = self.window.kernel()?;
        kernel.extend([channels, self.depth_multiplier]);
        let name = if call.facts.keras != Keras::V3 { "depthwise_kernel" } else { "kernel" };
        let mut weights = vec![call.weight(name, kernel)];
        if self.use_bias {
            weights.push(call.weight("bias", [made]));
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = self.window.input(inputs)?;
        let sizes = self.window.sizes(x)?;
        let made = self.channels(x)?.1;
        Ok(vec![call.output(self.window.shape(x, sizes, made))])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (x, kernel, shape) = (run.x(0), run.weight(0), run.out_shape());
        let mut y = run.convolve_depthwise(&x, &kernel, &self.window, shape);
        if self.use_bias {
            y = run.add_bias(&y, 1, self.window.data_format);
        }
        let y = run.activate(&self.activation, &y);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let (x, kernel, shape) = (run.x(0), run.weight(0), run.out_shape(0));
        let y = self.window.convolution(run, "DepthwiseConv2dNative", x, kernel, shape);
        self.window.finish(run, y, self.use_bias.then_some(1), &self.activation);
    }
}
