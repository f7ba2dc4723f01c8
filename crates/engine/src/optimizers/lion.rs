//! Lion. timm/optim/lion.py, 1.0.31. One moment; its update is one temporary. Weight decay is in place.
//!
//! timm may cut foreach's list into chunks by the card's L2 cache; the whole list is the bound.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use smallvec::smallvec;

struct Lion;

/// Lion alone.
pub(super) const ALL: &[&dyn Optimizer] = &[&Lion];

impl Optimizer for Lion {
    fn name(&self) -> &'static str {
        "lion"
    }

    fn source(&self) -> &'static str {
        "timm.optim.Lion"
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        smallvec![StateTensor::like("exp_avg", p)]
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig) {
        if how.implementation == OptimizerImpl::Loop {
            for &i in indices {
                step.tensor("update", i);
            }
        } else {
            step.list("updates", indices);
        }
    }
}
