//! The frameworks' own numbers: what an allocator would hold over one training step, by running it on fake tensors.

mod file;

pub(super) use file::{read, read_all};
use memfit_engine::{Loss, OptimizerImpl, Precision};
use std::collections::BTreeMap;

/// A model's numbers.
pub(super) struct Reference {
    pub(super) model: String,
    pub(super) loss: Loss,
    /// Elements of its parameters, of frozen ones too.
    pub(super) parameters: u64,
    pub(super) cases: Vec<Case>,
}

/// One input size in one precision.
pub(super) struct Case {
    pub(super) batch: u64,
    pub(super) precision: String,
    /// Shapes of the inputs by name.
    pub(super) inputs: BTreeMap<String, Vec<u64>>,
    /// Bytes that autograd holds at the end of forward.
    pub(super) saved: u64,
    /// The same by the names of the nodes that hold them, `ConvolutionBackward0+ReluBackward0`; empty where not told.
    pub(super) holders: BTreeMap<String, u64>,
    pub(super) runs: Vec<Run>,
}

/// A whole step with one optimizer.
pub(super) struct Run {
    pub(super) optimizer: String,
    pub(super) peak: u64,
    pub(super) phase: String,
    /// What is alive at the peak, by short names: param, buffer, grad, act, temp, opt, oth.
    pub(super) breakdown: BTreeMap<String, u64>,
}

impl Case {
    /// The precision in memfit's words.
    pub(super) fn precision(&self) -> Option<Precision> {
        Some(match &*self.precision {
            "fp32" => Precision::Fp32,
            "amp_bf16" => Precision::MixedBf16,
            "amp_fp16" => Precision::MixedFp16,
            "bf16" => Precision::Bf16,
            "fp16" => Precision::Fp16,
            _ => return None,
        })
    }
}

impl Run {
    /// The optimizer's name and implementation in memfit's words, and whether it decays weights.
    pub(super) fn optimizer(&self) -> (&str, OptimizerImpl, bool) {
        let (name, implementation) = match self.optimizer.rsplit_once('_') {
            Some((name, "forloop")) => (name, OptimizerImpl::Loop),
            Some((name, "fused")) => (name, OptimizerImpl::Fused),
            Some((name, "foreach")) => (name, OptimizerImpl::Foreach),
            _ => (&*self.optimizer, OptimizerImpl::Foreach),
        };
        (name.strip_prefix("sgd_").unwrap_or(name), implementation, name == "adamw")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_optimizer_is_a_name_and_an_implementation() {
        let run = |optimizer: &str| Run {
            optimizer: optimizer.to_owned(),
            peak: 0,
            phase: String::new(),
            breakdown: BTreeMap::new(),
        };
        assert_eq!(run("sgd_momentum_forloop").optimizer(), ("momentum", OptimizerImpl::Loop, false));
        assert_eq!(run("adamw_fused").optimizer(), ("adamw", OptimizerImpl::Fused, true));
        assert_eq!(run("sgd").optimizer(), ("sgd", OptimizerImpl::Foreach, false));
    }
}
