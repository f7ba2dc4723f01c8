//! What LSTM, GRU, SimpleRNN and RNN run under TensorFlow.
//!
//! keras/src/backend/tensorflow/rnn.py (3.15): LSTM and GRU run on cuDNN where their configuration is the default (`cudnn_ok`): the
//! sequence is turned time first, the weights become one vector, and the kernel keeps a reserve space whose size cuDNN does
//! not document; counted are the gates and states of each step. Everything else is a `While` over time, whose gradient
//! needs every step's gates and states, stacked.

use crate::run::Run;
use memfit_graph::kernels::Wire;

/// A recurrence over time.
pub(super) struct Recurrence {
    /// Elements of an output.
    pub(super) units: u64,
    /// Elements that one step keeps for backward: gates, states, their functions.
    pub(super) kept: u64,
    /// Whether cuDNN's kernel runs it.
    pub(super) fused: bool,
    /// Whether every step's output is given.
    pub(super) sequences: bool,
    /// Whether it runs from the end.
    pub(super) backwards: bool,
    /// Whether time comes before the batch.
    pub(super) time_major: bool,
}

impl Recurrence {
    /// Runs it; gives the output, and the last state.
    pub(super) fn run(&self, run: &mut Run<'_, '_>, x: Wire, weights: &[Wire]) -> (Wire, Wire) {
        let shape = run.shape(x).to_vec();
        let size = |i: usize| shape.get(i).copied().unwrap_or(1);
        let (batch, steps) = if self.time_major { (size(1), size(0)) } else { (size(0), size(1)) };
        let features = shape.iter().skip(2).fold(1, |n: u64, d| n.saturating_mul(*d));
        let mut x = x;
        if !self.time_major {
            x = run.moved("Transpose", x, &[steps, batch, features]);
        }
        if self.backwards {
            x = run.moved("ReverseV2", x, &[steps, batch, features]);
        }
        let mut weights = weights.to_vec();
        if self.fused {
            let mut total = 0_u64;
            let mut flat = Vec::new();
            for weight in weights {
                let elements = run.made(weight).elements();
                total = total.saturating_add(elements);
                let shape = run.shape(weight).to_vec();
                let turned = if shape.len() > 1 { run.moved("Transpose", weight, &shape) } else { weight };
                flat.push(run.view("Reshape", turned, &[elements]));
            }
            weights = vec![run.concat(&flat, &[total])];
        }
        let name = if self.fused { "CudnnRNNV3" } else { "While" };
        let (made, kept) = ([steps, batch, self.units], [steps, batch, self.kept]);
        let y = run.recurrence(name, x, &weights, &made, &kept);
        let last = run.moved("StridedSlice", y, &[batch, self.units]);
        if !self.sequences {
            return (last, last);
        }
        let y = if self.time_major { y } else { run.moved("Transpose", y, &[batch, steps, self.units]) };
        (y, last)
    }
}
