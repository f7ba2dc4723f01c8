//! RMSprop: plain, centered, with momentum. torch/optim/rmsprop.py, 2.15.
//!
//! One temporary of the denominators; weight decay adds a new gradient that lives as long. There is no fused one.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use smallvec::smallvec;

struct RmsProp {
    name: &'static str,
    centered: bool,
    momentum: bool,
}

/// Plain, centered, with momentum.
pub(super) const ALL: &[&dyn Optimizer] = &[
    &RmsProp { name: "rmsprop", centered: false, momentum: false },
    &RmsProp { name: "rmsprop-centered", centered: true, momentum: false },
    &RmsProp { name: "rmsprop-momentum", centered: false, momentum: true },
];

impl Optimizer for RmsProp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn source(&self) -> &'static str {
        "torch.optim.RMSprop"
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        let mut state = smallvec![StateTensor::scalar("step", false), StateTensor::like("square_avg", p)];
        if self.momentum {
            state.push(StateTensor::like("momentum_buffer", p));
        }
        if self.centered {
            state.push(StateTensor::like("grad_avg", p));
        }
        state
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig) {
        if how.implementation == OptimizerImpl::Loop {
            for &i in indices {
                step.release("grad");
                if how.weight_decay {
                    step.tensor("grad", i);
                }
                step.tensor("avg", i);
            }
            return;
        }
        for group in step.groups(indices) {
            step.release("grouped_grads");
            if how.weight_decay {
                step.list("grouped_grads", &group);
            }
            step.list("avg", &group);
        }
    }
}
