//! Recurrences that run step by step on Keras' PyTorch backend: all but LSTM and GRU as cuDNN has them.
//!
//! keras/src/backend/torch/rnn.py (3.15), `rnn`: a Python loop. Autograd records each step; where the loop is not unrolled, a step before
//! the first one finds the shape of the output, and what that one keeps goes when the function returns. Masked steps choose between
//! what they made and what was there. `_fallback_lstm` and `_fallback_gru`, where the configuration is not cuDNN's, project the whole
//! sequence first.

use super::Torch;
use crate::layers::recurrent::{Gates, RecurrentCell};
use crate::layers::rnn::RnnOptions;
use memfit_graph::ops::Traced;
use memfit_graph::{Call, DType, Grad, OutDtype, Place, View};

/// Of more steps than these, several are taken for one of as many more samples: they keep as much, but for
/// what is smaller than a block of the allocator. What is alive for a moment is another.
const WRITTEN: u64 = 512;

/// A sequence as it is written out: steps that each stand for as many of its own, and a last one for the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Folded {
    batch: u64,
    /// How many are written.
    steps: u64,
    /// How many of the sequence's own each stands for.
    times: u64,
    /// And the last.
    rest: u64,
}

impl Folded {
    fn of(batch: u64, time: u64) -> Folded {
        let times = time.div_ceil(WRITTEN).max(1);
        let steps = time.div_ceil(times);
        let rest = time.saturating_sub(steps.saturating_sub(1).saturating_mul(times));
        Folded { batch, steps, times, rest }
    }

    /// The samples of the step at this place.
    fn samples(self, at: u64) -> u64 {
        self.batch.saturating_mul(if at + 1 < self.steps { self.times } else { self.rest })
    }

    /// The step at this place as a view of `[time, batch, …]`: the axis that goes, where it begins, its dims. What lies in order stays so.
    fn view(self, of: &[u64], at: u64) -> (usize, u64, Vec<u64>) {
        let axis = usize::from(self.times > 1 && self.batch == 1);
        let shape = [&[self.samples(at)], of.get(2..).unwrap_or_default()].concat();
        (axis, at.saturating_mul(self.times), shape)
    }
}

/// One step: from its input and the states to its output and the new states.
pub(crate) type OneStep<'s, 'r, 'l> = dyn Fn(&mut Torch<'r, 'l>, Traced, &[Traced]) -> Vec<Traced> + 's;

