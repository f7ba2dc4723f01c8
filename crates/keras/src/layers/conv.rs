//! Conv1D, Conv2D, Conv3D. Keras 2 and 3.
//!
//! keras/src/layers/convolutional/base_conv.py: `kernel` is `[*kernel_size, channels / groups, filters]`; with `lora_rank` two narrow
//! kernels are added and the kernel is frozen.

use super::LayerSpec;
use crate::activation::Activation;
use crate::layer::{Call, Layer, Weight};
use crate::run::Run;
use crate::spatial::{Padding, Window};
use crate::spec::Spec;
use crate::torch::Torch;
use memfit_graph::{OpError, Variable};
use serde::Deserialize;

/// A convolution.
#[derive(Clone, Debug, Deserialize)]
pub struct Conv {
    /// How the window moves.
    #[serde(skip)]
    pub window: Window,
    /// Channels of the output.
    #[serde(deserialize_with = "crate::config::positive")]
    pub filters: u64,
    /// Groups of channels.
    #[serde(default = "super::one_u64", deserialize_with = "crate::config::positive")]
    pub groups: u64,
    /// Applied to the sum.
    #[serde(default)]
    pub activation: Activation,
    /// Whether there is a bias.
    #[serde(default = "super::yes")]
    pub use_bias: bool,
    /// The rank of the trained correction, where there is one.
    #[serde(default, deserialize_with = "crate::config::rank")]
    pub lora_rank: Option<u64>,
}

/// How it is found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &["Conv1D", "Conv2D", "Conv3D", "Convolution1D", "Convolution2D", "Convolution3D"],
    keras: &[2, 3],
    build: |s| super::windowed(s, |layer: &mut Conv| &mut layer.window),
}];

impl Layer for Conv {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let x = self.window.input(inputs)?;
        let channels = self.window.channels(x)?;
        if self.groups == 0
            || !channels.is_multiple_of(self.groups)
            || !self.filters.is_multiple_of(self.groups)
        {
            let expected = format!("channels and filters that {} group(s) divide", self.groups);
            return Err(OpError::mismatch(expected, format!("{channels} and {}", self.filters)));
        }
        let mut kernel = self.window.kernel()?;
        kernel.push(channels / self.groups);
        let mut weights = vec![call.weight("kernel", [&kernel[..], &[self.filters]].concat())];
        if self.use_bias {
            weights.push(call.weight("bias", [self.filters]));
        }
        if let Some(rank) = self.lora_rank {
            weights[0].variable = Variable::Frozen;
            weights.push(call.weight("lora_kernel_a", [&kernel[..], &[rank]].concat()));
            weights.push(call.weight("lora_kernel_b", [rank, self.filters]));
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = self.window.input(inputs)?;
        let sizes = self.window.sizes(x)?;
        Ok(vec![call.output(self.window.shape(x, sizes, self.filters))])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (mut x, kernel, shape) = (run.x(0), run.kernel(self.lora_rank.is_some()), run.out_shape());
        if self.window.padding == Padding::Causal {
            let mut padded = x.shape.clone();
            let reach = self.window.kernel_size.at(0).saturating_sub(1);
            let reach = self.window.dilation_rate.at(0).saturating_mul(reach);
            let at = self.window.data_format.first_axis();
            padded.get_mut(at).into_iter().for_each(|d| *d = d.saturating_add(reach));
            x = run.pad(&x, &padded);
        }
        let mut y = run.convolve(&x, &kernel, &self.window, shape);
        if self.use_bias {
            y = run.add_bias(&y, 1, self.window.data_format);
        }
        let y = run.activate(&self.activation, &y);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let mut x = if self.window.axes == 2 { run.image(self.window.data_format) } else { run.x(0) };
        let shape = run.out_shape(0);
        if self.window.padding == Padding::Causal {
            let mut padded = run.in_shape(0).to_vec();
            let reach = self
                .window
                .dilation_rate
                .at(0)
                .saturating_mul(self.window.kernel_size.at(0).saturating_sub(1));
            let at = self.window.data_format.first_axis();
            padded.get_mut(at).into_iter().for_each(|d| *d = d.saturating_add(reach));
            x = run.moved("Pad", x, &padded);
        }
        let kernel = run.weight(0);
        let kernel = super::quantized::corrected(run, kernel, self.lora_rank);
        let name = if self.window.axes == 3 { "Conv3D" } else { "Conv2D" };
        let y = self.window.convolution(run, name, x, kernel, shape);
        self.window.finish(run, y, self.use_bias.then_some(1), &self.activation);
    }
}
