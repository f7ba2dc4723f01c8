//! RNN and StackedRNNCells: a cell for every step of a sequence. Keras 2 and 3.
//!
//! keras/src/layers/rnn/rnn.py, stacked_rnn_cells.py. LSTM, GRU and SimpleRNN are this layer around their cell, so a
//! framework's rule for recurrences stands once; each cell has a file of its own.

use super::LayerSpec;
use super::recurrence::{Body, Recurrence, begin};
use super::recurrent::{Gates, RecurrentCell};
use crate::arguments::Arguments;
use crate::cell::{Cell, Drawn, Step};
use crate::layer::{Call, Configured, Facts, Keras, Layer, Weight};
use crate::reader::{Source, boxed};
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::kernels::Wire;
use memfit_graph::ops::Traced;
use memfit_graph::{Dim, OpError, Operand, Shape};
use serde::Deserialize;
use std::sync::Arc;

/// A recurrence over the time axis.
#[derive(Clone, Debug)]
pub struct Rnn {
    /// What runs at each step.
    pub cell: Configured,
    /// How the sequence is run through.
    pub options: RnnOptions,
    /// Whether the class can run on cuDNN's kernel where its configuration allows (LSTM, GRU).
    pub can_fuse: bool,
}

/// How a sequence is run through.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RnnOptions {
    /// Whether every step's output is given.
    #[serde(default)]
    pub return_sequences: bool,
    /// Whether the last states are given too.
    #[serde(default)]
    pub return_state: bool,
    /// Whether it runs from the end.
    #[serde(default)]
    pub go_backwards: bool,
    /// Whether states stay from batch to batch.
    #[serde(default)]
    pub stateful: bool,
    /// Whether the loop is unrolled.
    #[serde(default)]
    pub unroll: bool,
    /// Whether time comes before the batch (Keras 2).
    #[serde(default)]
    pub time_major: bool,
    /// Whether masked steps give zeros.
    #[serde(default)]
    pub zero_output_for_mask: bool,
    /// Whether LSTM and GRU may run on cuDNN: `"auto"`, true or false (Keras 3).
    #[serde(default)]
    pub use_cudnn: Option<serde_json::Value>,
}

impl RnnOptions {
    fn use_cudnn(&self) -> bool {
        self.use_cudnn != Some(serde_json::Value::Bool(false))
    }
}

/// Cells one above the other.
#[derive(Clone, Debug)]
pub struct StackedCells {
    /// From the input upwards.
    pub cells: Vec<Configured>,
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec {
        classes: &["RNN"],
        keras: &[2, 3],
        build: |s| boxed(Rnn { cell: s.inner("cell")?, options: s.read()?, can_fuse: false }),
    },
    LayerSpec {
        classes: &["StackedRNNCells"],
        keras: &[2, 3],
        build: |s| boxed(StackedCells { cells: s.inners("cells")? }),
    },
];

/// The recurrence of a class that makes its own cell.
pub(super) fn around(
    source: &Source<'_>,
    cell: impl Layer + 'static,
    class: &str,
    name: &str,
    can_fuse: bool,
) -> Result<Arc<dyn Layer>, String> {
    let facts = Facts { class: class.into(), name: name.into(), ..source.facts.clone() };
    boxed(Rnn { cell: Configured { facts, layer: Arc::new(cell) }, options: source.read()?, can_fuse })
}

/// What a cell is called on at each step.
fn one_step(x: &Spec, time: usize) -> Spec {
    let dims = x.dims().iter().enumerate().filter(|(i, _)| *i != time);
    x.with(dims.map(|(_, d)| d.clone()).collect::<Vec<_>>())
}

impl Rnn {
    fn time(&self) -> usize {
        usize::from(!self.options.time_major)
    }

