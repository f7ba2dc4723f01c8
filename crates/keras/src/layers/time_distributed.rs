//! TimeDistributed. Keras 2 and 3.
//!
//! keras/src/layers/rnn/time_distributed.py (3.15): the wrapped layer or model for every step. Keras 3 turns time first, calls it
//! step by step, where the number of steps is known, and stacks: the gradient of each step is as large as the input of all.
//! Keras 2 folds time into the batch.

use super::LayerSpec;
use crate::arguments::Arguments;
use crate::layer::{Call, Configured, Keras, Layer, Weight};
use crate::mask;
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{OpError, Shape, elements};

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

/// More steps than this are not written out one by one here: a graph of so many calls would be one of millions of kernels.
const UNROLLED: u64 = 512;
/// The same of layers in all steps, those of wrappers inside among them: what reads the list of one call takes long over a long one.
const CALLS: [u64; 2] = [1 << 14, 1 << 12];

impl TimeDistributed {
    /// Whether the steps of these inputs are written out one by one, where no more than `most` layers may run, and how many run then.
    fn unrolled(&self, call: &Call<'_>, inputs: &[Spec], most: u64) -> (bool, u64) {
        let Ok(of_step) = steps(inputs) else { return (false, 1) };
        let one = self.layer.calls(call.arguments, &of_step, most);
        let time = inputs.first().and_then(|x| x.dims().get(1)?.known()).unwrap_or(0);
        let all = time.saturating_mul(one);
        if (1..=UNROLLED).contains(&time) && all <= most { (true, all) } else { (false, one) }
    }
}

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
        if call.facts.keras == Keras::V3 && outputs.len() > 1 {
            // `ops.stack` of the steps takes one tensor each.
            return Err(OpError::mismatch(
                "a layer that gives one tensor",
                format!("{} tensors", outputs.len()),
            ));
        }
        let with_time = |mut output: Spec| {
            let at = output.rank().min(1);
            output.shape.insert(at, time.clone());
            output
        };
        Ok(outputs.into_iter().map(with_time).collect())
    }

    fn calls(&self, call: &Call<'_>, inputs: &[Spec], most: u64) -> u64 {
        self.unrolled(call, inputs, most).1
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (x, shape) = (run.x(0), run.out_shape());
        let time = x.shape.get(1).copied().unwrap_or(0);
        // A mask that the layer inside does not take is turned around, no more.
        let mask = run.argument(2, "mask");
        let takes = !mask::taken(&self.layer.facts, &Arguments::plain(1)).is_empty();
        if run.tensors() > 1 + usize::from(mask.is_some() && !takes) || time == 0 {
            return run.not_modelled();
        }
        let spec = Spec::new(Shape::from(&x.shape[..]), run.dtype());
        if !self.unrolled(run.call, &[spec], CALLS[1]).0 {
            // All steps at once keep what one after the other would; what is alive for a moment is another.
            run.l.is_bound();
            let fold = |shape: &[u64]| -> Vec<u64> {
                let rows = elements(shape.get(..2).unwrap_or(shape));
                std::iter::once(rows).chain(shape.iter().skip(2).copied()).collect()
            };
            let (folded, made) = (x.reshape(run.l, &fold(&x.shape)), fold(shape));
            let Some(y) = run.inner(&self.layer, &[folded], 0, &made) else { return run.not_modelled() };
            let y = y.reshape(run.l, shape);
            return run.finish(&y);
        }
        let turned = x.transpose(run.l, 0, 1);
        let without_time = |shape: &[u64]| -> Vec<u64> {
            shape.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, d)| *d).collect()
        };
        let (of_step, made) = (without_time(&x.shape), without_time(shape));
        let mut step = |at| {
            let step = turned.narrow(run.l, 0, at, 1).reshape(run.l, &of_step);
            run.inner(&self.layer, &[step], 0, &made)
        };
        let steps: Option<Vec<_>> = (0..time).map(&mut step).collect();
        let Some(steps) = steps else { return run.not_modelled() };
        let stacked = run.cat(&steps, &[&[time], &made[..]].concat());
        let y = stacked.transpose(run.l, 0, 1);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let x = run.x(0);
        let shape = run.shape(x).to_vec();
        let size = |i: usize| shape.get(i).copied().unwrap_or(1);
        let (batch, time) = (size(0), size(1));
        let rest = shape.get(2..).unwrap_or_default();
        let spec = Spec::new(Shape::from(&shape[..]), run.dtype(x));
        let is_unrolled = run.is_keras3() && self.unrolled(run.call, &[spec], CALLS[0]).0;
        if is_unrolled && run.output_count() == 1 {
            let turned = run.moved("Transpose", x, &[&[time, batch][..], rest].concat());
            let step = |_| {
                let step = run.row(turned);
                run.inner(&self.layer, &[step], 0).first().copied()
            };
            let steps: Option<Vec<_>> = (0..time).map(step).collect();
            let Some(stacked) = steps.and_then(|steps| run.stack(&steps)) else { return };
            let shape = run.out_shape(0);
            let y = run.moved("Transpose", stacked, shape);
            return run.finish(y);
        }
        // Time folded into the batch, which is what `vectorized_map` comes to as well.
        let merged = [&[batch.saturating_mul(time)][..], rest].concat();
        let flat = run.view("Reshape", x, &merged);
        let outputs = run.inner(&self.layer, &[flat], 0);
        for (j, y) in outputs.into_iter().enumerate() {
            let shape = run.out_shape(j);
            let y = run.view("Reshape", y, shape);
            run.bind(j, y);
        }
    }
}
