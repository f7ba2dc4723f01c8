//! What LSTM, GRU, SimpleRNN, RNN and ConvLSTM run under TensorFlow.
//!
//! keras/src/backend/tensorflow/rnn.py (3.15): LSTM and GRU run on cuDNN where their configuration is the default (`cudnn_ok`): the
//! sequence stays batch first, as its lengths are always given (`_cudnn_lstm`; Keras 2 gives them with a mask only), the weights are
//! split by gate, transposed, and become one vector, and the kernel keeps a reserve space whose size cuDNN does
//! not document; counted are the gates and states of each step. Everything else is a `While` over time, whose steps are written out
//! here ([`memfit_graph::kernels::Turn`]), or the same steps one after the other in the graph (`unroll`).

use crate::run::Run;
use memfit_graph::DType;
use memfit_graph::kernels::{PARALLEL, Wire};

/// Steps of a loop that are written out: as many as run side by side and half as many again. Those before them are one kernel that
/// keeps what they would.
const WRITTEN: u64 = PARALLEL as u64 * 3 / 2;

/// Steps that are written out where the graph is as large as this already.
const FEW: u64 = 2;
const LARGE: usize = 1 << 18;

/// More steps than these are not unrolled here, but taken for a loop.
const UNROLLED: u64 = 512;

/// How a sequence is run through.
pub(super) struct Recurrence {
    /// Whether every step's output is given.
    pub(super) sequences: bool,
    /// Whether it runs from the end.
    pub(super) backwards: bool,
    /// Whether time comes before the batch.
    pub(super) time_major: bool,
    /// Which positions count: `[batch, time]`.
    pub(super) mask: Option<Wire>,
    /// Whether the output of those that don't is zero, rather than the one before.
    pub(super) zeros: bool,
}

/// One step: from its input and the states to its output and the new states.
pub(super) type Step<'s> = dyn Fn(&mut Run<'_, '_>, Wire, &[Wire]) -> Vec<Wire> + 's;

/// How steps follow each other.
pub(super) enum Body<'s> {
    /// In a loop.
    While(&'s Step<'s>),
    /// One after the other.
    Unrolled(&'s Step<'s>),
}

/// The states that a call begins with (`RNN.call`): an argument, or in Keras 2 what follows the sequence in a list; else zeros of these
/// shapes.
pub(super) fn begin(run: &mut Run<'_, '_>, shapes: &[Vec<u64>]) -> Vec<Wire> {
    let arguments = run.call.arguments;
    let given = match arguments.get(1, "initial_state") {
        Some(given) => given.tensors(),
        None => arguments.first().into_iter().skip(1).collect(),
    };
    let dtype = run.compute_dtype();
    let mut begin = |(i, shape): (usize, &Vec<u64>)| match given.get(i) {
        Some(at) => run.x(*at),
        None => run.zeros(shape, dtype),
    };
    shapes.iter().enumerate().map(&mut begin).collect()
}

impl Recurrence {
    /// The sequence with time first, from the end where it is run from there.
    fn turned(&self, run: &mut Run<'_, '_>, x: Wire) -> Wire {
        let mut shape = run.shape(x).to_vec();
        let mut x = x;
        if !self.time_major && shape.len() > 1 {
            shape.swap(0, 1);
            x = run.moved("Transpose", x, &shape);
        }
        if self.backwards { run.moved("ReverseV2", x, &shape) } else { x }
    }

    /// The result for each step, time first, as the layer gives it.
    fn given(&self, run: &mut Run<'_, '_>, y: Wire) -> Wire {
        let mut shape = run.shape(y).to_vec();
        if self.time_major || shape.len() < 2 {
            return y;
        }
        shape.swap(0, 1);
        run.moved("Transpose", y, &shape)
    }