    /// Its cell where Keras' PyTorch backend has a function for the whole sequence, if there is no mask (lstm.py, gru.py, `inner_loop`).
    fn fused_cell(&self, keras: Keras) -> Option<&RecurrentCell> {
        self.cell.layer.downcast::<RecurrentCell>().filter(|cell| {
            let has_function = cell.gates == Gates::Lstm || cell.resets_after(keras);
            self.can_fuse && has_function && !cell.drops_state() && self.options.use_cudnn()
        })
    }

    /// The states that a call begins with.
    fn begin_aten(&self, run: &mut Torch<'_, '_>, x: &Traced, given: Vec<Traced>) -> Vec<Traced> {
        if !given.is_empty() {
            return given;
        }
        let batch = x.shape.first().copied().unwrap_or(1);
        let states = self.cell.layer.cell().map(Cell::states).unwrap_or_default();
        states.into_iter().map(|size| run.zeros(&[batch, size])).collect()
    }

    /// Its cell step by step.
    fn stepped(
        &self,
        run: &mut Torch<'_, '_>,
        x: &Traced,
        given: Vec<Traced>,
        mask: Option<Traced>,
    ) -> Option<Vec<Traced>> {
        let cell = self.cell.layer.cell()?;
        let [batch, _, features @ ..] = &x.shape[..] else { return None };
        let drawn = cell.draw_aten(run, &[&[*batch], features].concat());
        let states = self.begin_aten(run, x, given);
        let step = |run: &mut Torch<'_, '_>, x: Traced, states: &[Traced]| {
            cell.step_aten(run, &Step { x, states, drawn: &drawn, first: 0 })
        };
        run.steps(x, mask, states, &self.options, &step)
    }

    /// Its cell where Keras' PyTorch backend runs it on cuDNN, and states are asked for only where they may be.
    pub(super) fn on_cudnn(&self, gives_states: bool) -> Option<&RecurrentCell> {
        let options = &self.options;
        let is_plain = !options.unroll && !options.stateful && (gives_states || !options.return_state);
        self.cell.layer.downcast::<RecurrentCell>().filter(|cell| {
            self.can_fuse && cell.is_default() && !cell.drops_state() && is_plain && options.use_cudnn()
        })
    }
}

