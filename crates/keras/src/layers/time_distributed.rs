//! TimeDistributed. Keras 2 and 3.
//!
//! keras/src/layers/rnn/time_distributed.py: the wrapped layer or model for every step. Keras 3 calls it step by step and stacks;
//! Keras 2 folds time into the batch.

use super::LayerSpec;
use crate::layer::{Call, Configured, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use memfit_graph::OpError;

/// A layer for every step.
#[derive(Clone, Debug)]
pub struct TimeDistributed {
    /// The wrapped layer.
    pub layer: Configured,
}

/// How it is found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &["TimeDistributed"],
    keras: &[2, 3],
    build: |s| boxed(TimeDistributed { layer: s.inner("layer")? }),
}];

/// The inputs of one step.
fn steps(inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let one = |(i, x): (usize, &Spec)| {
        let x0 = spec::input_from_rank(inputs, i, 2)?;
        Ok(x.with([x0.dims()[0].clone()].into_iter().chain(x0.dims()[2..].iter().cloned())))
    };
    inputs.iter().enumerate().map(one).collect()
}

impl Layer for TimeDistributed {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        self.layer.weights(call.arguments, &steps(inputs)?)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let time = spec::input_from_rank(inputs, 0, 2)?.dims()[1].clone();
        let outputs = self.layer.outputs(call.arguments, &steps(inputs)?)?;
        let with_time = |mut output: Spec| {
            let at = output.rank().min(1);
            output.shape.insert(at, time.clone());
            output
        };
        Ok(outputs.into_iter().map(with_time).collect())
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        // `vectorized_map` over time runs the layer once on all steps (backend/tensorflow/core.py).
        let x = run.x(0);
        let shape = run.shape(x).to_vec();
        let size = |i: usize| shape.get(i).copied().unwrap_or(1);
        let rows = size(0).saturating_mul(size(1));
        let merged = [&[rows][..], shape.get(2..).unwrap_or_default()].concat();
        let flat = run.view("Reshape", x, &merged);
        let outputs = run.inner(&self.layer, &[flat], 0);
        for (j, y) in outputs.into_iter().enumerate() {
            let shape = run.out_shape(j);
            let y = run.view("Reshape", y, shape);
            run.bind(j, y);
        }
    }
}
