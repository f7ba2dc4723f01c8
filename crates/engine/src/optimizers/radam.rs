//! RAdam. torch/optim/radam.py, 2.15. Written for the rectified branch (`rho_t > 5`, from the sixth step on with the
//! default betas). The loop's update is one Python expression of five tensors, of which four overlap.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use smallvec::smallvec;

struct RAdam;

/// RAdam alone.
pub(super) const ALL: &[&dyn Optimizer] = &[&RAdam];

impl Optimizer for RAdam {
    fn name(&self) -> &'static str {
        "radam"
    }

    fn source(&self) -> &'static str {
        "torch.optim.RAdam"
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        smallvec![
            StateTensor::scalar("step", false),
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
                step.tensor("bias_corrected_exp_avg", i);
                let times_lr = step.like("bias_corrected_exp_avg * lr", i);
                let sqrt = step.like("exp_avg_sq_sqrt", i);
                // A number divided by a tensor is the number times its reciprocal.
                let reciprocal = step.like("reciprocal", i);
                let adaptive_lr = step.like("_compute_adaptive_lr()", i);
                step.drop_values(vec![sqrt, reciprocal]);
                let adapted = step.like("… * _compute_adaptive_lr()", i);
                step.drop_values(vec![times_lr, adaptive_lr]);
                let update = step.like("… * _compute_rect()", i);
                step.drop_values(vec![adapted, update]);
            }
            return;
        }
        for group in step.groups(indices) {
            if how.weight_decay {
                step.list("grouped_grads", &group);
                step.release("grouped_grads");
            }
            step.list("buffer", &group);
        }
    }
}
