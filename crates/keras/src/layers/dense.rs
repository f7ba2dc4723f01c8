//! Dense. Keras 2 and 3.
//!
//! keras/src/layers/core/dense.py: a product with `kernel` over the last axis, then `bias`, then the activation. Keras 2 uses
//! `matmul` for rank 2 and `tensordot` above. Quantised: `build` makes the matrix that the mode keeps instead of `kernel`;
//! `lora_rank` adds two narrow matrices and freezes the kernel.

use super::LayerSpec;
use super::quantized::{self, Projection};
use crate::activation::Activation;
use crate::layer::{Call, Layer, Weight};
use crate::policy::Quantization;
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{Dim, OpError};
use serde::Deserialize;

/// A product over the last axis.
#[derive(Clone, Debug, Deserialize)]
pub struct Dense {
    /// Size of the output's last axis.
    #[serde(deserialize_with = "crate::config::positive")]
    pub units: u64,
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
pub const SPECS: &[LayerSpec] =
    &[LayerSpec { classes: &["Dense"], keras: &[2, 3], build: |s| boxed(s.read::<Dense>()?) }];

impl Dense {
    /// `_int8_call`: with LoRA, the product with both narrow matrices is added to that with the 8-bit one.
    fn quantized(&self, run: &mut Run<'_, '_>) {
        let (x, kernel, scale) = (run.x(0), run.raw_weight(0), run.weight(1));
        let mut y = run.quantized_dense(x, kernel, scale);
        if let (Some(_), Some(first)) = (self.lora_rank, run.weights().checked_sub(2)) {
            let (a, b) = (run.weight(first), run.weight(first + 1));
            let narrow = run.dense(x, a, None);
            let correction = run.dense(narrow, b, None);
            y = run.binary("AddV2", y, correction);
        }
        if self.use_bias {
            let bias = run.weight(2);
            y = run.bias_add(y, bias);
        }
        let y = run.activate(&self.activation, y);
        run.finish(y);
    }
}

impl Layer for Dense {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let features = spec::number(spec::input(inputs, 0)?.last()?)?;
        let projection = Projection {
            rows: features,
            columns: self.units,
            kernel: vec![features, self.units],
            scale: vec![self.units],
            bias: self.use_bias.then(|| vec![self.units]),
            lora: self.lora_rank.map(|rank| [vec![features, rank], vec![rank, self.units]]),
        };
        quantized::weights(call, &projection)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input_from_rank(inputs, 0, 1)?;
        let dims = x.dims()[..x.rank() - 1].iter().cloned().chain([Dim::Known(self.units)]);
        Ok(vec![call.output(dims)])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        if run.call.facts.policy.quantization.is_some() {
            return run.not_modelled();
        }
        let (x, kernel) = (run.x(0), run.kernel(self.lora_rank.is_some()));
        let mut y = run.matmul(&x, &kernel);
        if self.use_bias {
            let bias = run.weight(1);
            y = run.add(&y, &bias);
        }
        let y = run.activate(&self.activation, &y);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        match run.call.facts.policy.quantization {
            None => {}
            Some(Quantization::Int8) => return self.quantized(run),
            Some(_) => return run.not_modelled(),
        }
        let (x, kernel) = (run.x(0), run.weight(0));
        let kernel = super::quantized::corrected(run, kernel, self.lora_rank);
        let bias = self.use_bias.then(|| run.weight(1));
        let y = run.dense(x, kernel, bias);
        let y = run.activate(&self.activation, y);
        run.finish(y);
    }
}
