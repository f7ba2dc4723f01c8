//! LSTM, GRU, SimpleRNN with their cells, and the classes of older versions that ran on cuDNN alone. Keras 2 and 3.
//!
//! keras/src/layers/rnn/lstm.py, gru.py, simple_rnn.py: `kernel` `[features, gates * units]`, `recurrent_kernel` `[units, gates * units]`
//! and `bias`, which a GRU with `reset_after` has twice. They differ in the number of gates and states.

use super::LayerSpec;
use super::rnn::{around, step_outputs};
use crate::activation::Activation;
use crate::cell::{Cell, Drawn, Step};
use crate::layer::{Call, Keras, Layer, Weight};
use crate::reader::{Source, boxed};
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::OpError;
use memfit_graph::kernels::Wire;
use memfit_graph::ops::Traced;
use serde::Deserialize;

/// Which recurrence it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Gates {
    #[default]
    Simple,
    Gru,
    Lstm,
}

/// One step of a recurrence.
#[derive(Clone, Debug, Deserialize)]
pub struct RecurrentCell {
    /// Which it is, told by the class.
    #[serde(skip)]
    pub gates: Gates,
    /// Elements of a state.
    #[serde(deserialize_with = "crate::config::positive")]
    pub units: u64,
    /// Of the state.
    #[serde(default = "tanh")]
    pub activation: Activation,
    /// Of the gates.
    #[serde(default = "sigmoid")]
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
    /// Whether a GRU's reset gate is applied after the product; `None` is the version's default.
    #[serde(default)]
    pub reset_after: Option<bool>,
    /// Whether gates are computed apart (1) or together (2), in Keras 2.
    #[serde(default)]
    pub implementation: Option<u64>,
    /// Whether it has the variables of cuDNN's kernel (CuDNNLSTM, CuDNNGRU).
    #[serde(skip)]
    pub cudnn_only: bool,
}

fn tanh() -> Activation {
    Activation::Tanh
}

fn sigmoid() -> Activation {
    Activation::Sigmoid
}

fn cell(source: &Source<'_>) -> Result<RecurrentCell, String> {
    let class = source.class();
    let gates = match class {
        c if c.contains("LSTM") => Gates::Lstm,
        c if c.contains("GRU") => Gates::Gru,
        _ => Gates::Simple,
    };
    Ok(RecurrentCell { gates, cudnn_only: class.starts_with("CuDNN"), ..source.read()? })
}

fn layer(source: &Source<'_>) -> Result<std::sync::Arc<dyn Layer>, String> {
    let cell = cell(source)?;
    let (class, name) = match cell.gates {
        Gates::Simple => ("SimpleRNNCell", "simple_rnn_cell"),
        Gates::Gru => ("GRUCell", "gru_cell"),
        Gates::Lstm => ("LSTMCell", "lstm_cell"),
    };
    let can_fuse = cell.gates != Gates::Simple;
    around(source, cell, class, name, can_fuse)
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec { classes: &["GRU", "LSTM", "SimpleRNN"], keras: &[2, 3], build: layer },
    LayerSpec {
        classes: &["GRUV1", "GRUV2", "LSTMV1", "LSTMV2", "CuDNNGRU", "CuDNNLSTM"],
        keras: &[2],
        build: layer,
    },
    LayerSpec {
        classes: &["GRUCell", "LSTMCell", "SimpleRNNCell"],
        keras: &[2, 3],
        build: |s| boxed(cell(s)?),
    },
];

impl RecurrentCell {
    /// Whether a GRU's reset gate comes after the product. Keras 2 files from before `reset_after` have no such key, and meant false.
    pub(crate) fn resets_after(&self, keras: Keras) -> bool {
        self.reset_after.unwrap_or(keras == Keras::V3 || self.cudnn_only)
    }
}

impl Layer for RecurrentCell {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let features = spec::number(spec::input(inputs, 0)?.last()?)?;
        let width = spec::times(self.units, self.count() as u64)?;
        let mut weights = vec![
            call.weight("kernel", [features, width]),
            call.weight("recurrent_kernel", [self.units, width]),
        ];
        if self.use_bias {
            let after = self.resets_after(call.facts.keras);
            let bias = match (self.gates, after) {
                _ if self.cudnn_only => vec![spec::times(width, 2)?],
                (Gates::Gru, true) => vec![2, width],
                _ => vec![width],
            };
            weights.push(call.weight("bias", bias));
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        step_outputs(self, call, inputs)
    }

    fn cell(&self) -> Option<&dyn Cell> {
        Some(self)
    }
}

impl Cell for RecurrentCell {
    fn output(&self) -> u64 {
        self.units
    }

    fn states(&self) -> Vec<u64> {
        vec![self.units; if self.gates == Gates::Lstm { 2 } else { 1 }]
    }

    fn is_default(&self) -> bool {
        let gates = match self.gates {
            Gates::Simple => false,
            Gates::Gru => self.reset_after != Some(false),
            Gates::Lstm => true,
        };
        let functions =
            self.activation == Activation::Tanh && self.recurrent_activation == Activation::Sigmoid;
        gates && functions && self.use_bias
    }

    fn drops_state(&self) -> bool {
        self.recurrent_dropout > 0.0
    }

    fn draw(&self, run: &mut Run<'_, '_>, input: &[u64]) -> Drawn {
        self.drawn(run, input)
    }

    fn step(&self, run: &mut Run<'_, '_>, now: &Step<'_>) -> Vec<Wire> {
        self.stepped(run, now)
    }

    fn draw_aten(&self, run: &mut Torch<'_, '_>, input: &[u64]) -> Drawn<Traced> {
        let count = if self.is_split() { self.count() } else { 1 };
        let state = [input.first().copied().unwrap_or(1), self.units];
        let input = run.drawn(input, self.dropout, count);
        Drawn { input, state: run.drawn(&state, self.recurrent_dropout, count), cells: Vec::new() }
    }

    fn step_aten(&self, run: &mut Torch<'_, '_>, now: &Step<'_, Traced>) -> Vec<Traced> {
        run.cell_step(self, now).unwrap_or_default()
    }
}
