//! Muon. torch/optim/_muon.py, 2.15; keras/src/optimizers/muon.py, 3.15.
//!
//! Muon takes matrices only; its documentation hands every other parameter, and embeddings, to AdamW, which is what is assumed here
//! (Keras does so itself: `_should_use_adamw`, `exclude_embeddings`). Its Newton-Schulz
//! iteration runs in bfloat16, one matrix after the other: there is no foreach.

use super::adam::ADAMW;
use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use memfit_graph::DType;
use smallvec::smallvec;

struct Muon;

/// Muon alone.
pub(super) const ALL: &[&dyn Optimizer] = &[&Muon];

/// Iterations of Newton-Schulz, the constructor's default.
const NS_STEPS: usize = 5;

pub(super) fn is_matrix(p: &Parameter) -> bool {
    p.shape.len() == 2 && !p.is_table
}

/// `_zeropower_via_newtonschulz`: returns the orthogonalised update.
fn newton_schulz(step: &mut Recorder<'_>, i: usize) -> u32 {
    let p = step.param(i);
    let bytes = DType::Bfloat16.size_of(p.elements());
    let side = p.shape.iter().copied().min().unwrap_or(0);
    let gram_bytes = DType::Bfloat16.size_of(side.saturating_mul(side));
    let mut ortho_grad = step.value("ortho_grad", i, bytes);
    let norm = step.value("norm()", i, DType::Bfloat16.size_of(1));
    let clamped = step.value("clamp()", i, DType::Bfloat16.size_of(1));
    step.drop_values(vec![clamped, norm]);
    for _ in 0..NS_STEPS {
        for name in ["gram_matrix", "gram_update"] {
            let gram = step.value(name, i, gram_bytes);
            step.bind(name, vec![gram]);
        }
        let next = step.value("ortho_grad", i, bytes);
        step.drop_value(ortho_grad);
        ortho_grad = next;
    }
    step.release("gram_matrix");
    step.release("gram_update");
    ortho_grad
}

impl Optimizer for Muon {
    fn name(&self) -> &'static str {
        "muon"
    }

    fn source(&self) -> &'static str {
        "torch.optim.Muon for matrices, torch.optim.AdamW for the rest"
    }

    fn own_state(&self, p: &Parameter, how: &StepConfig) -> State {
        if is_matrix(p) {
            smallvec![StateTensor::like("momentum_buffer", p)]
        } else {
            ADAMW.own_state(p, how)
        }
    }

    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig) {
        let (matrices, others): (Vec<usize>, Vec<usize>) =
            indices.iter().partition(|i| is_matrix(step.param(**i)));
        for i in matrices {
            step.tensor("update", i);
            let update = newton_schulz(step, i);
            step.bind("update", vec![update]);
        }
        step.end_function();
        if !others.is_empty() {
            let how = StepConfig { implementation: ADAMW.implementation(how.implementation), ..*how };
            ADAMW.record(step, &others, &how);
        }
    }

    fn implementations(&self) -> &'static [OptimizerImpl] {
        &[OptimizerImpl::Foreach, OptimizerImpl::Loop, OptimizerImpl::Fused]
    }
}
