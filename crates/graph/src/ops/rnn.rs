//! LSTM, GRU, RNN. ONNX 1, 3, 7, 14, 22; Keras `LSTM`, `GRU`, `SimpleRNN`, `Bidirectional`.
//!
//! One `_cudnn_rnn` call. Autograd keeps the input, the initial states, the weights, the output, and cuDNN's reserve
//! (derivatives.yaml: `_cudnn_rnn`); autocast casts input, states and weights down and lays the half weights out in one
//! buffer (aten/src/ATen/native/cudnn/RNN.cpp). States that a module is not given are made as zeros, and kept. The
//! reserve's size is not documented, and zero in PyTorch's shape functions; counted are the gates and states of each step and layer
//! ([`reserve`]).

use super::calls::{Traced, positive};
use crate::{
    Attributes, Autocast, Call, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place,
    Saved, Shape,
};
use std::sync::Arc;

/// Which cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Cell {
    Lstm,
    Gru,
    Rnn,
}

/// One recurrent layer, in one or both directions; or, made by recomposition, several that one call runs: weights,
/// recurrences and biases of the further layers are inputs from 8 on, and the outputs are those of the last layer.
#[derive(Clone, Copy, Debug)]
pub struct Rnn {
    /// Which cell.
    pub cell: Cell,
    /// 2 for both directions, else 1.
    pub directions: u64,
    /// The size of the state, where the file gives it.
    pub hidden: Option<u64>,
    /// Whether the batch comes first.
    pub batch_first: bool,
    /// How many layers.
    pub layers: u64,
    /// Whether it runs from the end; only in one direction.
    pub reverse: bool,
    /// Whether a GRU resets the hidden state after its product with the weights, as cuDNN does (`linear_before_reset`).
    pub resets_after: bool,
    /// Whether gates have other functions than a cell's own, a bound, or are coupled.
    pub other_gates: bool,
    /// Whether the weights are the framework's own tensors, as many as there are, rather than laid out as ONNX wants.
    pub own_weights: bool,
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec { domain: "", name: "LSTM", since: &[1, 7, 14, 22], build: |a, _| build(a, Cell::Lstm) },
    OpSpec { domain: "", name: "GRU", since: &[1, 3, 7, 14, 22], build: |a, _| build(a, Cell::Gru) },
    OpSpec { domain: "", name: "RNN", since: &[1, 7, 14, 22], build: |a, _| build(a, Cell::Rnn) },
];

fn build(a: &mut Attributes, cell: Cell) -> Result<Arc<dyn Op>, OpError> {
    let direction = a.text("direction")?;
    let directions = match direction.as_deref() {
        None | Some("forward" | "reverse") => 1,
        Some("bidirectional") => 2,
        Some(other) => {
            return Err(OpError::attribute("direction", "forward, reverse or bidirectional", other));
        }
    };
    let hidden = if a.has("hidden_size") { Some(positive(a, "hidden_size", 1)?) } else { None };
    let own = match cell {
        Cell::Lstm => &["sigmoid", "tanh", "tanh"][..],
        Cell::Gru => &["sigmoid", "tanh"],
        Cell::Rnn => &["tanh"],
    };
    let functions = a.texts("activations")?.unwrap_or_default();
    let as_own = |(i, name): (usize, &String)| name.eq_ignore_ascii_case(own[i % own.len()]);
    let other_gates = !functions.iter().enumerate().all(as_own) || a.has("clip") || a.flag("input_forget")?;
    Ok(Arc::new(Rnn {
        cell,
        directions,
        reverse: direction.as_deref() == Some("reverse"),
        resets_after: a.flag("linear_before_reset")?,
        other_gates,
        hidden,
        batch_first: a.flag("layout")?,
        layers: 1,
        own_weights: false,
    }))
}