impl<'r, 'l> Torch<'r, 'l> {
    /// Runs `[batch, time, …]` step by step from these states; gives the result, then the last states.
    pub(crate) fn steps(
        &mut self,
        x: &Traced,
        mask: Option<Traced>,
        mut states: Vec<Traced>,
        options: &RnnOptions,
        step: &OneStep<'_, 'r, 'l>,
    ) -> Option<Vec<Traced>> {
        let [batch, time] = [*x.shape.first()?, *x.shape.get(1)?];
        let folded = self.folded(batch, time);
        states = self.resized(states, folded.samples(0));
        let turned = x.transpose(self.l, 0, 1);
        let mut held = vec![x.clone()];
        let mask =
            mask.map(|mask| self.condition(&mask).reshape(self.l, &[batch, time, 1]).transpose(self.l, 0, 1));
        let from = self.l.written();
        let mut sources = [Some(turned.clone()), mask];
        if !options.unroll {
            let first = self.step_of(folded, &turned, 0);
            let made = step(self, first, &states);
            held.extend(made);
            let kept = self.l.unrecorded(from);
            held.extend(kept.into_iter().map(|operand| Traced { operand, ..x.clone() }));
            if options.go_backwards {
                sources = sources.map(|source| Some(source?.scale(self.l, "flip")));
            }
        }
        held.extend(sources.iter().flatten().cloned());
        let [mut inputs, mut masks] =
            sources.map(|source| source.map(|source| self.all_steps(folded, &source)).unwrap_or_default());
        if options.unroll && options.go_backwards {
            inputs.reverse();
            masks.reverse();
        }
        let mut outputs: Vec<Traced> = Vec::new();
        for (turn, x) in inputs.into_iter().enumerate() {
            let samples = x.shape.first().copied().unwrap_or(batch);
            states = self.resized(states, samples);
            let made = step(self, x, &states);
            let before = outputs.last().filter(|_| !options.zero_output_for_mask).cloned();
            let before = before.map(|before| self.of_samples(before, samples));
            let made = match masks.get(turn) {
                Some(mask) => self.masked(mask, &made, before, &states, options.unroll)?,
                None => made,
            };
            let (output, new) = made.split_first()?;
            if !options.return_sequences {
                outputs.clear();
            }
            outputs.push(output.clone());
            states = new.to_vec();
        }
        let last = outputs.pop()?;
        let last = if options.return_sequences { last } else { self.of_samples(last, batch) };
        outputs.push(last.clone());
        let count = if options.return_sequences { [time, batch] } else { [1, batch] };
        let stacked = self.cat(&outputs, &[&count, last.shape.get(1..).unwrap_or_default()].concat());
        let y = match (options.return_sequences, options.unroll) {
            (true, _) => stacked.transpose(self.l, 0, 1),
            (false, true) => {
                held.push(stacked);
                last
            }
            (false, false) => self.row(&stacked, 0),
        };
        let y = self.of_samples(y, batch);
        let states = self.resized(states, batch);
        let y = self.holding(&y, &held.iter().collect::<Vec<_>>());
        Some([&[y][..], &states].concat())
    }

    /// How a sequence is written out.
    fn folded(&mut self, batch: u64, time: u64) -> Folded {
        let folded = Folded::of(batch, time);
        if folded.times > 1 {
            self.l.is_bound();
        }
        folded
    }

    /// States of so many samples.
    fn resized(&mut self, states: Vec<Traced>, samples: u64) -> Vec<Traced> {
        states.into_iter().map(|state| self.of_samples(state, samples)).collect()
    }

    /// As many samples as a step has: a view, also of fewer, so that a sequence keeps no more than the states that it begins with.
    fn of_samples(&mut self, x: Traced, samples: u64) -> Traced {
        if x.shape.first() == Some(&samples) { x } else { x.narrow(self.l, 0, 0, samples) }
    }

    /// A step as it is written, of `[time, batch, …]`.
    fn step_of(&mut self, folded: Folded, x: &Traced, at: u64) -> Traced {
        let (axis, start, shape) = folded.view(&x.shape, at);
        self.select(x, axis, start, &shape)
    }

    /// All of them, as views whose gradients become one tensor.
    fn all_steps(&mut self, folded: Folded, x: &Traced) -> Vec<Traced> {
        let (axis, ..) = folded.view(&x.shape, 0);
        let of = (0..folded.steps).map(|at| folded.view(&x.shape, at));
        self.views("unbind", x, axis, of.map(|(_, start, shape)| (start, shape)).collect())
    }

    /// What a step made where its position counts, and what was there before where it does not.
    fn masked(
        &mut self,
        mask: &Traced,
        made: &[Traced],
        before: Option<Traced>,
        states: &[Traced],
        is_unrolled: bool,
    ) -> Option<Vec<Traced>> {
        let output = made.first()?;
        let before = before.unwrap_or_else(|| self.zeros(&output.shape));
        // `_expand_mask`: tiled, which copies.
        let mut tile = |like: &Traced| {
            let fixed = if is_unrolled { 1 } else { 2 };
            let size = |(i, d): (usize, &u64)| if i == 0 || i >= fixed { *d } else { 1 };
            let shape: Vec<u64> = like.shape.iter().enumerate().map(size).collect();
            let call = Call::new("repeat").input(mask.operand, Grad::None);
            Traced::of(self.l, call.output(&shape, OutDtype::Is(DType::Bool), Place::New), &shape, &[])
        };
        let masks: Vec<Traced> = made.iter().map(&mut tile).collect();
        let old = [before].into_iter().chain(states.iter().cloned());
        let pairs = made.iter().zip(old).zip(&masks);
        Some(pairs.map(|((new, old), mask)| self.choose(mask, &[new, &old])).collect())
    }

