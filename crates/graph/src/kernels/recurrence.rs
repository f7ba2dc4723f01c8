//! A recurrence over time as one kernel: cuDNN's, or a `While` with its stacked intermediates.
//!
//! Its gradient reads the sequence, the weights, the result and what forward kept for each step
//! (cudnn_rnn_grad.py, `_cudnn_rnn_backward_v3`; while_v2.py accumulates what the body's gradient reads).

use super::build::{incoming, new};
use super::{Flow, Kernel, Wire};

fn gradient(flow: &mut Flow, kernel: &Kernel, y: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let Some(dy) = incoming(grads).or_else(|| grads.iter().flatten().next().copied()) else {
        return vec![None; kernel.inputs.len()];
    };
    let kept = flow.output(y, 1);
    let reads = [&kernel.inputs[..], &[y, kept, dy]].concat();
    let made = kernel.inputs.iter().map(|w| new(flow.shape(*w), flow.dtype(*w))).collect();
    let name = if kernel.name == "While" { "WhileGrad" } else { "CudnnRNNBackpropV3" };
    let first = flow.push(name, &reads, made, None);
    (0..).zip(&kernel.inputs).map(|(i, _)| Some(flow.output(first, i))).collect()
}

impl Flow {
    /// Runs `x` (time first) through weights; gives the result for each step, with `kept` elements for backward beside it.
    pub fn recurrence(
        &mut self,
        name: &'static str,
        x: Wire,
        weights: &[Wire],
        shape: &[u64],
        kept: &[u64],
    ) -> Wire {
        let inputs = [&[x], weights].concat();
        let dtype = self.dtype(x);
        self.push(name, &inputs, vec![new(shape, dtype), new(kept, dtype)], Some(gradient))
    }
}
