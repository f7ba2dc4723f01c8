//! Rprop. torch/optim/rprop.py, 2.15. It has no weight decay.
//!
//! Setting elements by a mask makes the mask (1 byte an element); a scalar parameter's mask becomes an int64 index
//! besides. In foreach the loop variable `sign` still holds the last sign after `del signs`.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use memfit_graph::DType;
use smallvec::smallvec;

struct Rprop;

/// Rprop alone.
pub(super) const ALL: &[&dyn Optimizer] = &[&Rprop];

/// `tensor[mask] = number`.
fn set_by_mask(step: &mut Recorder<'_>, i: usize) {
    let p = step.param(i);
    let mask = step.value("mask", i, DType::Bool.size_of(p.elements()));
    if p.shape.is_empty() {
        let index = step.value("index", i, DType::Int64.size_of(1));
        step.drop_value(index);
    }
    step.drop_value(mask);
}

impl Optimizer for Rprop {
    fn name(&self) -> &'static str {
        "rprop"
    }

    fn source(&self) -> &'static str {
        "torch.optim.Rprop"
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        smallvec![
            StateTensor::scalar("step", false),
            StateTensor::like("prev", p),
            StateTensor::like("step_size", p),
        ]
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig) {
        if how.implementation == OptimizerImpl::Loop {
            for &i in indices {
                step.release("grad");
                let product = step.like("grad.mul(prev)", i);
                let sign = step.like("sign", i);
                step.drop_value(product);
                step.bind("sign", vec![sign]);
                for _ in 0..3 {
                    set_by_mask(step, i);
                }
                step.tensor("grad", i);
                set_by_mask(step, i);
                let sign = step.like("grad.sign()", i);
                step.drop_value(sign);
            }
            return;
        }
        for group in step.groups(indices) {
            step.list("signs", &group);
            step.alias("sign", "signs");
            for &i in &group {
                for _ in 0..3 {
                    set_by_mask(step, i);
                }
            }
            for &i in &group {
                let mask = step.value("signs.eq()", i, DType::Bool.size_of(step.param(i).elements()));
                let zero = step.scalar("0", i);
                let chosen = step.like("where()", i);
                step.drop_values(vec![chosen, mask, zero]);
            }
            step.release("signs");
            step.keep_last("sign");
            step.list("grad_signs", &group);
        }
    }
}
