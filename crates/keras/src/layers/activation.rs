//! Activation, ReLU, LeakyReLU, ELU, ThresholdedReLU. Keras 2 and 3.
//!
//! keras/src/layers/activations/*.py. All keep the shape. `Softmax` and `PReLU` have files of their own.

use super::LayerSpec;
use crate::activation::Activation as Function;
use crate::config;
use crate::layer::{Call, Layer};
use crate::reader::{Source, boxed};
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::OpError;
use serde::Deserialize;

/// A function of each element.
#[derive(Clone, Debug)]
pub struct Activation {
    /// The function.
    pub function: Function,
    /// ReLU's upper limit.
    pub max_value: Option<f64>,
    /// The slope below zero.
    pub negative_slope: f64,
    /// Where ReLU begins.
    pub threshold: f64,
}

/// What the classes write between them.
#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    activation: Function,
    #[serde(default, deserialize_with = "config::at_least_zero_or_none")]
    max_value: Option<f64>,
    #[serde(default, deserialize_with = "config::at_least_zero")]
    negative_slope: Option<f64>,
    /// ELU's, and LeakyReLU's in Keras 2, which may be negative.
    #[serde(default)]
    alpha: Option<f64>,
    #[serde(default, alias = "theta", deserialize_with = "config::at_least_zero")]
    threshold: Option<f64>,
}

fn read(source: &Source<'_>) -> Result<Activation, String> {
    let config: Config = source.read()?;
    let function = match source.class() {
        "Activation" => config.activation,
        "ELU" => Function::Elu,
        "LeakyReLU" => Function::LeakyRelu,
        "ThresholdedReLU" => Function::Threshold,
        _ => Function::Relu,
    };
    Ok(Activation {
        function,
        max_value: config.max_value,
        negative_slope: config.negative_slope.or(config.alpha).unwrap_or(0.0),
        threshold: config.threshold.unwrap_or(0.0),
    })
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec {
        classes: &["Activation", "ELU", "LeakyReLU", "ReLU"],
        keras: &[2, 3],
        build: |s| boxed(read(s)?),
    },
    LayerSpec { classes: &["ThresholdedReLU"], keras: &[2], build: |s| boxed(read(s)?) },
];

impl Layer for Activation {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        Ok(vec![call.seen(spec::input(inputs, 0)?)])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let x = run.x(0);
        let y = match self.function {
            Function::Relu => run.relu(&x, self.negative_slope != 0.0, self.max_value, self.threshold != 0.0),
            // x * (x > theta)
            Function::Threshold => {
                let above = run.test(&[&x], &x.shape);
                let dtype = run.dtype();
                let above = above.cast(run.l, dtype);
                run.mul(&x, &above)
            }
            _ => run.activate(&self.function, &x),
        };
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let x = run.x(0);
        if self.function != Function::Relu {
            let y = run.activate(&self.function, x);
            return run.finish(y);
        }
        // keras/src/activations/activations.py, `ReLU.static_call`
        let (limit, slope, threshold) = (self.max_value, self.negative_slope != 0.0, self.threshold != 0.0);
        if slope && limit.is_none() && !threshold {
            let y = run.unary("LeakyRelu", x);
            return run.finish(y);
        }
        let negative = slope.then(|| {
            let negative = run.unary("Neg", x);
            let negative = if threshold { run.shifted("AddV2", negative) } else { negative };
            run.unary("Relu", negative)
        });
        let is_six = limit == Some(6.0) && !threshold;
        let mut y = match threshold {
            true => {
                let above = run.test("Greater", x);
                run.select(above, x)
            }
            false => run.unary(if is_six { "Relu6" } else { "Relu" }, x),
        };
        if limit.is_some() && !is_six {
            y = run.clipped(y);
        }
        if let Some(negative) = negative {
            let scaled = run.scaled("Mul", negative);
            y = run.binary("Sub", y, scaled);
        }
        run.finish(y);
    }
}
