//! Adadelta. torch/optim/adadelta.py, 2.15. Two temporaries, the denominators and the deltas; weight decay adds a
//! new gradient that lives as long.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use smallvec::smallvec;

struct Adadelta;

/// Adadelta alone.
pub(super) const ALL: &[&dyn Optimizer] = &[&Adadelta];

impl Optimizer for Adadelta {
    fn name(&self) -> &'static str {
        "adadelta"
    }

    fn source(&self) -> &'static str {
        "torch.optim.Adadelta"
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        smallvec![
            StateTensor::scalar("step", false),
            StateTensor::like("square_avg", p),
            StateTensor::like("acc_delta", p),
        ]
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig) {
        if how.implementation == OptimizerImpl::Loop {
            for &i in indices {
                step.release("grad");
                if how.weight_decay {
                    step.tensor("grad", i);
                }
                step.tensor("std", i);
                step.tensor("delta", i);
            }
            return;
        }
        for group in step.groups(indices) {
            step.release("device_grads");
            if how.weight_decay {
                step.list("device_grads", &group);
            }
            step.list("std", &group);
            step.list("deltas", &group);
        }
    }
}
