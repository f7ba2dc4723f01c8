//! LARS with momentum. timm/optim/lars.py, 1.0.31.
//!
//! The ratio applies where weight decay is on (timm's default `always_adapt=False`); without weight decay LARS is SGD
//! with momentum.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig, trust};
use crate::OptimizerImpl;
use smallvec::smallvec;

struct Lars;

/// LARS alone.
pub(super) const ALL: &[&dyn Optimizer] = &[&Lars];

/// `trust_coeff * w_norm / (g_norm + w_norm * weight_decay + eps)`, guarded.
fn ratio(step: &mut Recorder<'_>, i: usize, elements: u64) -> u32 {
    let bytes = step.param(i).dtype.size_of(elements);
    let numerator = step.value("trust_coeff * w_norm", i, bytes);
    let decay = step.value("w_norm * weight_decay", i, bytes);
    let sum = step.value("g_norm + …", i, bytes);
    step.drop_value(decay);
    let denominator = step.value("… + eps", i, bytes);
    step.drop_value(sum);
    let ratio = step.value("trust_ratio", i, bytes);
    step.drop_values(vec![numerator, denominator]);
    trust::guarded(step, i, elements, ratio)
}

impl Optimizer for Lars {
    fn name(&self) -> &'static str {
        "lars"
    }

    fn source(&self) -> &'static str {
        "timm.optim.Lars"
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        smallvec![StateTensor::like("momentum_buffer", p)]
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig) {
        if !how.weight_decay {
            return;
        }
        if how.implementation == OptimizerImpl::Loop {
            for &i in indices {
                let norms = trust::norms(step, &[i]);
                let ratio = ratio(step, i, 1);
                step.drop_values(norms);
                step.bind("trust_ratio", vec![ratio]);
                step.tensor("grad", i);
                step.release("grad");
            }
            return;
        }
        let ratios = trust::ratios(step, indices, ratio);
        step.bind("trust_ratios", ratios);
        step.list("grads", indices);
        step.release("grads");
    }
}
