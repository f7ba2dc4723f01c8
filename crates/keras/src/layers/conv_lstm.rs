//! ConvLSTM1D, ConvLSTM2D, ConvLSTM3D. Keras 2 and 3; one and three axes since 2.8.
//!
//! keras/src/layers/rnn/conv_lstm.py: an LSTM whose products are convolutions; the recurrent one pads so that the state keeps its size.

use super::LayerSpec;
use super::gates::{masked, masks, parts};
use super::recurrence::{Body, Recurrence, begin};
use super::rnn::RnnOptions;
use crate::activation::Activation;
use crate::cell::Drawn;
use crate::layer::{Call, Keras, Layer, Weight};
use crate::run::Run;
use crate::spatial::{Padding, Window, one};
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::kernels::Wire;
use memfit_graph::ops::Traced;
use memfit_graph::{Dim, OpError};
use serde::Deserialize;

/// A convolutional LSTM over the time axis.
#[derive(Clone, Debug, Deserialize)]
pub struct ConvLstm {
    /// How the window moves.
    #[serde(skip)]
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
    /// Whether it runs from the end.
    #[serde(default)]
    pub go_backwards: bool,
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &["ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"],
    keras: &[2, 3],
    build: |s| super::windowed(s, |layer: &mut ConvLstm| &mut layer.window),
}];

/// Those of an LSTM.
const GATES: usize = 4;

impl ConvLstm {
    /// One step (`ConvLSTMCell.call`): each gate has convolutions of its own, whose kernels are cut in every step.
    fn step(&self, run: &mut Run<'_, '_>, x: Wire, [h, c]: [Wire; 2], drawn: &Drawn) -> Option<Vec<Wire>> {
        let (state, axes) = (run.shape(h).to_vec(), self.window.axes);
        let name = if axes == 3 { "Conv3D" } else { "Conv2D" };
        let parts = |run: &mut Run<'_, '_>, k: usize| {
            let x = run.weight(k);
            parts(run, x, self.filters, GATES)
        };
        let inputs: Vec<Wire> = (0..GATES).map(|gate| masked(run, x, &drawn.input, gate)).collect();
        let states: Vec<Wire> = (0..GATES).map(|gate| masked(run, h, &drawn.state, gate)).collect();
        let (kernels, recurrent) = (parts(run, 0), parts(run, 1));
        let biases = if self.use_bias { parts(run, 2) } else { Vec::new() };
        let mut of_x = Vec::new();
        for (gate, (x, kernel)) in inputs.into_iter().zip(kernels).enumerate() {
            let mut y = run.convolution(name, x, kernel, &state);
            if let Some(bias) = biases.get(gate) {
                let mut shape = vec![1; state.len()];
                let at = self.window.data_format.channel_axis(shape.len());
                shape.get_mut(at).into_iter().for_each(|d| *d = self.filters);
                let bias = run.view("Reshape", *bias, &shape);
                y = run.binary("AddV2", y, bias);
            }
            of_x.push(y);
        }
        let of_h: Vec<Wire> = states
            .into_iter()
            .zip(recurrent)
            .map(|(h, kernel)| run.convolution(name, h, kernel, &state))
            .collect();
        let [i, f, candidate, o] = of_x[..] else { return None };
        let sum =
            |run: &mut Run<'_, '_>, x: Wire, gate: usize| Some(run.binary("AddV2", x, *of_h.get(gate)?));
        let i = sum(run, i, 0)?;
        let i = run.activate(&self.recurrent_activation, i);
        let f = sum(run, f, 1)?;
        let f = run.activate(&self.recurrent_activation, f);
        let carried = run.binary("Mul", f, c);
        let candidate = sum(run, candidate, 2)?;
        let candidate = run.activate(&self.activation, candidate);
        let added = run.binary("Mul", i, candidate);
        let c = run.binary("AddV2", carried, added);
        let o = sum(run, o, 3)?;
        let o = run.activate(&self.recurrent_activation, o);
        let shown = run.activate(&self.activation, c);
        let h = run.binary("Mul", o, shown);
        Some(vec![h, h, c])
    }