impl Layer for Rnn {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let x = spec::input_from_rank(inputs, 0, 3)?;
        let mut weights = self.cell.weights(call.arguments, &[one_step(x, self.time())])?;
        if self.options.stateful
            && let Some(cell) = self.cell.layer.cell()
        {
            let batch = spec::number(&x.dims()[1 - self.time()])?;
            weights.extend(cell.states().into_iter().map(|size| call.state("rnn_state", [batch, size])));
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input_from_rank(inputs, 0, 3)?;
        let Some(cell) = self.cell.layer.cell() else { return Ok(Vec::new()) };
        let batch = x.dims()[1 - self.time()].clone();
        let output = Dim::Known(cell.output());
        let mut outputs = vec![match self.options.return_sequences {
            true => call.output([x.dims()[0].clone(), x.dims()[1].clone(), output]),
            false => call.output([batch.clone(), output]),
        }];
        if self.options.return_state {
            outputs
                .extend(cell.states().into_iter().map(|size| call.output([batch.clone(), Dim::Known(size)])));
        }
        Ok(outputs)
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let options = &self.options;
        let at = run.call.arguments.get(1, "initial_state").map(|given| given.tensors()).unwrap_or_default();
        let mask = run.argument(2, "mask");
        let count = self.cell.layer.cell().map_or(0, |cell| cell.states().len());
        let is_known = run.tensors() == 1 + at.len() + usize::from(mask.is_some())
            && (at.is_empty() || at.len() == count)
            && !options.stateful
            && !options.time_major;
        if !is_known {
            return run.not_modelled();
        }
        let mut x = run.x(0);
        let given: Vec<Traced> = at.iter().map(|at| run.x(*at)).collect();
        let drops = self.cell.layer.downcast::<RecurrentCell>().filter(|cell| cell.dropout > 0.0);
        let own = self.fused_cell(run.call.facts.keras).filter(|_| mask.is_none());
        if own.is_some() && drops.is_some() && run.l.training {
            // By a mask of one step.
            x = x.scale(run.l, "mul");
        }
        let before = x.clone();
        if own.is_some() && options.go_backwards {
            x = x.scale(run.l, "flip");
        }
        let Some(cell) = own.filter(|cell| cell.is_default() && !options.unroll) else {
            let made = match own {
                Some(cell) => {
                    let states = self.begin_aten(run, &before, given);
                    run.fallback(cell, &x, &states, options)
                }
                None => self.stepped(run, &x, given, mask),
            };
            let made = made.unwrap_or_default();
            let Some((y, states)) = made.split_first() else { return run.not_modelled() };
            for (j, state) in (1..).zip(states) {
                run.bind(j, state);
            }
            return run.finish(y);
        };
        let mut y = run.recurrent(&x, [cell.states().len(), 1], cell.units, &given, &[before]);
        if let Operand::Result { call, .. } = y.operand {
            let shape = [1, x.shape[0], cell.units];
            for output in 1..=cell.states().len() {
                let operand = Operand::Result { call, output };
                let state = Traced { operand, shape: shape.into_iter().collect(), ..y.clone() };
                run.bind(output, &state);
            }
        }
        if !options.return_sequences {
            let steps = y.shape.get(1).copied().unwrap_or(1);
            y = y.narrow(run.l, 1, steps.saturating_sub(1), 1).reshape(run.l, run.out_shape());
        }
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let x = run.x(0);
        let Some(cell) = self.cell.layer.cell() else { return run.not_modelled() };
        let recurrence = Recurrence {
            sequences: self.options.return_sequences,
            backwards: self.options.go_backwards,
            time_major: self.options.time_major,
            mask: run.argument(2, "mask"),
            zeros: self.options.zero_output_for_mask,
        };
        let shape = run.shape(x).to_vec();
        let batch = shape.get(1 - self.time()).copied().unwrap_or(1);
        let input: Vec<u64> =
            shape.iter().enumerate().filter(|(i, _)| *i != self.time()).map(|(_, d)| *d).collect();
        let states: Vec<Vec<u64>> = cell.states().into_iter().map(|size| vec![batch, size]).collect();
        let drawn = cell.draw(run, &input);
        let states = begin(run, &states);
        let is_ok = self.can_fuse && cell.is_default() && !self.options.unroll && self.options.use_cudnn();
        run.uncompiled |= is_ok;
        let made = if is_ok && !cell.drops_state() {
            let stateful = if self.options.stateful { cell.states().len() } else { 0 };
            let weights: Vec<_> =
                (0..run.weights().saturating_sub(stateful)).map(|k| run.weight(k)).collect();
            // A mask for all steps (lstm.py, `inner_loop`).
            let x = match drawn.input.first() {
                Some(mask) => {
                    let dtype = run.dtype(*mask);
                    let mask = run.make("BroadcastTo", &[*mask], &shape, dtype, None);
                    run.binary("Mul", x, mask)
                }
                None => x,
            };
            Some(recurrence.fused(run, x, &states, &weights, [cell.output(), cell.kept()]))
        } else {
            let step = |run: &mut Run<'_, '_>, x, states: &[_]| {
                cell.step(run, &Step { x, states, drawn: &drawn, first: 0 })
            };
            let body = if self.options.unroll { Body::Unrolled(&step) } else { Body::While(&step) };
            recurrence.stepped(run, x, states, &body)
        };
        let Some(made) = made else { return run.not_modelled() };
        for (j, wire) in made.into_iter().enumerate() {
            if j == 0 || run.wants(j) {
                run.bind(j, wire);
            }
        }
    }
}

