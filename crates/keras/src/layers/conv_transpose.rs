//! Conv1DTranspose, Conv2DTranspose, Conv3DTranspose. Keras 2 and 3.
//!
//! keras/src/layers/convolutional/base_conv_transpose.py: `kernel` is `[*kernel_size, filters, channels]`. Sizes:
//! keras/src/backend/common/backend_utils.py, `_get_output_shape_given_tf_padding`; the same as Keras 2's `deconv_output_length`.

use super::LayerSpec;
use crate::activation::Activation;
use crate::layer::{Call, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spatial::{Padding, PerAxis, Window};
use crate::spec::Spec;
use crate::torch::Torch;
use memfit_graph::{Dim, OpError};
use serde::Deserialize;

/// A transposed convolution.
#[derive(Clone, Debug, Deserialize)]
pub struct ConvTranspose {
    /// How the window moves.
    #[serde(skip)]
    pub window: Window,
    /// Channels of the output.
    #[serde(deserialize_with = "crate::config::positive")]
    pub filters: u64,
    /// Elements added at the ends of the output.
    #[serde(default, deserialize_with = "PerAxis::or_none")]
    pub output_padding: Option<PerAxis>,
    /// Applied to the sum.
    #[serde(default)]
    pub activation: Activation,
    /// Whether there is a bias.
    #[serde(default = "super::yes")]
    pub use_bias: bool,
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &[
        "Conv1DTranspose",
        "Conv2DTranspose",
        "Conv3DTranspose",
        "Convolution1DTranspose",
        "Convolution2DTranspose",
        "Convolution3DTranspose",
    ],
    keras: &[2, 3],
    build: |s| {
        let layer = ConvTranspose { window: Window::of(s)?, ..s.read()? };
        layer.output_padding.as_ref().map_or(Ok(()), |p| p.along(layer.window.axes, "output_padding"))?;
        boxed(layer)
    },
}];

impl ConvTranspose {
    fn size(&self, i: usize, input: &Dim) -> Result<Dim, OpError> {
        let too_large = || OpError::overflow("the transposed convolution");
        let stride = self.window.strides.at(i);
        let kernel = self
            .window
            .kernel_size
            .at(i)
            .checked_sub(1)
            .and_then(|k| k.checked_mul(self.window.dilation_rate.at(i)));
        let kernel = kernel.and_then(|k| k.checked_add(1)).ok_or_else(too_large)?;
        let full = input.mul(&Dim::Known(stride)).ok_or_else(too_large)?;
        let output_padding = self.output_padding.as_ref().map(|p| p.at(i));
        // Beyond `input * stride`: what the last window reaches over its step.
        let beyond = match (self.window.padding, output_padding) {
            (Padding::Same, None) => 0,
            (Padding::Same, Some(p)) => i128::from(kernel % 2) + i128::from(p) - i128::from(stride),
            (_, None) => i128::from(kernel.max(stride)) - i128::from(stride),
            (_, Some(p)) => i128::from(kernel) + i128::from(p) - i128::from(stride),
        };
        Ok(full.offset(i64::try_from(beyond).map_err(|_| too_large())?))
    }
}

impl Layer for ConvTranspose {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let x = self.window.input(inputs)?;
        let channels = self.window.channels(x)?;
        let mut kernel = self.window.kernel()?;
        kernel.extend([self.filters, channels]);
        let mut weights = vec![call.weight("kernel", kernel)];
        if self.use_bias {
            weights.push(call.weight("bias", [self.filters]));
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = self.window.input(inputs)?;
        let sizes = self.window.each(x, |i, d| self.size(i, d))?;
        Ok(vec![call.output(self.window.shape(x, sizes, self.filters))])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (x, kernel, shape) = (run.x(0), run.weight(0), run.out_shape());
        let mut y = run.convolve_transposed(&x, &kernel, &self.window, shape);
        if self.use_bias {
            y = run.add_bias(&y, 1, self.window.data_format);
        }
        let y = run.activate(&self.activation, &y);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let (x, kernel, shape) = (run.x(0), run.weight(0), run.out_shape(0));
        let name = if self.window.axes == 3 { "Conv3DBackpropInputV2" } else { "Conv2DBackpropInput" };
        let y = self.window.in_plane(run, name, x, kernel, shape);
        self.window.finish(run, y, self.use_bias.then_some(1), &self.activation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_are_those_of_keras() {
        let size = |n, k, s, padding: &str, output_padding: Option<u64>| {
            let config = json!({"filters": 1, "kernel_size": k, "strides": s, "padding": padding, "output_padding": output_padding});
            let window = serde_json::from_value(config.clone()).unwrap();
            let layer = ConvTranspose { window, ..serde_json::from_value(config).unwrap() };
            layer.size(0, &Dim::Known(n)).unwrap().known().unwrap()
        };
        assert_eq!(size(8, 3, 2, "same", None), 16);
        assert_eq!(size(8, 3, 2, "valid", None), 17);
        assert_eq!(size(8, 2, 3, "valid", None), 24);
        assert_eq!(size(8, 3, 2, "same", Some(1)), 16);
        assert_eq!(size(8, 4, 2, "same", Some(0)), 14);
    }
}
