//! NAdam. torch/optim/nadam.py, 2.15. `mu_product` is a scalar on the CPU, as `step` is. Unlike Adam's, foreach
//! keeps weight decay's new gradient to the end, beside the square roots.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use smallvec::smallvec;

struct NAdam;

/// NAdam alone.
pub(super) const ALL: &[&dyn Optimizer] = &[&NAdam];

impl Optimizer for NAdam {
    fn name(&self) -> &'static str {
        "nadam"
    }

    fn source(&self) -> &'static str {
        "torch.optim.NAdam"
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        smallvec![
            StateTensor::scalar("step", false),
            StateTensor::scalar("mu_product", false),
            StateTensor::like("exp_avg", p),
            StateTensor::like("exp_avg_sq", p),
        ]
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig) {
        if how.implementation == OptimizerImpl::Loop {
            for &i in indices {
                step.release("grad");
                if how.weight_decay {
                    step.tensor("grad", i);
                }
                let quotient = step.like("exp_avg_sq.div()", i);
                let denom = step.like("denom", i);
                step.drop_value(quotient);
                step.bind("denom", vec![denom]);
            }
            return;
        }
        for group in step.groups(indices) {
            step.release("grouped_grads");
            if how.weight_decay {
                step.list("grouped_grads", &group);
            }
            step.list("exp_avg_sq_sqrt", &group);
        }
    }
}
