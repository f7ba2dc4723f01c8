//! Averaged SGD. torch/optim/asgd.py, 2.15.
//!
//! Its three scalars are on the device in every implementation, which rounds to 1.5 KiB a parameter. The loop makes
//! nothing while `mu` is 1, for the first million steps; foreach always makes the difference to the average, and new
//! scalars by arithmetic on the device.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use memfit_graph::DType;
use smallvec::smallvec;

struct Asgd;

/// ASGD alone.
pub(super) const ALL: &[&dyn Optimizer] = &[&Asgd];

impl Optimizer for Asgd {
    fn name(&self) -> &'static str {
        "asgd"
    }

    fn source(&self) -> &'static str {
        "torch.optim.ASGD"
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        smallvec![
            StateTensor::scalar("step", true),
            StateTensor::scalar("eta", true),
            StateTensor::scalar("mu", true),
            StateTensor::like("ax", p),
        ]
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig) {
        if how.implementation == OptimizerImpl::Loop {
            for &i in indices {
                step.release("grad");
                if how.weight_decay {
                    step.tensor("grad", i);
                }
            }
            return;
        }
        let scalar = DType::Float32.size_of(1);
        for group in step.groups(indices) {
            for _ in ["grad + lambd * param", "param - ax"] {
                step.list("intermediate", &group);
                step.release("intermediate");
            }
            let mut new_etas = Vec::new();
            for &i in &group {
                let mut value = step.value("lambd * lr * step", i, scalar);
                for label in ["1 + …", "… ** alpha"] {
                    let next = step.value(label, i, scalar);
                    step.drop_value(value);
                    value = next;
                }
                let reciprocal = step.value("reciprocal", i, scalar);
                new_etas.push(step.value("new_etas", i, scalar));
                step.drop_values(vec![value, reciprocal]);
            }
            step.bind("new_etas", new_etas);
            let new_mus = group.iter().map(|i| step.value("new_mus", *i, scalar)).collect();
            step.bind("new_mus", new_mus);
        }
    }
}
