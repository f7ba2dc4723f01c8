//! Recurrent layers that one call runs.
//!
//! The TorchScript exporter writes one LSTM, GRU or RNN a layer, with the layout changed in between, and takes their
//! zero initial states from one constant; the dynamo exporter cuts each weight up and joins the parts in ONNX's order of
//! gates. `nn.LSTM` runs all layers in one `_cudnn_rnn`, which keeps the input and the
//! last output and nothing in between, and makes both initial states itself (torch/nn/modules/rnn.py).

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::rnn::Rnn;
use memfit_graph::{NodeId, TensorId, is_exporter_name};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "recurrent layers", run };

/// Inputs of the operator up to the peepholes; further layers come after them.
const OWN_INPUTS: usize = 8;

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let Some(rnn) = rw.op::<Rnn>(id).copied() else { return false };
    let mut inputs = rw.node(id).inputs.clone();
    for slot in [5, 6] {
        if let Some(state) = inputs.get_mut(slot)
            && state.is_some_and(|t| is_zeros(rw, t))
        {
            *state = None;
        }
    }
    let mut rnn = rnn;
    if let Some(weights) = own_weights(rw, &inputs) {
        let slots = [1, 2, 3].into_iter().chain(OWN_INPUTS..);
        inputs.resize(OWN_INPUTS, None);
        inputs[1..4].fill(None);
        for (slot, weight) in slots.zip(weights) {
            if slot >= inputs.len() {
                inputs.push(None);
            }
            inputs[slot] = Some(weight);
        }
        rnn.own_weights = true;
    }
    let below = inputs.first().copied().flatten().and_then(|x| layer_below(rw, x, &rnn));
    let below = below.and_then(|(lower, first)| Some((lower, first, states(rw, lower, &inputs)?)));
    let (op, inputs) = match below {
        Some((lower, first, states)) => {
            let mut all = rw.node(lower).inputs.clone();
            all.resize(all.len().max(OWN_INPUTS), None);
            all[5..7].copy_from_slice(&states);
            let weights = (1..4).chain(OWN_INPUTS..inputs.len());
            all.extend(weights.map(|i| inputs.get(i).copied().flatten()));
            let own_weights = first.own_weights || rnn.own_weights;
            (Rnn { layers: first.layers + rnn.layers, own_weights, ..first }, all)
        }
        None if inputs != rw.node(id).inputs => (rnn, inputs),
        None => return false,
    };
    rw.rewrite(id, Arc::new(op), inputs);
    true
}

/// The stored tensors that the weights are laid out from, where an exporter did that in the graph.
fn own_weights(rw: &Rewriter<'_>, inputs: &[Option<TensorId>]) -> Option<Vec<TensorId>> {
    let (w, r) = (inputs.get(1).copied().flatten()?, inputs.get(2).copied().flatten()?);
    if rw.is_stored(w) && rw.is_stored(r) {
        return None;
    }
    let mut weights = Vec::new();
    let mut pending: Vec<TensorId> =
        inputs.get(1..4).unwrap_or_default().iter().rev().flatten().copied().collect();
    // Each weight of a cell is cut into at most four gates of two parts.
    for _ in 0..512 {
        let Some(t) = pending.pop() else { return Some(weights) };
        if rw.is_stored(t) {
            if !weights.contains(&t) {
                weights.push(t);
            }
            continue;
        }
        let node = rw.producer(t)?;
        let parts = match rw.node(node).op.name() {
            "Concat" => rw.node(node).inputs.len(),
            "Slice" | "Split" | "Unsqueeze" | "Squeeze" | "Reshape" | "Transpose" | "Identity" => 1,
            _ => return None,
        };
        pending.extend(rw.node(node).inputs.iter().take(parts).rev().flatten());
    }
    None
}

/// The layer whose whole output is this layer's input, seen through a change of layout.
fn layer_below(rw: &Rewriter<'_>, x: TensorId, upper: &Rnn) -> Option<(NodeId, Rnn)> {
    let mut t = x;
    for _ in 0..4 {
        let node = rw.producer(t)?;
        // Others may ask for its shape.
        if rw.is_graph_output(t) || rw.readers(t).filter(|n| !rw.is(*n, "Shape")).count() != 1 {
            return None;
        }
        if let Some(lower) = rw.op::<Rnn>(node).copied() {
            let others = rw.node(node).outputs.get(1..).unwrap_or_default();
            let unread = others.iter().flatten().all(|o| rw.use_count(*o) == 0);
            let kind = |rnn: &Rnn| {
                (rnn.cell, rnn.directions, rnn.hidden, rnn.reverse, rnn.resets_after, rnn.other_gates)
            };
            let alike = kind(&lower) == kind(upper);
            return (alike && unread && rw.node(node).outputs.first() == Some(&Some(t)))
                .then_some((node, lower));
        }
        if !matches!(rw.node(node).op.name(), "Reshape" | "Transpose" | "Squeeze" | "Dropout") {
            return None;
        }
        t = rw.input(node, 0)?;
    }
    None
}

/// The initial states that a layer and the one below it were given together: both cut from one tensor, or none. What two calls were
/// given each for itself is no call's.
fn states(rw: &Rewriter<'_>, lower: NodeId, upper: &[Option<TensorId>]) -> Option<[Option<TensorId>; 2]> {
    let lower = &rw.node(lower).inputs[..];
    let mut whole = [None; 2];
    for (slot, whole) in [5, 6].into_iter().zip(&mut whole) {
        let given = [lower, upper].map(|inputs| inputs.get(slot).copied().flatten());
        // None, or zeros that an exporter folded.
        if given.iter().flatten().all(|state| folded_zeros(rw, *state)) {
            continue;
        }
        match given {
            [Some(a), Some(b)] if a != b && cut_from(rw, a) == cut_from(rw, b) => {
                *whole = Some(cut_from(rw, a))
            }
            _ => return None,
        }
    }
    Some(whole)
}

