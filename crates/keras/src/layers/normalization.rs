//! Normalization: features by statistics that were read from data. Keras 2 and 3.
//!
//! keras/src/layers/preprocessing/normalization.py: mean, variance and count are variables where `adapt` finds them, and constants
//! where the config gives them.

use super::LayerSpec;
use crate::layer::{Call, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{DType, OpError};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// `(x - mean) / sqrt(variance)`.
#[derive(Clone, Debug, Deserialize)]
pub struct Normalization {
    /// The axes that keep statistics of their own.
    #[serde(default = "super::last_axis", deserialize_with = "axes_or_none")]
    pub axis: Vec<i64>,
    /// The mean, where it is given.
    #[serde(default)]
    pub mean: Value,
    /// Whether it is turned around.
    #[serde(default)]
    pub invert: bool,
}

/// `None` is one statistic for everything.
fn axes_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<i64>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if value.is_null() { Ok(Vec::new()) } else { super::axes(value).map_err(serde::de::Error::custom) }
}

/// How it is found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &["Normalization"],
    keras: &[2, 3],
    build: |s| boxed(s.read::<Normalization>()?),
}];

impl Layer for Normalization {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        // A mean that was never given is written as a number that is none.
        if self.mean.is_array() || self.mean.is_number() {
            return Ok(Vec::new());
        }
        let x = spec::input(inputs, 0)?;
        let mut axes = self.axis.iter().map(|a| x.axis(*a)).collect::<Result<Vec<_>, _>>()?;
        axes.sort_unstable();
        let shape = axes.iter().map(|a| spec::number(&x.dims()[*a])).collect::<Result<Vec<_>, _>>()?;
        let of = |name| call.state(name, shape.clone());
        Ok(vec![of("mean"), of("variance"), Weight { dtype: DType::Int64, ..call.state("count", []) }])
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        Ok(vec![call.output(spec::input(inputs, 0)?.dims().iter().cloned())])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        // Statistics get no gradient: nothing is kept but the divisor.
        let x = run.x(0);
        let y = x.scale(run.l, if self.invert { "mul" } else { "sub" });
        let y = y.scale(run.l, if self.invert { "add" } else { "div" });
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let x = run.x(0);
        let centred = run.shifted("Sub", x);
        let y = run.scaled("RealDiv", centred);
        run.finish(y);
    }
}
