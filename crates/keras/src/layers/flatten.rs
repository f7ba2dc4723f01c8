//! Flatten. Keras 2 and 3.
//!
//! keras/src/layers/reshaping/flatten.py: every axis but the batch becomes one; `channels_first` moves the channels last before.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::boxed;
use crate::run::Run;
use crate::spatial::DataFormat;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{Dim, OpError};
use serde::Deserialize;

/// All axes but the batch as one.
#[derive(Clone, Debug, Deserialize)]
pub struct Flatten {
    /// Where the channels stand; first makes a transpose.
    #[serde(default)]
    pub data_format: DataFormat,
}

/// How it is found.
pub const SPECS: &[LayerSpec] =
    &[LayerSpec { classes: &["Flatten"], keras: &[2, 3], build: |s| boxed(s.read::<Flatten>()?) }];

impl Layer for Flatten {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input(inputs, 0)?;
        let batch = x.dims().first().cloned().unwrap_or(Dim::Known(1));
        let rest = spec::product(x.dims().get(1..).unwrap_or(&[]))?;
        Ok(vec![call.seen(x).with([batch, rest])])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let x = run.x(0);
        if self.data_format == DataFormat::ChannelsFirst && x.rank() > 2 {
            return run.not_modelled();
        }
        run.finish(&x);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let mut x = run.x(0);
        if self.data_format == DataFormat::ChannelsFirst && run.in_shape(0).len() > 2 {
            let shape = run.in_shape(0);
            x = run.moved("Transpose", x, shape);
        }
        let shape = run.out_shape(0);
        let y = run.view("Reshape", x, shape);
        run.finish(y);
    }
}
