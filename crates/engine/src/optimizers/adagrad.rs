//! Adagrad. torch/optim/adagrad.py, 2.15. Its sum exists from the constructor on.
//!
//! foreach holds two lists, the denominators and the numerators; with weight decay the new gradient is the numerator,
//! so weight decay costs nothing more.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use smallvec::smallvec;

struct Adagrad;

/// Adagrad alone.
pub(super) const ALL: &[&dyn Optimizer] = &[&Adagrad];

impl Optimizer for Adagrad {
    fn name(&self) -> &'static str {
        "adagrad"
    }

    fn source(&self) -> &'static str {
        "torch.optim.Adagrad"
    }

    fn implementations(&self) -> &'static [OptimizerImpl] {
        &[OptimizerImpl::Foreach, OptimizerImpl::Fused, OptimizerImpl::Loop]
    }

    fn own_state(&self, p: &Parameter, how: &StepConfig) -> State {
        let fused = how.implementation == OptimizerImpl::Fused;
        smallvec![StateTensor::scalar("step", fused), StateTensor::like("sum", p)]
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig) {
        match how.implementation {
            OptimizerImpl::Fused => {}
            OptimizerImpl::Foreach => {
                for group in step.groups(indices) {
                    step.release("device_grads");
                    if how.weight_decay {
                        step.list("device_grads", &group);
                        step.list("std", &group);
                        step.alias("numerator", "device_grads");
                    } else {
                        step.list("std", &group);
                        step.list("numerator", &group);
                    }
                }
            }
            OptimizerImpl::Loop => {
                for &i in indices {
                    step.release("grad");
                    if how.weight_decay {
                        step.tensor("grad", i);
                    }
                    step.tensor("std", i);
                }
            }
        }
    }
}
