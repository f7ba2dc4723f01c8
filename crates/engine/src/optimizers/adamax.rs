//! Adamax. torch/optim/adamax.py, 2.15. foreach takes the absolute values of the gradients: in a new list, or in
//! weight decay's, so weight decay costs nothing more there.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use smallvec::smallvec;

struct Adamax;

/// Adamax alone.
pub(super) const ALL: &[&dyn Optimizer] = &[&Adamax];

impl Optimizer for Adamax {
    fn name(&self) -> &'static str {
        "adamax"
    }

    fn source(&self) -> &'static str {
        "torch.optim.Adamax"
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        smallvec![
            StateTensor::scalar("step", false),
            StateTensor::like("exp_avg", p),
            StateTensor::like("exp_inf", p),
        ]
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig) {
        if how.implementation == OptimizerImpl::Loop {
            for &i in indices {
                step.release("grad");
                if how.weight_decay {
                    step.tensor("grad", i);
                }
                let abs = step.like("grad.abs()", i);
                step.drop_value(abs);
            }
            return;
        }
        for group in step.groups(indices) {
            step.release("grouped_grads");
            step.list("grouped_grads", &group);
        }
    }
}
