//! One step of LSTM, GRU and SimpleRNN on Keras' PyTorch backend, as their cells compose it (keras/src/layers/rnn/lstm.py, gru.py,
//! simple_rnn.py, `call`; 3.15).

use super::Torch;
use crate::cell::Step;
use crate::layers::recurrent::{Gates, RecurrentCell};
use memfit_graph::ops::Traced;

impl<'r, 'l> Torch<'r, 'l> {
    pub(crate) fn cell_step(&mut self, cell: &RecurrentCell, now: &Step<'_, Traced>) -> Option<Vec<Traced>> {
        match cell.gates {
            Gates::Simple => {
                let x = self.dropped(&now.x, &now.drawn.input, 0);
                let kernel = self.weight(now.first);
                let mut h = self.matmul(&x, &kernel);
                if cell.use_bias {
                    let bias = self.weight(now.first + 2);
                    h = self.add(&h, &bias);
                }
                let state = self.dropped(now.states.first()?, &now.drawn.state, 0);
                let kernel = self.weight(now.first + 1);
                let product = self.matmul(&state, &kernel);
                let sum = self.add(&h, &product);
                let y = self.activate(&cell.activation, &sum);
                Some(vec![y.clone(), y])
            }
            Gates::Lstm => {
                let [h, c] = now.states else { return None };
                let gates = self.lstm_gates(cell, now, h)?;
                let states = self.lstm_states(cell, &gates, c)?;
                Some([&states[..1], &states[..]].concat())
            }
            Gates::Gru => {
                let h = self.gru_step(cell, now)?;
                Some(vec![h.clone(), h])
            }
        }
    }

    fn lstm_gates(
        &mut self,
        cell: &RecurrentCell,
        now: &Step<'_, Traced>,
        h: &Traced,
    ) -> Option<Vec<Traced>> {
        if !cell.is_split() {
            let x = self.dropped(&now.x, &now.drawn.input, 0);
            let kernel = self.weight(now.first);
            let mut z = self.matmul(&x, &kernel);
            let kernel = self.weight(now.first + 1);
            let product = self.matmul(h, &kernel);
            z = self.add(&z, &product);
            if cell.use_bias {
                let bias = self.weight(now.first + 2);
                z = self.add(&z, &bias);
            }
            return Some(self.parts(&z, 1, 4));
        }
        let inputs: Vec<Traced> = (0..4).map(|k| self.dropped(&now.x, &now.drawn.input, k)).collect();
        let kernel = self.weight(now.first);
        let kernels = self.parts(&kernel, 1, 4);
        let mut sums: Vec<Traced> =
            inputs.iter().zip(&kernels).map(|(x, kernel)| self.matmul(x, kernel)).collect();
        if cell.use_bias {
            let bias = self.weight(now.first + 2);
            let biases = self.parts(&bias, 0, 4);
            sums = sums.iter().zip(&biases).map(|(x, bias)| self.add_in_place(x, bias)).collect();
        }
        let states: Vec<Traced> = (0..4).map(|k| self.dropped(h, &now.drawn.state, k)).collect();
        let mut of = |(k, (x, h)): (u64, (&Traced, &Traced))| {
            let product = self.gate_product(h, now.first + 1, cell.units, k, 1);
            self.add(x, &product)
        };
        Some((0..).zip(sums.iter().zip(&states)).map(&mut of).collect())
    }

    /// The product with gates `from..from + count` of the variable.
    fn gate_product(&mut self, x: &Traced, variable: usize, units: u64, from: u64, count: u64) -> Traced {
        let kernel = self.weight(variable);
        let part = kernel.narrow(self.l, 1, from.saturating_mul(units), count.saturating_mul(units));
        self.matmul(x, &part)
    }

    /// The new states of an LSTM, from its gates before their functions.
    pub(super) fn lstm_states(
        &mut self,
        cell: &RecurrentCell,
        gates: &[Traced],
        c: &Traced,
    ) -> Option<Vec<Traced>> {
        let [z_i, z_f, z_c, z_o] = gates else { return None };
        let [i, f] = [z_i, z_f].map(|z| self.activate(&cell.recurrent_activation, z));
        let carried = self.mul(&f, c);
        let candidate = self.activate(&cell.activation, z_c);
        let added = self.mul(&i, &candidate);
        let c = self.add(&carried, &added);
        let o = self.activate(&cell.recurrent_activation, z_o);
        let shown = self.activate(&cell.activation, &c);
        let h = self.mul(&o, &shown);
        Some(vec![h, c])
    }

