//! Adafactor. torch/optim/_adafactor.py, 2.15.
//!
//! Parameters of two or more dims keep a row and a column factor over their last two dims, others a full variance.
//! The loop is the default even on CUDA (the constructor's documentation says why), and its update of one parameter
//! is alive until the next one's is ready. foreach groups by dtype and by whether a parameter is factored.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use memfit_graph::{Bytes, Dims};
use smallvec::smallvec;

struct Adafactor;

/// Adafactor alone.
pub(super) const ALL: &[&dyn Optimizer] = &[&Adafactor];

/// The shape with the dim `from_last` (0 is the last) reduced to 1.
fn reduced(p: &Parameter, from_last: &[usize]) -> Dims {
    let rank = p.shape.len();
    let keep = |(i, dim): (usize, &u64)| if from_last.contains(&(rank - 1 - i)) { 1 } else { *dim };
    p.shape.iter().enumerate().map(keep).collect()
}

fn reduced_bytes(p: &Parameter, from_last: &[usize]) -> Bytes {
    Parameter { shape: reduced(p, from_last), dtype: p.dtype, is_table: false }.bytes()
}

/// The row factor, the column factor, and the mean of the row factor.
const ROWS: &[usize] = &[0];
const COLUMNS: &[usize] = &[1];
const ROW_MEANS: &[usize] = &[0, 1];

/// `tensor.norm(2).item()`.
fn norm(step: &mut Recorder<'_>, i: usize) {
    let norm = step.scalar("norm(2)", i);
    step.drop_value(norm);
}

fn reduced_list(
    step: &mut Recorder<'_>,
    name: &'static str,
    group: &[usize],
    from_last: &[usize],
) -> Vec<u32> {
    group.iter().map(|i| step.value(name, *i, reduced_bytes(step.param(*i), from_last))).collect()
}

fn one(step: &mut Recorder<'_>, i: usize) {
    norm(step, i);
    if step.param(i).shape.len() > 1 {
        for (name, from_last) in [("row_mean", ROWS), ("col_mean", COLUMNS)] {
            let mean = reduced_list(step, name, &[i], from_last);
            step.bind(name, mean);
        }
        step.tensor("var_estimate", i);
        let mean = reduced_list(step, "row_var.mean()", &[i], ROW_MEANS);
        step.drop_values(mean);
    } else {
        step.tensor("grad_squared", i);
        step.tensor("var_estimate", i);
    }
    step.alias("update", "var_estimate");
    norm(step, i);
}

fn many(step: &mut Recorder<'_>, group: &[usize], factored: bool) {
    for &i in group {
        norm(step, i);
    }
    if factored {
        for (name, from_last) in [("row_means", ROWS), ("col_means", COLUMNS)] {
            let means = reduced_list(step, name, group, from_last);
            step.drop_values(means);
        }
        step.list("var_estimates", group);
        let means = reduced_list(step, "row_var_means", group, ROW_MEANS);
        step.drop_values(means);
    } else {
        step.list("grads_squared", group);
        step.release("grads_squared");
        step.list("var_estimates", group);
    }
    step.alias("updates", "var_estimates");
    for &i in group {
        norm(step, i);
    }
}

impl Optimizer for Adafactor {
    fn name(&self) -> &'static str {
        "adafactor"
    }

    fn source(&self) -> &'static str {
        "torch.optim.Adafactor"
    }

    fn implementations(&self) -> &'static [OptimizerImpl] {
        &[OptimizerImpl::Loop, OptimizerImpl::Foreach]
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        let mut state = smallvec![StateTensor::scalar("step", false)];
        if p.shape.len() > 1 {
            state.push(StateTensor { shape: reduced(p, ROWS), ..StateTensor::like("row_var", p) });
            state.push(StateTensor { shape: reduced(p, COLUMNS), ..StateTensor::like("col_var", p) });
        } else {
            state.push(StateTensor::like("variance", p));
        }
        state
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig) {
        if how.implementation == OptimizerImpl::Loop {
            for &i in indices {
                one(step, i);
            }
            return;
        }
        for group in step.groups(indices) {
            let factored = |i: &usize| step.param(*i).shape.len() > 1;
            let (matrices, vectors): (Vec<usize>, Vec<usize>) = group.iter().partition(|i| factored(i));
            let mut parts = [(matrices, true), (vectors, false)];
            if !group.first().is_some_and(factored) {
                parts.reverse();
            }
            for (part, factored) in parts {
                if !part.is_empty() {
                    many(step, &part, factored);
                }
            }
        }
    }
}
