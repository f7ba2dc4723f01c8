//! ConvLSTM1D, ConvLSTM2D, ConvLSTM3D. Keras 2 and 3; one and three axes since 2.8.
//!
//! keras/src/layers/rnn/conv_lstm.py: an LSTM whose products are convolutions; the recurrent one pads so that the state keeps its size.

use super::LayerSpec;
use crate::activation::Activation;
use crate::layer::{Call, Keras, Layer, Weight};
use crate::run::Run;
use crate::spatial::Window;
use crate::spec::{self, Spec};
use memfit_graph::{Dim, OpError};
use serde::Deserialize;

/// A convolutional LSTM over the time axis.
#[derive(Clone, Debug, Deserialize)]
pub struct ConvLstm {
    /// How the window moves.
    #[serde(flatten)]
    pub window: Window,
    /// Channels of the state.
    pub filters: u64,
    /// Of the state.
    #[serde(default)]
    pub activation: Activation,
    /// Of the gates.
    #[serde(default)]
    pub recurrent_activation: Activation,
    /// Whether there is a bias.
    #[serde(default = "super::yes")]
    pub use_bias: bool,
    /// The fraction of the input that is dropped.
    #[serde(default)]
    pub dropout: f64,
    /// The fraction of the state that is dropped.
    #[serde(default)]
    pub recurrent_dropout: f64,
    /// Whether every step's output is given.
    #[serde(default)]
    pub return_sequences: bool,
    /// Whether the last states are given too.
    #[serde(default)]
    pub return_state: bool,
    /// Whether states stay from batch to batch.
    #[serde(default)]
    pub stateful: bool,
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &["ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"],
    keras: &[2, 3],
    build: |s| super::windowed(s, |layer: &mut ConvLstm| &mut layer.window),
}];

impl ConvLstm {
    /// One step's input, and the dims of a state.
    fn state(&self, inputs: &[Spec]) -> Result<(Spec, Vec<Dim>), OpError> {
        let x = spec::input_of_rank(inputs, 0, self.window.axes + 3)?;
        let step = x.with([x.dims()[0].clone()].into_iter().chain(x.dims()[2..].iter().cloned()));
        let sizes = self.window.sizes(&step)?;
        let state = self.window.shape(&step, sizes, self.filters);
        Ok((step, state))
    }
}

impl Layer for ConvLstm {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let (step, state) = self.state(inputs)?;
        let channels = self.window.channels(&step)?;
        let (window, width) = (self.window.kernel()?, spec::times(self.filters, 4)?);
        // Keras 3 names the cell's variables below the cell, Keras 2 below the layer.
        let of = |name: &str, shape: Vec<u64>| match call.facts.keras {
            Keras::V3 => call.weight(&format!("conv_lstm_cell/{name}"), shape),
            Keras::V2 => call.weight(name, shape),
        };
        let mut weights = vec![
            of("kernel", [&window[..], &[channels, width]].concat()),
            of("recurrent_kernel", [&window[..], &[self.filters, width]].concat()),
        ];
        if self.use_bias {
            weights.push(of("bias", vec![width]));
        }
        if self.stateful {
            let shape = state.iter().map(spec::number).collect::<Result<Vec<_>, _>>()?;
            weights.extend([call.state("rnn_state", shape.clone()), call.state("rnn_state", shape)]);
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let (_, state) = self.state(inputs)?;
        let mut output = state.clone();
        if self.return_sequences {
            output.insert(1, spec::input(inputs, 0)?.dims()[1].clone());
        }
        let mut outputs = vec![call.output(output)];
        if self.return_state {
            outputs.extend([call.output(state.clone()), call.output(state)]);
        }
        Ok(outputs)
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        // One `While` over time; each step keeps its gates, both states and their functions.
        let x = run.x(0);
        let weights: Vec<_> = (0..run.weights()).map(|k| run.weight(k)).collect();
        let shape = run.in_shape(0).to_vec();
        let steps = shape.get(1).copied().unwrap_or(1);
        let out = run.out_shape(0).to_vec();
        let one: Vec<u64> = if self.return_sequences {
            [&out[..1], out.get(2..).unwrap_or_default()].concat()
        } else {
            out.clone()
        };
        let mut kept = [&[steps][..], &one].concat();
        kept.last_mut().into_iter().for_each(|d| *d = d.saturating_mul(8));
        let turned = run.moved("Transpose", x, &shape);
        let y = run.recurrence("While", turned, &weights, &[&[steps][..], &one].concat(), &kept);
        let y = run.moved(if self.return_sequences { "Transpose" } else { "StridedSlice" }, y, &out);
        run.finish(y);
        for j in 1..run.output_count() {
            if run.wants(j) {
                let shape = run.out_shape(j);
                let state = run.moved("StridedSlice", y, shape);
                run.bind(j, state);
            }
        }
    }
}