    /// The new state of a GRU whose reset gate comes after the product.
    pub(super) fn gru_state(
        &mut self,
        cell: &RecurrentCell,
        x: &[Traced],
        h: &[Traced],
        old: &Traced,
    ) -> Option<Traced> {
        let ([x_z, x_r, x_h], [h_z, h_r, h_h]) = (x, h) else { return None };
        let [z, r] = [(x_z, h_z), (x_r, h_r)].map(|(x, h)| {
            let sum = self.add(x, h);
            self.activate(&cell.recurrent_activation, &sum)
        });
        let product = self.mul(&r, h_h);
        Some(self.gru_mix(cell, [&z, x_h, &product], old))
    }

    fn gru_mix(&mut self, cell: &RecurrentCell, [z, x, product]: [&Traced; 3], old: &Traced) -> Traced {
        let sum = self.add(x, product);
        let candidate = self.activate(&cell.activation, &sum);
        let kept = self.mul(z, old);
        let rest = z.scale(self.l, "rsub");
        let new = self.mul(&rest, &candidate);
        self.add(&kept, &new)
    }

    fn gru_step(&mut self, cell: &RecurrentCell, now: &Step<'_, Traced>) -> Option<Traced> {
        let (h, units) = (now.states.first()?, cell.units);
        let after = cell.resets_after(self.call.facts.keras);
        let biases: Vec<Traced> = if !cell.use_bias {
            Vec::new()
        } else {
            let bias = self.weight(now.first + 2);
            if after { self.unbind(&bias) } else { vec![bias] }
        };
        let recurrent = now.first + 1;
        if !cell.is_split() {
            let x = self.dropped(&now.x, &now.drawn.input, 0);
            let kernel = self.weight(now.first);
            let mut product = self.matmul(&x, &kernel);
            if let Some(bias) = biases.first() {
                product = self.add(&product, bias);
            }
            let x = self.parts(&product, 1, 3);
            let mut inner = if after {
                let kernel = self.weight(recurrent);
                self.matmul(h, &kernel)
            } else {
                self.gate_product(h, recurrent, units, 0, 2)
            };
            if let Some(bias) = biases.get(1) {
                inner = self.add_in_place(&inner, bias);
            }
            let count = if after { 3 } else { 2 };
            let gates: Vec<Traced> =
                (0..count).map(|k| inner.narrow(self.l, 1, units.saturating_mul(k), units)).collect();
            if after {
                return self.gru_state(cell, &x, &gates, h);
            }
            return self.gru_before(cell, &x, &gates, [h, h], recurrent);
        }
        let inputs: Vec<Traced> = (0..3).map(|k| self.dropped(&now.x, &now.drawn.input, k)).collect();
        let cut = |run: &mut Self, bias: Option<&Traced>, k: u64| {
            bias.map(|bias| bias.narrow(run.l, 0, units.saturating_mul(k), units))
        };
        let mut x = Vec::new();
        for (k, input) in (0..).zip(&inputs) {
            let product = self.gate_product(input, now.first, units, k, 1);
            x.push(match cut(self, biases.first(), k) {
                Some(bias) => self.add_in_place(&product, &bias),
                None => product,
            });
        }
        let states: Vec<Traced> = (0..3).map(|k| self.dropped(h, &now.drawn.state, k)).collect();
        let mut gates = Vec::new();
        for (k, state) in (0..if after { 3 } else { 2 }).zip(&states) {
            let product = self.gate_product(state, recurrent, units, k, 1);
            gates.push(match cut(self, biases.get(1), k) {
                Some(bias) => self.add_in_place(&product, &bias),
                None => product,
            });
        }
        if after {
            return self.gru_state(cell, &x, &gates, h);
        }
        self.gru_before(cell, &x, &gates, [h, states.get(2)?], recurrent)
    }

    /// The new state of a GRU whose reset gate comes before the product.
    fn gru_before(
        &mut self,
        cell: &RecurrentCell,
        x: &[Traced],
        gates: &[Traced],
        [old, state]: [&Traced; 2],
        recurrent: usize,
    ) -> Option<Traced> {
        let ([x_z, x_r, x_h], [h_z, h_r]) = (x, gates) else { return None };
        let [z, r] = [(x_z, h_z), (x_r, h_r)].map(|(x, h)| {
            let sum = self.add(x, h);
            self.activate(&cell.recurrent_activation, &sum)
        });
        let reset = self.mul(&r, state);
        let product = self.gate_product(&reset, recurrent, cell.units, 2, 1);
        Some(self.gru_mix(cell, [&z, x_h, &product], old))
    }
}
