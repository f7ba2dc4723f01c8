//! LAMB. timm/optim/lamb.py, 1.0.31, after apex's FusedLAMB.
//!
//! Gradients are clipped by their global norm (`max_grad_norm=1.0` is the default), out of place: three lists in
//! foreach, clipped gradients, denominators and updates. The trust ratio applies where weight decay is on.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig, trust};
use crate::OptimizerImpl;
use memfit_graph::DType;
use smallvec::smallvec;

struct Lamb;

/// LAMB alone.
pub(super) const ALL: &[&dyn Optimizer] = &[&Lamb];

/// `_get_clip_grad_norm`: stays bound as `clip_grad_norm` to the end of the step.
fn clip(step: &mut Recorder<'_>, indices: &[usize]) {
    let dtype = indices.iter().map(|i| step.param(*i).dtype).reduce(DType::promote).unwrap_or(DType::Float32);
    let Some(&first) = indices.first() else { return };
    let norms = trust::scalars(step, "norms", indices);
    let stack = step.value("torch.stack(norms)", first, dtype.size_of(indices.len() as u64));
    let global = step.value("global_norm", first, dtype.size_of(1));
    step.drop_value(stack);
    let clip = step.value("clip_grad_norm", first, dtype.size_of(1));
    step.drop_value(global);
    step.drop_values(norms);
    step.bind("clip_grad_norm", vec![clip]);
}

/// `w_norm / g_norm`, guarded.
fn ratio(step: &mut Recorder<'_>, i: usize, elements: u64) -> u32 {
    let quotient = step.value("trust_ratio", i, step.param(i).dtype.size_of(elements));
    trust::guarded(step, i, elements, quotient)
}

/// The same in foreach, where the norm of the update is scaled first and the ratio becomes a step size.
fn step_size(step: &mut Recorder<'_>, i: usize, elements: u64) -> u32 {
    let bytes = step.param(i).dtype.size_of(elements);
    let scaled = step.value("g * scale", i, bytes);
    let ratio = ratio(step, i, elements);
    step.drop_value(scaled);
    let size = step.value("step_sizes", i, bytes);
    step.drop_value(ratio);
    size
}

impl Optimizer for Lamb {
    fn name(&self) -> &'static str {
        "lamb"
    }

    fn source(&self) -> &'static str {
        "timm.optim.Lamb"
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        smallvec![StateTensor::like("exp_avg", p), StateTensor::like("exp_avg_sq", p)]
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig) {
        clip(step, indices);
        if how.implementation == OptimizerImpl::Loop {
            for &i in indices {
                step.release("grad");
                step.tensor("grad", i);
                let sqrt = step.like("exp_avg_sq.sqrt()", i);
                let denom = step.like("denom", i);
                step.drop_value(sqrt);
                step.bind("denom", vec![denom]);
                step.tensor("update", i);
                if how.weight_decay {
                    let norms = trust::norms(step, &[i]);
                    let ratio = ratio(step, i, 1);
                    step.drop_values(norms);
                    step.drop_value(ratio);
                }
            }
            return;
        }
        for name in ["grads", "denom", "updates"] {
            step.list(name, indices);
        }
        if how.weight_decay {
            let sizes = trust::ratios(step, indices, step_size);
            step.bind("step_sizes", sizes);
        }
    }
}
