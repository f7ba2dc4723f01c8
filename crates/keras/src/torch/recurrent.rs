//! LSTM and GRU on cuDNN under Keras' PyTorch backend.
//!
//! keras/src/backend/torch/rnn.py (3.15), `_cudnn_lstm` and `_cudnn_gru`: weights are turned around, a GRU's gates put in another order,
//! and all of them copied for each call; the biases that PyTorch has twice are zeros for an LSTM. `_cudnn_rnn` keeps its inputs and its
//! output (derivatives.yaml), beside cuDNN's reserve. A buffer with the weights in cuDNN's own layout has no size that is documented and is
//! left out, as in PyTorch's shape functions.

use super::Torch;
use memfit_graph::ops::Traced;
use memfit_graph::ops::rnn::{self, Cell, cudnn_rnn};
use memfit_graph::{Call, Grad, OutDtype, Place};

impl Torch<'_, '_> {
    /// Runs `[batch, time, features]` through `states` states of so many units, in one direction or in both; gives the output of each step.
    /// `given` are the states that it begins with, where not with zeros, `held` is what the layer made of its input before.
    pub fn recurrent(
        &mut self,
        x: &Traced,
        [states, directions]: [usize; 2],
        units: u64,
        given: &[Traced],
        held: &[Traced],
    ) -> Traced {
        let at = |axis: usize| x.shape.get(axis).copied().unwrap_or(1);
        let mut inputs = vec![x.clone()];
        let begin = [directions as u64, at(0), units];
        if directions > 1 {
            let zeros = self.zeros(&[at(0), units]);
            let both = [zeros.clone(), zeros];
            inputs.extend((0..states).map(|_| self.cat(&both, &begin)));
        } else if given.is_empty() {
            inputs.extend((0..states).map(|_| self.zeros(&begin)));
        } else {
            inputs.extend(given.iter().map(|state| state.reshape(self.l, &begin)));
        }
        // Names of Python functions hold them.
        let mut held = held.to_vec();
        for direction in 0..directions {
            self.cudnn_weights(3 * direction, states == 1, &mut inputs, &mut held);
        }
        let cell = if states == 1 { Cell::Gru } else { Cell::Lstm };
        let kept = rnn::reserve(cell, units).saturating_mul(directions as u64);
        let output = [at(0), at(1), units.saturating_mul(directions as u64)];
        cudnn_rnn(self.l, &inputs, &held, &output, [states as u64, kept])
    }

    /// The weights of one direction as cuDNN takes them (`prepare_lstm_params`).
    fn cudnn_weights(
        &mut self,
        first: usize,
        is_gru: bool,
        inputs: &mut Vec<Traced>,
        held: &mut Vec<Traced>,
    ) {
        for k in 0..2 {
            let weight = self.weight(first + k);
            held.push(weight.clone());
            let weight = if is_gru { self.reordered(&weight, &weight.shape) } else { weight };
            let turned = weight.transpose_last(self.l);
            inputs.push(self.contiguous(&turned));
        }
        let bias = self.weight(first + 2);
        let width = bias.shape.last().copied().unwrap_or(0);
        if is_gru {
            inputs.extend([0, 1].map(|_| self.reordered(&bias, &[width])));
        } else {
            inputs.push(bias);
            inputs.push(self.zeros(&[width]));
        }
    }

    /// The gates of a variable, or of a row of it, in another order: `torch.cat` of its chunks.
    fn reordered(&mut self, weight: &Traced, shape: &[u64]) -> Traced {
        let call = Call::new("cat").input(weight.operand, Grad::New);
        Traced::of(self.l, call.output(shape, OutDtype::Like(0), Place::New), shape, &[weight])
    }

    /// Zeros in the dtype that the layer computes in.
    pub(crate) fn zeros(&mut self, shape: &[u64]) -> Traced {
        let dtype = self.mixed.unwrap_or(self.l.dtype(self.variables[0]));
        let call = Call::new("zeros").output(shape, OutDtype::Is(dtype), Place::New);
        Traced::of(self.l, call, shape, &[])
    }
}
