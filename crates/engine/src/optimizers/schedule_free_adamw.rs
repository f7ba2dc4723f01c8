//! Schedule-free AdamW. keras/src/optimizers/schedule_free_adamw.py, 3.15: PyTorch has none of its own, so this is what Keras runs on
//! its PyTorch backend, one parameter after the other.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig, keras};
use crate::OptimizerImpl;
use smallvec::smallvec;

struct ScheduleFreeAdamW;

/// Schedule-free AdamW alone.
pub(super) const ALL: &[&dyn Optimizer] = &[&ScheduleFreeAdamW];

impl Optimizer for ScheduleFreeAdamW {
    fn name(&self) -> &'static str {
        keras::SCHEDULE_FREE.0
    }

    fn source(&self) -> &'static str {
        "keras.optimizers.ScheduleFreeAdamW"
    }

    fn implementations(&self) -> &'static [OptimizerImpl] {
        &[OptimizerImpl::Loop]
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        smallvec![StateTensor::like("momentum", p), StateTensor::like("velocity", p)]
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], _: &StepConfig) {
        for &i in indices {
            keras::letters(step, keras::SCHEDULE_FREE.1, i..i + 1);
        }
    }
}
