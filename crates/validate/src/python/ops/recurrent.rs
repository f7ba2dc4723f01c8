//! LSTM, GRU and RNN as torch's own modules, which hold their weights as their kernels want them.

use super::Family;
use crate::python::line::{At, Refusal, truth};
use memfit_graph::ops::rnn::{Cell, Rnn};

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["LSTM", "GRU", "RNN"], rule: recurrent },
    Family { names: &["LSTMCell", "GRUCell"], rule: cell },
];

fn recurrent(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<Rnn>()?;
    if [4, 7].into_iter().any(|i| at.id(i).is_some()) {
        return Err("lengths or peepholes that are given".into());
    }
    let class = match op.cell {
        Cell::Lstm => "LSTM",
        Cell::Gru => "GRU",
        Cell::Rnn => "RNN",
    };
    let input = at.shape(0)?.last().copied().ok_or("no features")?;
    // Y has the state's size last, and so has each state.
    let made = (0..at.node.outputs.len()).find(|j| at.output(*j).is_some()).ok_or("no output")?;
    let hidden = op.hidden.or(at.output_shape(made)?.last().copied()).ok_or("no state")?;
    let (layers, batch_first) = (op.layers, truth(op.batch_first));
    let both = truth(op.directions == 2);
    let trains = truth(at.trains(1));
    let module = at.module(format!(
        "own(nn.{class}({input}, {hidden}, {layers}, batch_first={batch_first}, bidirectional={both}), {trains})"
    ));
    let mut states = Vec::new();
    for i in [5, 6] {
        if at.id(i).is_some() {
            states.push(at.on_device(i)?);
        }
    }
    let states = match &states[..] {
        [] => ", None".into(),
        [one] => format!(", {one}"),
        all => format!(", ({})", all.join(", ")),
    };
    let x = at.on_device(0)?;
    // ONNX lays directions out in an axis of their own.
    let (directions, outputs) = (op.directions.max(1), at.node.outputs.len());
    at.set_all(format!("recurrent({module}, {x}{states}, directions={directions}, outputs={outputs})"));
    Ok(())
}

/// One step: x, state, weights, biases, and the cell state of an LSTM.
fn cell(at: &mut At<'_>) -> Result<(), Refusal> {
    let inputs = (0..at.node.inputs.len()).map(|i| at.on_device(i)).collect::<Result<Vec<_>, _>>()?;
    let [x, hidden, weights @ ..] = &inputs[..] else { return Err("a cell without a state".into()) };
    match weights {
        [weights @ .., state] if at.node.op.name() == "LSTMCell" => {
            let weights = weights.join(", ");
            at.set_all(format!("torch.lstm_cell({x}, ({hidden}, {state}), {weights})"));
        }
        _ => at.set(format!("torch.gru_cell({x}, {hidden}, {})", weights.join(", "))),
    }
    Ok(())
}