    /// LSTM and GRU without a mask whose functions cuDNN does not have, or whose loop is to be unrolled.
    pub(crate) fn fallback(
        &mut self,
        cell: &RecurrentCell,
        x: &Traced,
        states: &[Traced],
        options: &RnnOptions,
    ) -> Option<Vec<Traced>> {
        let [batch, time] = [*x.shape.first()?, *x.shape.get(1)?];
        let folded = self.folded(batch, time);
        let turned = x.transpose(self.l, 0, 1);
        let [kernel, recurrent] = [0, 1].map(|k| self.weight(k));
        let bias = cell.use_bias.then(|| self.weight(2));
        let rows = if cell.gates == Gates::Gru { 2 } else { 1 };
        let biases = bias.map(|bias| if rows == 1 { vec![bias] } else { self.unbind(&bias) });
        let at = |k: usize| biases.as_ref().and_then(|biases| biases.get(k));
        let mut projected = self.matmul(&turned, &kernel);
        if let Some(bias) = at(0) {
            projected = self.add(&projected, bias);
        }
        let mut states = states.to_vec();
        let mut outputs: Vec<Traced> = Vec::new();
        for turn in 0..folded.steps {
            states = self.resized(states, folded.samples(turn));
            if cell.gates == Gates::Lstm {
                let x = self.step_of(folded, &projected, turn);
                let product = self.matmul(states.first()?, &recurrent);
                let z = self.add(&x, &product);
                let gates = self.parts(&z, 1, 4);
                states = self.lstm_states(cell, &gates, states.get(1)?)?;
            } else {
                let mut product = self.matmul(states.first()?, &recurrent);
                if let Some(bias) = at(1) {
                    product = self.add(&product, bias);
                }
                let x = self.step_of(folded, &projected, turn);
                let [x, h] = [x, product].map(|gates| self.parts(&gates, 1, 3));
                states = vec![self.gru_state(cell, &x, &h, states.first()?)?];
            }
            outputs.push(states.first()?.clone());
        }
        let last = outputs.last()?.clone();
        let stacked = self.cat(&outputs, &[&[time, batch], last.shape.get(1..).unwrap_or_default()].concat());
        let y = if options.return_sequences { stacked.transpose(self.l, 0, 1) } else { last };
        let held: Vec<&Traced> = [x, &turned, &projected, &stacked].into_iter().chain(&outputs).collect();
        let y = if options.return_sequences { y } else { self.of_samples(y, batch) };
        let states = self.resized(states, batch);
        let y = self.holding(&y, &held);
        Some([&[y][..], &states].concat())
    }

    /// Row `at` of a tensor: a view, whose gradient has the whole one's shape.
    pub(crate) fn row(&mut self, x: &Traced, at: u64) -> Traced {
        self.select(x, 0, at, x.shape.get(1..).unwrap_or_default())
    }

    fn select(&mut self, x: &Traced, axis: usize, start: u64, shape: &[u64]) -> Traced {
        let call = Call::new("select").input(x.operand, Grad::Unview);
        let view = View::Slice { axis, start, step: 1 };
        Traced::of(self.l, call.output(shape, OutDtype::Like(0), Place::View(0, view)), shape, &[x])
    }

    /// Its rows, as views whose gradients become one tensor.
    pub(crate) fn unbind(&mut self, x: &Traced) -> Vec<Traced> {
        let (count, shape) = (x.shape.first().copied().unwrap_or(0), x.shape.get(1..).unwrap_or_default());
        self.views("unbind", x, 0, (0..count).map(|start| (start, shape.to_vec())).collect())
    }

