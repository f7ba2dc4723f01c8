//! SGD, with momentum, with Nesterov momentum. torch/optim/sgd.py, 2.15.
//!
//! Weight decay makes a new gradient (`grads + weight_decay * params`): a list as large as the model in foreach.
//! With plain momentum it is dropped as soon as the buffers took it in; Nesterov adds the buffers to it in place,
//! which without weight decay overwrites the gradients themselves, while the loop makes a new tensor.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use smallvec::smallvec;

struct Sgd {
    name: &'static str,
    aliases: &'static [&'static str],
    momentum: bool,
    nesterov: bool,
}

/// Plain, with momentum, with Nesterov momentum.
pub(super) const ALL: &[&dyn Optimizer] = &[
    &Sgd { name: "sgd", aliases: &[], momentum: false, nesterov: false },
    &Sgd { name: "momentum", aliases: &["sgd-momentum", "sgdm"], momentum: true, nesterov: false },
    &Sgd { name: "nesterov", aliases: &["sgd-nesterov", "nag"], momentum: true, nesterov: true },
];

impl Optimizer for Sgd {
    fn name(&self) -> &'static str {
        self.name
    }

    fn aliases(&self) -> &'static [&'static str] {
        self.aliases
    }

    fn source(&self) -> &'static str {
        "torch.optim.SGD"
    }

    fn implementations(&self) -> &'static [OptimizerImpl] {
        &[OptimizerImpl::Foreach, OptimizerImpl::Fused, OptimizerImpl::Loop]
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        if self.momentum { smallvec![StateTensor::like("momentum_buffer", p)] } else { State::new() }
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig) {
        match how.implementation {
            OptimizerImpl::Fused => {}
            OptimizerImpl::Foreach => {
                for group in step.groups(indices) {
                    step.release("device_grads");
                    if how.weight_decay {
                        step.list("device_grads", &group);
                    }
                    if self.momentum && !self.nesterov {
                        step.release("device_grads");
                    }
                }
            }
            OptimizerImpl::Loop => {
                for &i in indices {
                    step.release("grad");
                    if how.weight_decay {
                        step.tensor("grad", i);
                    }
                    if self.nesterov {
                        step.tensor("grad", i);
                    } else if self.momentum {
                        step.release("grad");
                    }
                }
            }
        }
    }
}