impl Layer for StackedCells {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let mut x = spec::input(inputs, 0)?.clone();
        let mut weights = Vec::new();
        for cell in &self.cells {
            weights.extend(cell.weights(call.arguments, std::slice::from_ref(&x))?);
            x = cell.output(call.arguments, &[x])?;
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        step_outputs(self, call, inputs)
    }

    fn cell(&self) -> Option<&dyn Cell> {
        self.cells.iter().all(|c| c.layer.cell().is_some()).then_some(self)
    }
}

impl Cell for StackedCells {
    fn output(&self) -> u64 {
        self.cells.last().and_then(|c| c.layer.cell()).map_or(0, Cell::output)
    }

    fn states(&self) -> Vec<u64> {
        self.cells.iter().filter_map(|c| c.layer.cell()).flat_map(Cell::states).collect()
    }

    fn draw(&self, run: &mut Run<'_, '_>, input: &[u64]) -> Drawn {
        let mut input = input.to_vec();
        let mut drawn = Drawn::default();
        for cell in self.cells.iter().filter_map(|c| c.layer.cell()) {
            drawn.cells.push(cell.draw(run, &input));
            input.last_mut().into_iter().for_each(|d| *d = cell.output());
        }
        drawn
    }

    fn step(&self, run: &mut Run<'_, '_>, now: &Step<'_>) -> Vec<Wire> {
        let (mut x, mut states, mut first) = (now.x, now.states, now.first);
        let mut new = Vec::new();
        for (configured, drawn) in self.cells.iter().zip(&now.drawn.cells) {
            let Some(cell) = configured.layer.cell() else { break };
            let spec = Spec::new(Shape::from(run.shape(x)), run.dtype(x));
            let weights = configured.own_weights(&Arguments::plain(1), &[spec]).map_or(0, |w| w.len());
            let (own, others) = states.split_at_checked(cell.states().len()).unwrap_or((states, &[]));
            let made = cell.step(run, &Step { x, states: own, drawn, first });
            let Some((output, its)) = made.split_first() else { break };
            x = *output;
            new.extend(its);
            states = others;
            first += weights;
        }
        [x].into_iter().chain(new).collect()
    }

    fn draw_aten(&self, run: &mut Torch<'_, '_>, input: &[u64]) -> Drawn<Traced> {
        let mut input = input.to_vec();
        let mut drawn = Drawn::default();
        for cell in self.cells.iter().filter_map(|c| c.layer.cell()) {
            drawn.cells.push(cell.draw_aten(run, &input));
            input.last_mut().into_iter().for_each(|d| *d = cell.output());
        }
        drawn
    }

    fn step_aten(&self, run: &mut Torch<'_, '_>, now: &Step<'_, Traced>) -> Vec<Traced> {
        let (mut x, mut states, mut first) = (now.x.clone(), now.states, now.first);
        let mut new = Vec::new();
        for (configured, drawn) in self.cells.iter().zip(&now.drawn.cells) {
            let Some(cell) = configured.layer.cell() else { return Vec::new() };
            let spec = Spec::new(Shape::from(&x.shape[..]), run.dtype());
            let weights = configured.own_weights(&Arguments::plain(1), &[spec]).map_or(0, |w| w.len());
            let (own, others) = states.split_at_checked(cell.states().len()).unwrap_or((states, &[]));
            let mut made = cell.step_aten(run, &Step { x, states: own, drawn, first }).into_iter();
            let Some(output) = made.next() else { return Vec::new() };
            x = output;
            new.extend(made);
            states = others;
            first += weights;
        }
        [x].into_iter().chain(new).collect()
    }
}

/// What a cell gives for one step: its output, then its states.
pub(super) fn step_outputs(cell: &dyn Cell, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = spec::input_from_rank(inputs, 0, 2)?;
    let sizes = [cell.output()].into_iter().chain(cell.states());
    Ok(sizes.map(|size| call.output([x.dims()[0].clone(), Dim::Known(size)])).collect())
}
