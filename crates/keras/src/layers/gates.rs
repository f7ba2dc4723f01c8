//! One step of LSTM, GRU and SimpleRNN where no kernel of cuDNN runs it, as their cells compose it.
//!
//! keras/src/layers/rnn/lstm.py, gru.py, simple_rnn.py (3.15), `call`. Gates come of one product and are split, or each has products of
//! its own (`implementation=1`, which a dropout of the state turns on): then the weights are cut in every step, and every step's
//! cuts are kept for its gradient.

use super::recurrent::{Gates, RecurrentCell};
use crate::cell::{Drawn, Step};
use crate::run::Run;
use memfit_graph::kernels::Wire;

/// Masks of dropout over ones of this shape.
pub(super) fn masks(run: &mut Run<'_, '_>, shape: &[u64], rate: f64, count: usize) -> Vec<Wire> {
    if rate <= 0.0 || !run.compute.training {
        return Vec::new();
    }
    let dtype = run.compute_dtype();
    let mut mask = || {
        let ones = run.constant(shape, dtype);
        let uniform = run.make("StatelessRandomUniformV2", &[], shape, dtype, None);
        let chosen = run.test("GreaterEqual", uniform);
        run.select(chosen, ones)
    };
    (0..count).map(|_| mask()).collect()
}

/// A tensor under the mask of a gate, where there is one.
pub(super) fn masked(run: &mut Run<'_, '_>, x: Wire, masks: &[Wire], gate: usize) -> Wire {
    match masks.get(gate) {
        Some(mask) => run.binary("Mul", x, *mask),
        None => x,
    }
}

/// All gates of a tensor, each `width` elements of its last axis, as tensors of their own.
pub(super) fn parts(run: &mut Run<'_, '_>, x: Wire, width: u64, count: usize) -> Vec<Wire> {
    let mut shape = run.shape(x).to_vec();
    shape.last_mut().into_iter().for_each(|d| *d = width);
    let first = run.split(x, &vec![shape; count]);
    run.outputs(first)
}

impl RecurrentCell {
    /// How many gates it has.
    pub(crate) fn count(&self) -> usize {
        match self.gates {
            Gates::Simple => 1,
            Gates::Gru => 3,
            Gates::Lstm => 4,
        }
    }

    /// Whether each gate has products of its own.
    pub(crate) fn is_split(&self) -> bool {
        self.gates != Gates::Simple && (self.implementation == Some(1) || self.recurrent_dropout > 0.0)
    }

    pub(super) fn drawn(&self, run: &mut Run<'_, '_>, input: &[u64]) -> Drawn {
        let count = if self.is_split() { self.count() } else { 1 };
        let state = [input.first().copied().unwrap_or(1), self.units];
        let input = masks(run, input, self.dropout, count);
        Drawn { input, state: masks(run, &state, self.recurrent_dropout, count), cells: Vec::new() }
    }

    pub(super) fn stepped(&self, run: &mut Run<'_, '_>, now: &Step<'_>) -> Vec<Wire> {
        match self.gates {
            Gates::Simple => self.simple(run, now),
            Gates::Gru => self.gru(run, now),
            Gates::Lstm => self.lstm(run, now),
        }
        .unwrap_or_default()
    }

    fn product(&self, run: &mut Run<'_, '_>, x: Wire, kernel: Wire) -> Wire {
        let rows = run.shape(x).first().copied().unwrap_or(1);
        let columns = run.shape(kernel).last().copied().unwrap_or(1);
        run.matmul("MatMul", x, kernel, &[rows, columns])
    }

    /// Columns of a matrix or elements of a vector: gates `from..to`.
    fn cut(&self, run: &mut Run<'_, '_>, x: Wire, gates: u64) -> Wire {
        let mut shape = run.shape(x).to_vec();
        shape.last_mut().into_iter().for_each(|d| *d = self.units.saturating_mul(gates));
        run.moved("StridedSlice", x, &shape)
    }

    /// All gates of a tensor, each a tensor of its own.
    fn parts(&self, run: &mut Run<'_, '_>, x: Wire) -> Vec<Wire> {
        parts(run, x, self.units, self.count())
    }

    fn simple(&self, run: &mut Run<'_, '_>, now: &Step<'_>) -> Option<Vec<Wire>> {
        let x = masked(run, now.x, &now.drawn.input, 0);
        let kernel = run.weight(now.first);
        let mut h = self.product(run, x, kernel);
        if self.use_bias {
            let bias = run.weight(now.first + 2);
            h = run.binary("AddV2", h, bias);
        }
        let state = masked(run, *now.states.first()?, &now.drawn.state, 0);
        let kernel = run.weight(now.first + 1);
        let product = self.product(run, state, kernel);
        let sum = run.binary("AddV2", h, product);
        let y = run.activate(&self.activation, sum);
        Some(vec![y, y])
    }