    /// The ATen calls of one step.
    fn step_aten(
        &self,
        run: &mut Torch<'_, '_>,
        x: &Traced,
        [h, c]: [&Traced; 2],
        drawn: &Drawn<Traced>,
    ) -> Option<Vec<Traced>> {
        let again =
            Window { strides: one(), dilation_rate: one(), padding: Padding::Same, ..self.window.clone() };
        let inputs: Vec<Traced> = (0..GATES).map(|gate| run.dropped(x, &drawn.input, gate)).collect();
        let states: Vec<Traced> = (0..GATES).map(|gate| run.dropped(h, &drawn.state, gate)).collect();
        let mut parts = |k: usize, axis| {
            let variable = run.weight(k);
            run.parts(&variable, axis, GATES as u64)
        };
        let (kernels, recurrent) = (parts(0, self.window.axes + 1), parts(1, self.window.axes + 1));
        let biases = if self.use_bias { parts(2, 0) } else { Vec::new() };
        let mut of_x = Vec::new();
        for (gate, (x, kernel)) in inputs.iter().zip(&kernels).enumerate() {
            let mut y = run.convolve(x, kernel, &self.window, &h.shape);
            if let Some(bias) = biases.get(gate) {
                let mut shape = vec![1; h.rank()];
                let at = self.window.data_format.channel_axis(h.rank());
                shape.get_mut(at).into_iter().for_each(|d| *d = self.filters);
                let bias = bias.reshape(run.l, &shape);
                y = run.add_in_place(&y, &bias);
            }
            of_x.push(y);
        }
        let convolved =
            states.iter().zip(&recurrent).map(|(h, kernel)| run.convolve(h, kernel, &again, &h.shape));
        let of_h: Vec<Traced> = convolved.collect();
        let ([x_i, x_f, x_c, x_o], [h_i, h_f, h_c, h_o]) = (&of_x[..], &of_h[..]) else { return None };
        let mut gate = |x, h, function: &Activation| {
            let sum = run.add(x, h);
            run.activate(function, &sum)
        };
        let (i, f) = (gate(x_i, h_i, &self.recurrent_activation), gate(x_f, h_f, &self.recurrent_activation));
        let carried = run.mul(&f, c);
        let sum = run.add(x_c, h_c);
        let candidate = run.activate(&self.activation, &sum);
        let added = run.mul(&i, &candidate);
        let c = run.add(&carried, &added);
        let sum = run.add(x_o, h_o);
        let o = run.activate(&self.recurrent_activation, &sum);
        let shown = run.activate(&self.activation, &c);
        let h = run.mul(&o, &shown);
        Some(vec![h.clone(), h, c])
    }

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
            Keras::V2(_) => call.weight(name, shape),
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

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let mask = run.argument(2, "mask");
        if run.tensors() > 1 + usize::from(mask.is_some()) || self.stateful {
            return run.not_modelled();
        }
        let (x, mut state) = (run.x(0), run.out_shape().to_vec());
        if self.return_sequences && state.len() > 1 {
            state.remove(1);
        }
        let input: Vec<u64> = x.shape.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, d)| *d).collect();
        let drawn = Drawn {
            input: run.drawn(&input, self.dropout, GATES),
            state: run.drawn(&state, self.recurrent_dropout, GATES),
            cells: Vec::new(),
        };
        let options = RnnOptions {
            return_sequences: self.return_sequences,
            go_backwards: self.go_backwards,
            ..RnnOptions::default()
        };
        let states = vec![run.zeros(&state), run.zeros(&state)];
        let step = |run: &mut Torch<'_, '_>, x: Traced, states: &[Traced]| match states {
            [h, c] => self.step_aten(run, &x, [h, c], &drawn).unwrap_or_default(),
            _ => Vec::new(),
        };
        let made = run.steps(&x, mask, states, &options, &step).unwrap_or_default();
        let Some((y, states)) = made.split_first() else { return run.not_modelled() };
        for (j, state) in (1..).zip(states) {
            run.bind(j, state);
        }
        run.finish(y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let x = run.x(0);
        let shape = run.shape(x).to_vec();
        let input: Vec<u64> = shape.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, d)| *d).collect();
        let mut state = run.out_shape(0).to_vec();
        if self.return_sequences && state.len() > 1 {
            state.remove(1);
        }
        let drawn = Drawn {
            input: masks(run, &input, self.dropout, GATES),
            state: masks(run, &state, self.recurrent_dropout, GATES),
            cells: Vec::new(),
        };
        let recurrence = Recurrence {
            sequences: self.return_sequences,
            backwards: self.go_backwards,
            time_major: false,
            mask: run.argument(2, "mask"),
            zeros: false,
        };
        let step = |run: &mut Run<'_, '_>, x, states: &[Wire]| match *states {
            [h, c] => self.step(run, x, [h, c], &drawn).unwrap_or_default(),
            _ => Vec::new(),
        };
        let states = begin(run, &[state.clone(), state]);
        let Some(made) = recurrence.stepped(run, x, states, &Body::While(&step)) else {
            return run.not_modelled();
        };
        for (j, wire) in made.into_iter().enumerate() {
            if j == 0 || run.wants(j) {
                run.bind(j, wire);
            }
        }
    }
}
