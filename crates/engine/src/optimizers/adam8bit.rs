//! 8-bit Adam and AdamW, block-wise. bitsandbytes/optim/optimizer.py (`Optimizer2State`), 0.50.2.
//!
//! Both moments of a parameter of 4,096 elements or more are uint8 with one float32 maximum per block of 256 elements
//! (2,048 before 0.45); smaller ones are float32 whatever the parameter's dtype. Two tables of 256 float32 are
//! shared by all parameters. The kernels update in place.
//!
//! An embedding's moments are float32 only where somebody registers its table so (`GlobalOptimManager`; bitsandbytes' own
//! `StableEmbedding`, and transformers' Trainer with `adamw_bnb_8bit` for each `nn.Embedding`); that is not counted here.

use super::{Optimizer, Parameter, Recorder, State, StateTensor, StepConfig};
use crate::OptimizerImpl;
use memfit_graph::DType;

struct Adam8bit {
    name: &'static str,
    aliases: &'static [&'static str],
}

/// Adam and AdamW.
pub(super) const ALL: &[&dyn Optimizer] = &[
    &Adam8bit { name: "adam8bit", aliases: &["adam-bnb-8bit"] },
    &Adam8bit { name: "adamw8bit", aliases: &["adamw-bnb-8bit"] },
];

/// Parameters with fewer elements keep float32 moments.
const MIN_ELEMENTS: u64 = 4096;
const BLOCK: u64 = 256;

impl Optimizer for Adam8bit {
    fn name(&self) -> &'static str {
        self.name
    }

    fn aliases(&self) -> &'static [&'static str] {
        self.aliases
    }

    fn source(&self) -> &'static str {
        "bitsandbytes.optim.Adam8bit"
    }

    fn implementations(&self) -> &'static [OptimizerImpl] {
        &[OptimizerImpl::Fused]
    }

    fn own_state(&self, p: &Parameter, _: &StepConfig) -> State {
        let elements = p.elements();
        let small = elements < MIN_ELEMENTS;
        let dtype = if small { DType::Float32 } else { DType::Uint8 };
        let mut state: State = ["state1", "state2"]
            .map(|label| StateTensor { dtype, ..StateTensor::like(label, p) })
            .into_iter()
            .collect();
        if !small {
            state.extend(["absmax1", "absmax2"].map(|label| StateTensor {
                label,
                shape: [elements.div_ceil(BLOCK)].as_slice().into(),
                dtype: DType::Float32,
                on_device: true,
            }));
        }
        state
    }

    fn shared_state(&self, params: &[Parameter], _: &StepConfig) -> Vec<StateTensor> {
        if params.iter().all(|p| p.elements() < MIN_ELEMENTS) {
            return Vec::new();
        }
        let table = |label| StateTensor {
            label,
            shape: [256].as_slice().into(),
            dtype: DType::Float32,
            on_device: true,
        };
        vec![table("qmap1"), table("qmap2")]
    }

    fn record(&self, _: &mut Recorder<'_>, _: &[usize], _: &StepConfig) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::Bytes;

    #[test]
    fn moments_are_bytes_from_4096_elements_on() {
        let bytes = |n| {
            let p = Parameter { shape: [n].as_slice().into(), dtype: DType::Bfloat16, is_table: false };
            ALL[0].state(&p, &StepConfig::default()).iter().map(StateTensor::device_bytes).sum::<Bytes>()
        };
        assert_eq!(bytes(4095), Bytes(2 * 4 * 4095));
        assert_eq!(bytes(4097), Bytes(2 * (4097 + 17 * 4)));
    }
}
