//! Adam, AdamW, Adam with AMSGrad. torch/optim/adam.py, 2.15 (AdamW is Adam with decoupled weight decay).
//!
//! Decoupled weight decay is in place; Adam's own makes a new gradient. foreach deletes it before it takes the square
//! roots, so weight decay does not raise foreach Adam's peak. The loop's `denom` of one parameter is alive while the
//! next one's is made.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use smallvec::smallvec;

pub(super) struct Adam {
    name: &'static str,
    aliases: &'static [&'static str],
    decoupled: bool,
    amsgrad: bool,
}

pub(super) const ADAMW: Adam = Adam { name: "adamw", aliases: &[], decoupled: true, amsgrad: false };

/// Adam and its two variants.
pub(super) const ALL: &[&dyn Optimizer] = &[
    &Adam { name: "adam", aliases: &[], decoupled: false, amsgrad: false },
    &ADAMW,
    &Adam { name: "amsgrad", aliases: &["adam-amsgrad"], decoupled: false, amsgrad: true },
];

impl Optimizer for Adam {
    fn name(&self) -> &'static str {
        self.name
    }

    fn aliases(&self) -> &'static [&'static str] {
        self.aliases
    }

    fn source(&self) -> &'static str {
        if self.decoupled { "torch.optim.AdamW" } else { "torch.optim.Adam" }
    }

    fn implementations(&self) -> &'static [OptimizerImpl] {
        &[OptimizerImpl::Foreach, OptimizerImpl::Fused, OptimizerImpl::Loop]
    }

    fn own_state(&self, p: &Parameter, how: &StepConfig) -> State {
        let mut state = smallvec![
            StateTensor::scalar("step", how.implementation == OptimizerImpl::Fused),
            StateTensor::like("exp_avg", p),
            StateTensor::like("exp_avg_sq", p),
        ];
        if self.amsgrad {
            state.push(StateTensor::like("max_exp_avg_sq", p));
        }
        state
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig) {
        let new_gradient = how.weight_decay && !self.decoupled;
        match how.implementation {
            OptimizerImpl::Fused => {}
            OptimizerImpl::Foreach => {
                for group in step.groups(indices) {
                    if new_gradient {
                        step.list("device_grads", &group);
                        step.release("device_grads");
                    }
                    step.list("exp_avg_sq_sqrt", &group);
                }
            }
            OptimizerImpl::Loop => {
                for &i in indices {
                    step.release("grad");
                    if new_gradient {
                        step.tensor("grad", i);
                    }
                    let sqrt = step.like("exp_avg_sq.sqrt()", i);
                    let denom = step.like("denom", i);
                    step.drop_value(sqrt);
                    step.bind("denom", vec![denom]);
                }
            }
        }
    }
}