/// Whether a state is (a part of) a constant that an exporter folded: zeros, as far as the file tells.
fn folded_zeros(rw: &Rewriter<'_>, state: TensorId) -> bool {
    let t = part_of(rw, state, &["Slice", "Expand", "Gather", "Unsqueeze"]);
    match rw.value(t).and_then(|value| value.floats()) {
        Some(elements) => rw.is_stored(t) && elements.iter().all(|x| *x == 0.0),
        None => rw.is_stored(t) && is_exporter_name(&rw.graph.tensor(t).name),
    }
}

/// The tensor that a state is a part of.
fn cut_from(rw: &Rewriter<'_>, state: TensorId) -> TensorId {
    part_of(rw, state, &["Slice", "Split", "Gather", "Unsqueeze"])
}

/// What a tensor was made from by at most four of these operators.
fn part_of(rw: &Rewriter<'_>, mut t: TensorId, by: &[&str]) -> TensorId {
    for _ in 0..4 {
        let node = rw.producer(t).filter(|node| by.contains(&rw.node(*node).op.name()));
        let Some(input) = node.and_then(|node| rw.input(node, 0)) else { break };
        t = input;
    }
    t
}

/// Whether an initial state is (a part of) a constant that the exporter made for it.
fn is_zeros(rw: &Rewriter<'_>, state: TensorId) -> bool {
    let mut t = state;
    for _ in 0..4 {
        let Some(node) = rw.producer(t) else { return false };
        match rw.node(node).op.name() {
            "ConstantOfShape" => return true,
            "Slice" | "Expand" | "Gather" | "Unsqueeze" => match rw.input(node, 0) {
                Some(input) => t = input,
                None => return false,
            },
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{Attribute, Attributes};

    #[test]
    fn two_layers_become_one_call_and_keep_their_weights() {
        let mut s = Sketch::default();
        let x = s.input("x", &[10, 2, 8]);
        let layer = |s: &mut Sketch, x, inputs: u64| {
            let (w, r) = (s.weight("w", &[1, 16, inputs]), s.weight("r", &[1, 16, 4]));
            s.push_with("LSTM", Attributes::from([("hidden_size", Attribute::Int(4))]), &[x, w, r])
        };
        let y = layer(&mut s, x, 8);
        let axes = s.ints(&[1]);
        let y = s.push("Squeeze", &[y, axes]);
        let y = layer(&mut s, y, 4);
        assert_eq!(s.recompose(y), ["LSTM"]);
        assert_eq!(s.inputs_of(0), ["x", "w", "r", "w", "r"]);
    }

    #[test]
    fn zeros_that_an_exporter_folded_are_no_states_however_many_layers_there_are() {
        let mut s = Sketch::default();
        let mut y = s.input("x", &[10, 2, 4]);
        let (none, zeros) = (s.ints(&[]), s.weight("val_21", &[3, 2, 4]));
        for layer in 0..3 {
            let (w, r, b) = (s.weight("w", &[1, 16, 4]), s.weight("r", &[1, 16, 4]), s.weight("b", &[1, 32]));
            let (start, end, axes) = (s.ints(&[layer]), s.ints(&[layer + 1]), s.ints(&[0]));
            let state = s.push("Slice", &[zeros, start, end, axes]);
            let inputs = [y, w, r, b, none, state, state];
            y = s.push_with("LSTM", Attributes::from([("hidden_size", Attribute::Int(4))]), &inputs);
            let axes = s.ints(&[1]);
            y = s.push("Squeeze", &[y, axes]);
            y = if layer < 2 { s.push("Dropout", &[y]) } else { y };
        }
        assert_eq!(s.recompose(y), ["LSTM", "Squeeze"]);
    }

    #[test]
    fn layers_share_the_states_that_they_are_cut_from_and_no_others() {
        for shared in [true, false] {
            let mut s = Sketch::default();
            let x = s.input("x", &[10, 2, 4]);
            let h = s.input("h", &[2, 2, 4]);
            let other = s.input("other", &[1, 2, 4]);
            let none = s.ints(&[]);
            let layer = |s: &mut Sketch, x, state| {
                let (w, r, b) =
                    (s.weight("w", &[1, 16, 4]), s.weight("r", &[1, 16, 4]), s.weight("b", &[1, 32]));
                let states = [x, w, r, b, none, state, state];
                s.push_with("LSTM", Attributes::from([("hidden_size", Attribute::Int(4))]), &states)
            };
            let cut = |s: &mut Sketch, from: i64| {
                let (start, end, axes) = (s.ints(&[from]), s.ints(&[from + 1]), s.ints(&[0]));
                s.push("Slice", &[h, start, end, axes])
            };
            let first = cut(&mut s, 0);
            let second = if shared { cut(&mut s, 1) } else { other };
            let y = layer(&mut s, x, first);
            let axes = s.ints(&[1]);
            let y = s.push("Squeeze", &[y, axes]);
            let y = layer(&mut s, y, second);
            let calls = s.recompose(y).into_iter().filter(|name| *name == "LSTM").count();
            assert_eq!(calls, if shared { 1 } else { 2 });
        }
    }
}
