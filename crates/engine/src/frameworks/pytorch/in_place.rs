//! Which functions write over their input.
//!
//! Models run `ReLU(inplace=True)` wherever they can, torchvision's and timm's throughout; an exported file does not tell. What
//! is kept for backward is the same either way, since the function keeps its output (derivatives.yaml: `threshold_backward`
//! reads `result`); but a tensor more in forward leaves other holes behind, and with them other segments: reserved memory of
//! published runs (GPUMemNet's measurements, residual networks, batches of 8 to 128) is met in place, and missed by a
//! twentieth out of place.

use super::tape::{Edge, Tape, TensorRef};
use memfit_graph::DType;

/// Functions whose backward reads the output.
const IN_PLACE: &[&str] = &["relu"];

impl Tape {
    /// Whether a function writes over its first input: nobody reads or holds that afterwards, and nothing is converted. Fake
    /// tensors are compared with models whose code is known, where this is not assumed.
    pub(super) fn overwrites(&self, function: &str, inputs: &[TensorRef], dtype: DType) -> bool {
        let Some(tensor) = inputs.first().map(|t| self.tensor(*t)) else { return false };
        self.kernels.is_some()
            && self.input_is_last_use
            && IN_PLACE.contains(&function)
            && tensor.dtype == dtype
            && matches!(tensor.edge, Edge::Node { .. })
            && self.memory.references(tensor.storage) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::tape::NodeRef;
    use super::super::workspace::Kernels;
    use super::*;
    use crate::Category;

    #[test]
    fn a_tensor_that_somebody_holds_is_not_written_over() {
        let mut tape = Tape::new(None, true);
        tape.kernels = Some(Kernels::of(&crate::Plan::default()));
        tape.input_is_last_use = true;
        let x = tape.new_tensor(&[4], DType::Float32, Category::Activation, "x");
        tape.tensors[x.0 as usize].edge = Edge::Node { node: NodeRef(0), output: 0 };
        let storage = tape.tensor(x).storage;
        assert!(tape.overwrites("relu", &[x], DType::Float32));
        assert!(!tape.overwrites("gelu", &[x], DType::Float32));
        tape.memory.hold(storage);
        assert!(!tape.overwrites("relu", &[x], DType::Float32));
    }
}