impl Op for Rnn {
    fn name(&self) -> &str {
        match self.cell {
            Cell::Lstm => "LSTM",
            Cell::Gru => "GRU",
            Cell::Rnn => "RNN",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        cx.require(2)?;
        let dtype = cx.dtype(0);
        let x = cx.shape_of_rank(0, 3)?;
        let recurrent = if self.own_weights {
            None
        } else {
            cx.shape_of_rank(1, 3)?;
            cx.shape_of_rank(2, 3)?
        };
        let hidden = self.hidden.map(Dim::Known).or_else(|| recurrent.map(|r| r[2].clone()));
        let (Some(x), Some(hidden)) = (x, hidden) else {
            for (j, rank) in [(0, 4_u64), (1, 3), (2, 3)] {
                let unknown = (0..rank).map(|k| cx.fresh_dim(&format!("y{j}.dim{k}"), None)).collect();
                cx.set(j, dtype, Some(unknown));
            }
            return Ok(());
        };
        let directions = Dim::Known(self.directions);
        let (seq, batch) = if self.batch_first { (&x[1], &x[0]) } else { (&x[0], &x[1]) };
        let dims = |dims: [&Dim; 4]| dims.into_iter().cloned().collect::<Shape>();
        let (all, last) = if self.batch_first {
            (dims([batch, seq, &directions, &hidden]), [batch, &directions, &hidden])
        } else {
            (dims([seq, &directions, batch, &hidden]), [&directions, batch, &hidden])
        };
        let last: Shape = last.into_iter().cloned().collect();
        cx.set(0, dtype, Some(all));
        cx.set(1, dtype, Some(last.clone()));
        cx.set(2, dtype, Some(last));
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let mut x = Traced::input(l, 0);
        if self.batch_first {
            x = x.transpose(l, 0, 1);
        }
        let (Some(seq), Some(batch)) = (x.shape.first().copied(), x.shape.get(1).copied()) else { return };
        let hidden = self.hidden.or_else(|| l.shape(2).get(2).copied()).unwrap_or(0);
        let state_shape = [self.directions.saturating_mul(self.layers), batch, hidden];
        let mut inputs = vec![x];
        let states: &[usize] = if self.cell == Cell::Lstm { &[5, 6] } else { &[5] };
        for slot in states {
            inputs.push(match Traced::optional(l, *slot) {
                Some(state) if self.batch_first => state.transpose(l, 0, 1),
                Some(state) => state,
                None => {
                    let zeros = Call::new("zeros").output(&state_shape, OutDtype::Is(l.dtype(0)), Place::New);
                    Traced::of(l, zeros, &state_shape, &[])
                }
            });
        }
        inputs.extend((1..4).chain(8..l.input_count()).filter_map(|i| Traced::optional(l, i)));
        let output = [seq, batch, self.directions.saturating_mul(hidden)];
        let kept = reserve(self.cell, hidden).saturating_mul(state_shape[0]);
        let y = cudnn_rnn(l, &inputs, &[], &output, [states.len() as u64, kept]);
        let Operand::Result { call, .. } = y.operand else { return };
        for (j, _) in states.iter().enumerate() {
            let operand = Operand::Result { call, output: j + 1 };
            let state =
                Traced { operand, shape: state_shape.as_slice().into(), requires_grad: y.requires_grad };
            if l.wants(j + 1) {
                let before = self.directions.saturating_mul(self.layers.saturating_sub(1));
                let state = if before > 0 { state.narrow(l, 0, before, self.directions) } else { state };
                let state = if self.batch_first { state.transpose(l, 0, 1) } else { state };
                l.bind(j + 1, state.operand);
            }
        }
        if l.wants(0) {
            let y = y.reshape(l, &[seq, batch, self.directions, hidden]);
            let perm = if self.batch_first { [1, 0, 2, 3] } else { [0, 2, 1, 3] };
            let y = y.permute(l, &perm);
            l.bind(0, y.operand);
        }
    }
}

/// Elements that a layer keeps in cuDNN's reserve for each sample and step, in one direction: of a gated cell each state, its function,
/// and what a gate makes; of a plain one its output.
pub fn reserve(cell: Cell, hidden: u64) -> u64 {
    let each = match cell {
        Cell::Lstm => 8,
        Cell::Gru => 4,
        Cell::Rnn => 1,
    };
    hidden.saturating_mul(each)
}

/// `_cudnn_rnn` of a sequence, so many states to begin with and weights: the output of each step, and behind it the last states. For each
/// step and sample so many elements are kept in the reserve. `held` is there until it has run.
pub fn cudnn_rnn(
    l: &mut Lowering<'_>,
    inputs: &[Traced],
    held: &[Traced],
    output: &[u64],
    [states, kept]: [u64; 2],
) -> Traced {
    let mut call = Call::new("_cudnn_rnn").autocast(Autocast::Lower);
    for (i, input) in inputs.iter().enumerate() {
        call = call.input(input.operand, Grad::New).saves([Saved::Input(i)]);
    }
    call = held.iter().fold(call, |call, held| call.input(held.operand, Grad::None));
    let begin = inputs.iter().take(states as usize + 1);
    // The backward kernel makes the gradients of input and states whether or not they are wanted.
    for input in begin.clone().filter(|input| !input.requires_grad) {
        call = call.backward_scratch(&input.shape, OutDtype::Promoted);
    }
    call = call.output(output, OutDtype::Promoted, Place::New).saves([Saved::Output(0)]);
    for state in begin.skip(1) {
        call = call.output(&state.shape, OutDtype::Promoted, Place::New);
    }
    if l.training {
        let reserve = [output.first().copied().unwrap_or(0), output.get(1).copied().unwrap_or(0), kept];
        call = call.output(&reserve, OutDtype::Promoted, Place::Reserve);
        call = call.saves([Saved::Output(states as usize + 1)]);
    }
    Traced::of(l, call, output, &inputs.iter().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, In, float, symbolic};
    use super::*;
    use crate::{Attribute, View};

    fn direction(name: &str) -> Attributes {
        Attributes::from([("direction", Attribute::Text(name.into())), ("hidden_size", Attribute::Int(16))])
    }

    #[test]
    fn shapes_carry_the_batch() {
        let inputs = [symbolic(&["seq", "batch", "10"]), float(&[2, 64, 10]), float(&[2, 64, 16])];
        let out = testing::run("LSTM", 14, direction("bidirectional"), &inputs, 3).unwrap();
        let shapes: Vec<_> = out.iter().map(|(ty, _)| ty.shape().unwrap().to_string()).collect();
        assert_eq!(shapes, ["seqx2xbatchx16", "2xbatchx16", "2xbatchx16"]);
        assert!(testing::run("LSTM", 14, direction("sideways"), &inputs, 3).is_err());
        for hidden in [-4, 0] {
            let attributes = Attributes::from([("hidden_size", Attribute::Int(hidden))]);
            let error = build(&mut attributes.clone(), Cell::Lstm).unwrap_err().to_string();
            assert!(error.contains("`hidden_size`: expected a positive number"), "{error}");
        }
    }

    #[test]
    fn input_states_weights_and_output_are_kept() {
        let inputs = [
            float(&[7, 3, 10]),
            float(&[1, 64, 10]),
            float(&[1, 64, 16]),
            float(&[1, 128]),
            In::Absent,
            float(&[1, 3, 16]),
        ];
        let calls = testing::calls("LSTM", 14, direction("forward"), &inputs, 1);
        let names: Vec<_> = calls.iter().map(|c| c.function).collect();
        // The cell state is not given, so it is made.
        assert_eq!(names, ["zeros", "_cudnn_rnn", "reshape", "permute"]);
        assert_eq!(calls[1].saved.len(), 8);
        assert_eq!(calls[1].saved[6..], [Saved::Output(0), Saved::Output(3)]);
        let reserve = &calls[1].outputs[3];
        assert_eq!((&reserve.shape[..], &reserve.place), (&[7, 3, 8 * 16][..], &Place::Reserve));
        assert_eq!(calls[1].backward_scratch, [(vec![1, 3, 16], OutDtype::Promoted)]);
        assert_eq!(calls[3].outputs[0].place, Place::View(0, View::Permute(vec![0, 2, 1, 3])));
        let gru = testing::calls("GRU", 14, direction("forward"), &inputs[..4], 2);
        assert_eq!(gru[1].outputs[0].shape[..], [7, 3, 16]);
        assert_eq!(gru[1].saved.len(), 7);
        assert_eq!(gru[1].outputs[2].shape[..], [7, 3, 4 * 16]);
    }
}
