//! Ftrl. keras/src/optimizers/ftrl.py, 3.15: PyTorch has none of its own, so this is what Keras runs on its PyTorch backend.
//!
//! One parameter after the other. Every product is a new tensor, and a number beside a tensor is a scalar tensor of its own while
//! the two are computed with (backend/torch/numpy.py, `convert_to_tensor`). At the widest five are there: the gradient that is used,
//! the new sum of squares, its root, the old one's root and their difference.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use memfit_graph::Bytes;
use smallvec::smallvec;

struct Ftrl;

/// Ftrl alone.
pub(super) const ALL: &[&dyn Optimizer] = &[&Ftrl];

/// A number beside a tensor, as Keras makes a tensor of it (`floatx`).
const NUMBER: Bytes = Bytes(4);

/// What a tensor and a number make, or what follows from it: a scalar of half precision beside a number becomes float32.
fn made(step: &mut Recorder<'_>, label: &'static str, i: usize) -> u32 {
    let p = step.param(i);
    let bytes = if p.shape.is_empty() { p.bytes().max(NUMBER) } else { p.bytes() };
    step.value(label, i, bytes)
}

/// What a tensor and a number make; the number goes.
fn with_number(step: &mut Recorder<'_>, label: &'static str, i: usize) -> u32 {
    let number = step.value("number", i, NUMBER);
    let made = made(step, label, i);
    step.drop_value(number);
    made
}

/// What others make, which go.
fn from(step: &mut Recorder<'_>, label: &'static str, i: usize, of: &[u32]) -> u32 {
    let made = made(step, label, i);
    step.drop_values(of.to_vec());
    made
}

/// Copies a value into a variable, in the variable's dtype.
fn assign(step: &mut Recorder<'_>, i: usize, value: u32) {
    let p = step.param(i);
    if p.shape.is_empty() && p.bytes() < NUMBER {
        let cast = step.like("cast", i);
        step.drop_value(cast);
    }
    step.drop_value(value);
}

/// `l2 + beta / (2 * lr)`, and the learning rate.
fn numbers(step: &mut Recorder<'_>, i: usize) -> Vec<u32> {
    let rate = step.scalar("lr", i);
    let twice = step.scalar("2 * lr", i);
    let inverse = step.scalar("1 / (2 * lr)", i);
    let by = step.scalar("beta / (2 * lr)", i);
    step.drop_values(vec![inverse, twice]);
    let l2 = step.scalar("l2_reg", i);
    step.drop_value(by);
    vec![rate, l2]
}

impl Optimizer for Ftrl {
    fn name(&self) -> &'static str {
        "ftrl"
    }

    fn source(&self) -> &'static str {
        "keras.optimizers.Ftrl"
    }

    fn implementations(&self) -> &'static [OptimizerImpl] {
        &[OptimizerImpl::Loop]
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        smallvec![StateTensor::like("accumulator", p), StateTensor::like("linear", p)]
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], _: &StepConfig) {
        for &i in indices {
            let numbers = numbers(step, i);
            let shrunk = with_number(step, "l2_shrinkage * variable", i);
            let used = from(step, "grad_to_use", i, &[shrunk]);
            let square = step.like("square(gradient)", i);
            let accumulated = step.like("new_accum", i);
            step.drop_value(square);
            let after = with_number(step, "power(new_accum)", i);
            let before = with_number(step, "power(accum)", i);
            let difference = from(step, "power(new_accum) - power(accum)", i, &[after, before]);
            let sigma = from(step, "sigma", i, &[difference]);
            let product = from(step, "sigma * variable", i, &[sigma]);
            let by = from(step, "grad_to_use - sigma * variable", i, &[product]);
            let linear = made(step, "linear", i);
            assign(step, i, linear);
            step.drop_value(by);
            let power = with_number(step, "power(new_accum)", i);
            let scaled = from(step, "power(new_accum) / lr", i, &[power]);
            let twice = step.scalar("2 * l2_reg", i);
            let quadratic = from(step, "quadratic", i, &[scaled]);
            step.drop_value(twice);
            let bounds = [(); 2].map(|()| step.value("bound", i, NUMBER));
            let clipped = from(step, "linear_clipped", i, &bounds);
            let difference = made(step, "linear_clipped - linear", i);
            let value = from(step, "variable", i, &[difference]);
            assign(step, i, value);
            step.drop_values([numbers, vec![clipped, quadratic, accumulated, used]].concat());
        }
    }
}