    /// Runs it on cuDNN's kernel from these states; gives the output, then the last states.
    pub(super) fn fused(
        &self,
        run: &mut Run<'_, '_>,
        x: Wire,
        states: &[Wire],
        weights: &[Wire],
        [units, kept]: [u64; 2],
    ) -> Vec<Wire> {
        let has_lengths = run.is_keras3() || self.mask.is_some();
        let turns = !self.time_major && !has_lengths;
        let mut x = x;
        if turns || self.backwards {
            let of = run.shape(x).to_vec();
            x = if turns { self.turned(run, x) } else { run.moved("ReverseSequence", x, &of) };
        }
        let shape = run.shape(x).to_vec();
        let [first, second] = [0, 1].map(|i| shape.get(i).copied().unwrap_or(1));
        let mut flat = Vec::new();
        for weight in weights {
            let shape = run.shape(*weight).to_vec();
            match shape[..] {
                [rows, columns] if rows > 2 => {
                    let gates = usize::try_from(columns.checked_div(units).unwrap_or(0)).unwrap_or(0);
                    let first = run.split(*weight, &vec![vec![rows, units]; gates]);
                    for gate in run.outputs(first).into_iter().take(gates) {
                        let turned = run.moved("Transpose", gate, &[units, rows]);
                        flat.push(run.view("Reshape", turned, &[rows.saturating_mul(units)]));
                    }
                }
                _ => {
                    let elements = run.made(*weight).elements();
                    flat.push(run.view("Reshape", *weight, &[elements]));
                }
            }
        }
        let total = flat.iter().fold(0, |n: u64, wire| n.saturating_add(run.made(*wire).elements()));
        let weights = run.concat(&flat, &[total]);
        let inputs: Vec<Wire> = [x].into_iter().chain(states.iter().copied()).chain([weights]).collect();
        let made = [first, second, units];
        let of_states = states.iter().map(|state| run.shape(*state).to_vec());
        let shapes: Vec<Vec<u64>> = [made.to_vec()].into_iter().chain(of_states).collect();
        let mut y = run.recurrence("CudnnRNNV3", &inputs, &shapes, &[first, second, kept]);
        let last: Vec<Wire> = (1..).take(states.len()).map(|output| run.output(y, output)).collect();
        y = match last.first() {
            Some(last) if !self.sequences && has_lengths => *last,
            _ if !self.sequences => run.row(y),
            _ if turns => self.given(run, y),
            _ if self.backwards => {
                let inner = run.moved("ReverseSequence", y, &made);
                run.moved("ReverseV2", inner, &made)
            }
            _ => y,
        };
        [y].into_iter().chain(last).collect()
    }

    /// Runs it step by step from these states; gives the output, then the last states.
    pub(super) fn stepped(
        &self,
        run: &mut Run<'_, '_>,
        x: Wire,
        mut states: Vec<Wire>,
        body: &Body<'_>,
    ) -> Option<Vec<Wire>> {
        let x = self.turned(run, x);
        let mask = self.mask.map(|mask| {
            let shape = [run.shape(mask), &[1]].concat();
            let mask = run.view("ExpandDims", mask, &shape);
            self.turned(run, mask)
        });
        let steps = run.shape(x).first().copied().unwrap_or(0);
        let y = match body {
            Body::Unrolled(step) if steps <= UNROLLED => {
                let mut outputs = Vec::new();
                let masks = mask.map(|mask| run.unstack(mask)).unwrap_or_default();
                for (turn, x) in run.unstack(x).into_iter().enumerate() {
                    let made = step(run, x, &states);
                    let made = self.masked(run, made, masks.get(turn).copied(), &states, outputs.last());
                    let (output, new) = made.split_first()?;
                    states = new.to_vec();
                    outputs.push(*output);
                }
                let stacked = if self.sequences { run.stack(&outputs)? } else { *outputs.last()? };
                if self.sequences { self.given(run, stacked) } else { stacked }
            }
            Body::While(step) | Body::Unrolled(step) => {
                let (early, outputs, zeros) = self.in_loop(run, x, mask, &mut states, step)?;
                let whole = if self.sequences {
                    let one = run.shape(*outputs.last()?).to_vec();
                    let all: Vec<Wire> = early.into_iter().chain(outputs).collect();
                    run.from_list(&all, &[&[steps][..], &one].concat())
                } else {
                    // Without a gradient nothing asks for those before the last.
                    let first = if run.compute.training { 0 } else { outputs.len().saturating_sub(1) };
                    run.last_of(outputs.get(first..)?)?
                };
                // What is ready when the loop is over comes before what is made of its results.
                zeros.into_iter().for_each(|zeros| run.wait(whole, zeros));
                if self.sequences { self.given(run, whole) } else { run.row(whole) }
            }
        };
        Some([y].into_iter().chain(states).collect())
    }

