//! LSTM and GRU on cuDNN under Keras' PyTorch backend.
//!
//! keras/src/backend/torch/rnn.py (3.15), `_cudnn_lstm` and `_cudnn_gru`: weights are turned around, a GRU's gates put in another order,
//! and all of them copied for each call; the biases that PyTorch has twice are zeros for an LSTM. `_cudnn_rnn` keeps its inputs and its
//! output (derivatives.yaml). What cuDNN keeps beside, its reserve and a buffer with the weights in its own layout, has no size that is
//! documented and is left out, as in PyTorch's shape functions.

use super::Torch;
use memfit_graph::ops::Traced;
use memfit_graph::ops::rnn::cudnn_rnn;
use memfit_graph::{Call, Grad, OutDtype, Place};

impl Torch<'_, '_> {
    /// Runs `[batch, time, features]` through `states` states of so many units; gives the output of each step.
    pub fn recurrent(&mut self, x: &Traced, units: u64, states: usize) -> Traced {
        let at = |axis: usize| x.shape.get(axis).copied().unwrap_or(1);
        let mut inputs = vec![x.clone()];
        for _ in 0..states {
            inputs.push(self.zeros(&[1, at(0), units]));
        }
        let is_gru = states == 1;
        for k in 0..2 {
            let weight = self.weight(k);
            let weight = if is_gru { self.reordered(&weight, &weight.shape) } else { weight };
            let turned = weight.transpose_last(self.l);
            inputs.push(self.contiguous(&turned));
        }
        let bias = self.weight(2);
        let width = bias.shape.last().copied().unwrap_or(0);
        if is_gru {
            inputs.extend([0, 1].map(|_| self.reordered(&bias, &[width])));
        } else {
            inputs.push(bias);
            inputs.push(self.zeros(&[width]));
        }
        cudnn_rnn(self.l, &inputs, &[at(0), at(1), units], states)
    }

    /// The gates of a variable, or of a row of it, in another order: `torch.cat` of its chunks.
    fn reordered(&mut self, weight: &Traced, shape: &[u64]) -> Traced {
        let call = Call::new("cat").input(weight.operand, Grad::New);
        Traced::of(self.l, call.output(shape, OutDtype::Like(0), Place::New), shape, &[weight])
    }

    fn zeros(&mut self, shape: &[u64]) -> Traced {
        let dtype = self.mixed.unwrap_or(self.l.dtype(self.tensors));
        let call = Call::new("zeros").output(shape, OutDtype::Is(dtype), Place::New);
        Traced::of(self.l, call, shape, &[])
    }
}