    fn lstm(&self, run: &mut Run<'_, '_>, now: &Step<'_>) -> Option<Vec<Wire>> {
        let [h, c] = *now.states else { return None };
        let mut sums = Vec::new();
        if self.is_split() {
            let kernel = run.weight(now.first);
            let kernels = self.parts(run, kernel);
            let mut inputs = Vec::new();
            for (gate, kernel) in kernels.into_iter().enumerate() {
                let x = masked(run, now.x, &now.drawn.input, gate);
                inputs.push(self.product(run, x, kernel));
            }
            if self.use_bias {
                let bias = run.weight(now.first + 2);
                let biases = self.parts(run, bias);
                inputs = inputs.into_iter().zip(biases).map(|(x, b)| run.binary("AddV2", x, b)).collect();
            }
            for (gate, input) in inputs.into_iter().enumerate() {
                let state = masked(run, h, &now.drawn.state, gate);
                let kernel = run.weight(now.first + 1);
                let kernel = self.cut(run, kernel, 1);
                let product = self.product(run, state, kernel);
                sums.push(run.binary("AddV2", input, product));
            }
        } else {
            let x = masked(run, now.x, &now.drawn.input, 0);
            let kernel = run.weight(now.first);
            let mut z = self.product(run, x, kernel);
            let kernel = run.weight(now.first + 1);
            let product = self.product(run, h, kernel);
            z = run.binary("AddV2", z, product);
            if self.use_bias {
                let bias = run.weight(now.first + 2);
                z = run.binary("AddV2", z, bias);
            }
            sums = self.parts(run, z);
        }
        let [z_i, z_f, z_c, z_o] = sums[..] else { return None };
        let i = run.activate(&self.recurrent_activation, z_i);
        let f = run.activate(&self.recurrent_activation, z_f);
        let carried = run.binary("Mul", f, c);
        let candidate = run.activate(&self.activation, z_c);
        let added = run.binary("Mul", i, candidate);
        let c = run.binary("AddV2", carried, added);
        let o = run.activate(&self.recurrent_activation, z_o);
        let shown = run.activate(&self.activation, c);
        let h = run.binary("Mul", o, shown);
        Some(vec![h, h, c])
    }

    fn gru(&self, run: &mut Run<'_, '_>, now: &Step<'_>) -> Option<Vec<Wire>> {
        let h = *now.states.first()?;
        let after = self.resets_after(run.call.facts.keras);
        let biases = self.use_bias.then(|| self.biases(run, now.first + 2, after));
        let [input_bias, state_bias] = biases.unwrap_or([None, None]);
        let bias = |run: &mut Run<'_, '_>, x: Wire, bias: Option<Wire>, cut: bool| match bias {
            Some(b) if cut => {
                let b = self.cut(run, b, 1);
                run.binary("AddV2", x, b)
            }
            Some(b) => run.binary("AddV2", x, b),
            None => x,
        };
        let mut inputs = Vec::new();
        let (z, r, product);
        if self.is_split() {
            for gate in 0..3 {
                let x = masked(run, now.x, &now.drawn.input, gate);
                let kernel = run.weight(now.first);
                let kernel = self.cut(run, kernel, 1);
                inputs.push(self.product(run, x, kernel));
            }
            inputs = inputs.into_iter().map(|x| bias(run, x, input_bias, true)).collect();
            let states: Vec<Wire> = (0..3).map(|gate| masked(run, h, &now.drawn.state, gate)).collect();
            let [x_z, x_r, _] = inputs[..] else { return None };
            let of = |run: &mut Run<'_, '_>, state: Wire| {
                let kernel = run.weight(now.first + 1);
                let kernel = self.cut(run, kernel, 1);
                self.product(run, state, kernel)
            };
            let (mut h_z, mut h_r) = (of(run, states[0]), of(run, states[1]));
            h_z = bias(run, h_z, state_bias, true);
            h_r = bias(run, h_r, state_bias, true);
            let sum = run.binary("AddV2", x_z, h_z);
            z = run.activate(&self.recurrent_activation, sum);
            let sum = run.binary("AddV2", x_r, h_r);
            r = run.activate(&self.recurrent_activation, sum);
            product = if after {
                let h_h = of(run, states[2]);
                let h_h = bias(run, h_h, state_bias, true);
                run.binary("Mul", r, h_h)
            } else {
                let reset = run.binary("Mul", r, states[2]);
                of(run, reset)
            };
        } else {
            let x = masked(run, now.x, &now.drawn.input, 0);
            let kernel = run.weight(now.first);
            let matrix = self.product(run, x, kernel);
            let matrix = bias(run, matrix, input_bias, false);
            inputs = self.parts(run, matrix);
            let [x_z, x_r, _] = inputs[..] else { return None };
            let mut kernel = run.weight(now.first + 1);
            if !after {
                kernel = self.cut(run, kernel, 2);
            }
            let matrix = self.product(run, h, kernel);
            let matrix = bias(run, matrix, state_bias, false);
            let (h_z, h_r) = (self.cut(run, matrix, 1), self.cut(run, matrix, 1));
            let h_h = after.then(|| self.cut(run, matrix, 1));
            let sum = run.binary("AddV2", x_z, h_z);
            z = run.activate(&self.recurrent_activation, sum);
            let sum = run.binary("AddV2", x_r, h_r);
            r = run.activate(&self.recurrent_activation, sum);
            product = match h_h {
                Some(h_h) => run.binary("Mul", r, h_h),
                None => {
                    let reset = run.binary("Mul", r, h);
                    let kernel = run.weight(now.first + 1);
                    let kernel = self.cut(run, kernel, 1);
                    self.product(run, reset, kernel)
                }
            };
        }
        let sum = run.binary("AddV2", *inputs.get(2)?, product);
        let candidate = run.activate(&self.activation, sum);
        let kept = run.binary("Mul", z, h);
        let rest = run.shifted("Sub", z);
        let new = run.binary("Mul", rest, candidate);
        let h = run.binary("AddV2", kept, new);
        Some(vec![h, h])
    }

    /// The bias of the input's product, and of the state's where the reset comes after it.
    fn biases(&self, run: &mut Run<'_, '_>, k: usize, after: bool) -> [Option<Wire>; 2] {
        let bias = run.weight(k);
        if !after {
            return [Some(bias), None];
        }
        let width = run.shape(bias).last().copied().unwrap_or(1);
        let first = run.split(bias, &[vec![1, width], vec![1, width]]);
        [0, 1].map(|output| {
            let row = run.output(first, output);
            Some(run.view("Squeeze", row, &[width]))
        })
    }
}