    /// What a step gives where its position counts, and what was there before where it does not (`compute_masked_output`).
    fn masked(
        &self,
        run: &mut Run<'_, '_>,
        made: Vec<Wire>,
        mask: Option<Wire>,
        states: &[Wire],
        before: Option<&Wire>,
    ) -> Vec<Wire> {
        let Some(mask) = mask else { return made };
        let before = before.copied().filter(|_| !self.zeros);
        let old = [before].into_iter().chain(states.iter().map(|state| Some(*state)));
        let mut choose = |(new, old): (Wire, Option<Wire>)| {
            let (shape, dtype) = (run.shape(new).to_vec(), run.dtype(new));
            let tiled = run.make("Tile", &[mask], &shape, DType::Bool, None);
            let old = old.unwrap_or_else(|| run.zeros(&shape, dtype));
            run.choose(tiled, new, old)
        };
        made.into_iter().zip(old).map(&mut choose).collect()
    }

    /// Runs the steps of a `While`; gives the outputs of those that are one kernel, then each one's of the others, then the zeros that the
    /// sequence's gradient begins with.
    fn in_loop(
        &self,
        run: &mut Run<'_, '_>,
        x: Wire,
        mask: Option<Wire>,
        states: &mut Vec<Wire>,
        step: &Step<'_>,
    ) -> Option<(Option<Wire>, Vec<Wire>, Option<Wire>)> {
        let steps = run.shape(x).first().copied().unwrap_or(0);
        let written = if run.kernels.len() < LARGE { WRITTEN } else { FEW };
        let early = steps.saturating_sub(written);
        let mut list = run.to_list(x, early);
        let whole = *list.first()?;
        let mut masks = mask.map(|mask| run.to_list(mask, early)).unwrap_or_default();
        let mut after = list.first()?.kernel;
        let mut outputs = Vec::new();
        let mut block = None;
        if early > 0 {
            let x = list.remove(0);
            masks.drain(..masks.len().min(1));
            let own: Vec<Vec<u64>> = states.iter().map(|w| run.shape(*w).to_vec()).collect();
            let all = [&[early][..], own.first()?].concat();
            let weights = (0..run.weights()).map(|k| run.raw_weight(k)).collect::<Vec<_>>();
            let inputs: Vec<Wire> = [x].into_iter().chain(weights).chain(states.iter().copied()).collect();
            let shapes: Vec<Vec<u64>> = [all].into_iter().chain(own).collect();
            let made = run.recurrence("While", &inputs, &shapes, &[0]);
            *states = (1..).take(states.len()).map(|output| run.output(made, output)).collect();
            block = Some(made);
        }
        let number = run.begin_loop(u32::try_from(list.len()).ok()?);
        let mut before = None;
        for (turn, x) in (0..).zip(list) {
            let from = run.kernels.len();
            after = run.begin_step(number, turn, after);
            let x = run.item(x);
            let made = step(run, x, states);
            let mask = masks.get(turn as usize).map(|mask| run.item(*mask));
            // The block's outputs are one tensor, so that the first step after it has none before.
            let made = self.masked(run, made, mask, states, before.as_ref());
            let (output, new) = made.split_first()?;
            outputs.push(run.put(*output));
            before = Some(*output);
            *states = new.to_vec();
            if let (Some(block), 1) = (block, turn) {
                // Now that a step is there: as many bytes for each of those before.
                let kept = run.kept_for_backward(from).saturating_mul(early);
                let size = run.dtype(block).size_of(1).0.max(1);
                let last = run.kernels.get_mut(block.kernel as usize).and_then(|k| k.outputs.last_mut());
                last.into_iter().for_each(|made| made.shape = vec![kept / size]);
            }
        }
        run.end_step();
        let trains = run.compute.training;
        let zeros = outputs.last().filter(|_| trains).and_then(|last| run.zeros_like_list(whole, *last));
        Some((block, outputs, zeros))
    }
}