    /// So many equal parts along an axis, likewise.
    pub(crate) fn parts(&mut self, x: &Traced, axis: usize, count: u64) -> Vec<Traced> {
        let mut shape = x.shape.to_vec();
        let width = shape.get(axis).copied().unwrap_or(0) / count.max(1);
        shape.get_mut(axis).into_iter().for_each(|dim| *dim = width);
        let part = |k: u64| (k.saturating_mul(width), shape.clone());
        self.views("split", x, axis, (0..count).map(part).collect())
    }

    fn views(
        &mut self,
        name: &'static str,
        x: &Traced,
        axis: usize,
        of: Vec<(u64, Vec<u64>)>,
    ) -> Vec<Traced> {
        let mut call = Call::new(name).input(x.operand, Grad::Unview);
        for (start, shape) in &of {
            let view = View::Slice { axis, start: *start, step: 1 };
            call = call.output(shape, OutDtype::Like(0), Place::View(0, view));
        }
        let memfit_graph::Operand::Result { call, .. } = self.l.call(call) else { return Vec::new() };
        let made = |(output, (_, shape)): (usize, (u64, Vec<u64>))| Traced {
            operand: memfit_graph::Operand::Result { call, output },
            shape: shape.into_iter().collect(),
            requires_grad: x.requires_grad,
        };
        of.into_iter().enumerate().map(made).collect()
    }

    /// Dropout's masks for all steps, over ones of this shape (dropout_rnn_cell.py).
    pub(crate) fn drawn(&mut self, shape: &[u64], rate: f64, count: usize) -> Vec<Traced> {
        if rate <= 0.0 || !self.l.training {
            return Vec::new();
        }
        let ones = self.zeros(shape);
        (0..count).map(|_| self.dropout(&ones)).collect()
    }

    /// A tensor under the mask of a gate, where there is one.
    pub(crate) fn dropped(&mut self, x: &Traced, masks: &[Traced], gate: usize) -> Traced {
        masks.get(gate).map_or_else(|| x.clone(), |mask| self.mul(x, mask))
    }

    /// A sum that is written over its first summand (`+=`).
    pub(crate) fn add_in_place(&mut self, y: &Traced, more: &Traced) -> Traced {
        let call = Call::new("add_").input(y.operand, Grad::Pass).input(more.operand, Grad::Pass);
        let call = call.output(&y.shape, OutDtype::Like(0), Place::InPlace(0));
        Traced::of(self.l, call, &y.shape, &[y, more])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_steps_of_a_sequence_are_in_those_that_are_written() {
        for time in [0, 1, 511, 512, 513, 1021, 1024, 1025, 2003, 9973, 1_000_000_007, u64::MAX] {
            let folded = Folded::of(1, time);
            assert!(folded.steps <= WRITTEN && folded.rest <= folded.times, "{folded:?}");
            let all = u128::from(folded.steps.saturating_sub(1)) * u128::from(folded.times);
            assert_eq!(all + u128::from(folded.rest), u128::from(time), "{folded:?}");
            assert!(time < WRITTEN || folded.steps > WRITTEN / 2, "{folded:?}");
        }
        assert_eq!(Folded::of(4, 512), Folded { batch: 4, steps: 512, times: 1, rest: 1 });
        let prime = Folded::of(4, 1021);
        assert_eq!([0, 509, 510].map(|at| prime.samples(at)), [8, 8, 4]);
    }

    #[test]
    fn steps_of_one_sample_lie_in_order() {
        assert_eq!(Folded::of(1, 1021).view(&[1021, 1, 8], 1), (1, 2, vec![2, 8]));
        assert_eq!(Folded::of(3, 1021).view(&[1021, 3, 8], 1), (0, 2, vec![6, 8]));
        assert_eq!(Folded::of(1, 9).view(&[9, 1, 8], 1), (0, 1, vec![1, 8]));
    }
}
