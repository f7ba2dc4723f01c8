//! `nn.LSTMCell` and `nn.GRUCell`: one kernel for all gates, which both exporters write as some twenty nodes.
//!
//! Model code that composes gates of its own looks alike, but has its products in modules of their own; a cell has all in
//! one scope. Gates stand in PyTorch's order (aten/src/ATen/native/RNN.cpp: `LSTMCell`, `GRUCell`).

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::rnn_cell::RnnCell;
use memfit_graph::{NodeId, TensorId};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "recurrent cells", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    if let Some((inputs, states)) = lstm(rw, id) {
        let types = states.iter().map(|t| rw.ty(*t).clone()).collect();
        let made = rw.insert_with_outputs(id, Arc::new(RnnCell::Lstm), inputs, types);
        states.into_iter().zip(made).for_each(|(old, new)| rw.redirect(old, new));
        return true;
    }
    let Some(inputs) = gru(rw, id) else { return false };
    rw.rewrite(id, Arc::new(RnnCell::Gru), inputs);
    true
}

/// `h' = o * tanh(c')` with `c' = f * c + i * g`; the inputs of the cell, and both results.
fn lstm(rw: &Rewriter<'_>, id: NodeId) -> Option<(Vec<Option<TensorId>>, [TensorId; 2])> {
    if !rw.is(id, "Mul") {
        return None;
    }
    let (tanh, output) = rw.operands(id, |t| rw.made_for_one(t, "Tanh"))?;
    let states = [rw.output(id)?, rw.input(tanh, 0)?];
    let [_, cell] = states;
    if states.iter().any(|t| rw.is_graph_output(*t)) {
        return None;
    }
    let sum = rw.made_by(cell, "Add")?;
    let gated = |t: TensorId| {
        let product = rw.made_for_one(t, "Mul")?;
        rw.operands(product, |t| rw.made_for_one(t, "Tanh"))
    };
    let ((candidate, input), forgotten) = rw.operands(sum, gated)?;
    let forgotten = rw.made_for_one(forgotten, "Mul")?;
    let (forget, state) = rw.operands(forgotten, |t| rw.made_for_one(t, "Sigmoid"))?;
    let gates = [rw.made_for_one(input, "Sigmoid")?, forget, candidate, rw.made_for_one(output, "Sigmoid")?];
    let split = split_into(rw, &gates.map(|gate| rw.input(gate, 0)))?;
    let products = rw.made_for_one(rw.input(split, 0)?, "Add")?;
    let mut inputs = products_of(rw, id, rw.input(products, 1)?, rw.input(products, 0)?)?;
    inputs.push(Some(state));
    Some((inputs, states))
}

/// `(h - n) * z + n` with `n = tanh(i + r * h)`; the inputs of the cell.
fn gru(rw: &Rewriter<'_>, id: NodeId) -> Option<Vec<Option<TensorId>>> {
    if !rw.is(id, "Add") {
        return None;
    }
    let (mixed, new) = rw.operands(id, |t| rw.made_for_one(t, "Mul"))?;
    let (difference, update) = rw.operands(mixed, |t| rw.made_for_one(t, "Sub"))?;
    let state = rw.input(difference, 0).filter(|_| rw.input(difference, 1) == Some(new))?;
    let sum = rw.made_for_one(rw.input(rw.made_by(new, "Tanh")?, 0)?, "Add")?;
    let (product, of_input) = rw.operands(sum, |t| rw.made_for_one(t, "Mul"))?;
    let (reset, of_state) = rw.operands(product, |t| rw.made_for_one(t, "Sigmoid"))?;
    let terms = |gate: NodeId| {
        let sum = rw.made_for_one(rw.input(gate, 0)?, "Add")?;
        Some((rw.input(sum, 0)?, rw.input(sum, 1)?))
    };
    let (reset, update) = (terms(reset)?, terms(rw.made_for_one(update, "Sigmoid")?)?);
    let by_state = split_into(rw, &[Some(reset.0), Some(update.0), Some(of_state)])?;
    let by_input = split_into(rw, &[Some(reset.1), Some(update.1), Some(of_input)])?;
    let inputs = products_of(rw, id, rw.input(by_input, 0)?, rw.input(by_state, 0)?)?;
    (inputs.get(1) == Some(&Some(state))).then_some(inputs)
}

/// The node that splits something into exactly these parts.
fn split_into(rw: &Rewriter<'_>, parts: &[Option<TensorId>]) -> Option<NodeId> {
    let split = rw.made_by((*parts.first()?)?, "Split")?;
    (rw.node(split).outputs == parts && parts.iter().flatten().all(|t| rw.use_count(*t) == 1))
        .then_some(split)
}

/// What two biased products of the cell at `id` read: x, state, weights, biases.
fn products_of(
    rw: &Rewriter<'_>,
    id: NodeId,
    of_input: TensorId,
    of_state: TensorId,
) -> Option<Vec<Option<TensorId>>> {
    let product = |t: TensorId| {
        let node = rw.made_for_one(t, "Gemm").or_else(|| rw.made_for_one(t, "Linear"))?;
        let [Some(x), Some(weight), Some(bias)] = rw.node(node).inputs[..] else { return None };
        let of_cell = rw.node(node).scope == rw.node(id).scope && rw.is_stored(weight) && rw.is_stored(bias);
        // `[gates, size]`, as the framework has it.
        let turned = rw.shape(weight)?.dims().first() == rw.shape(bias)?.dims().first();
        (of_cell && turned).then_some([x, weight, bias])
    };
    let ([x, weight_ih, bias_ih], [state, weight_hh, bias_hh]) = (product(of_input)?, product(of_state)?);
    Some([x, state, weight_ih, weight_hh, bias_ih, bias_hh].map(Some).into())
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{Attribute, Attributes, TensorId};

    fn product(s: &mut Sketch, x: TensorId, gates: u64, size: u64) -> TensorId {
        let at = s.graph.tensors.len();
        let (w, b) = (s.weight(&format!("w{at}"), &[gates, size]), s.weight(&format!("b{at}"), &[gates]));
        s.push_with("Gemm", Attributes::from([("transB", Attribute::Int(1))]), &[x, w, b])
    }

    fn split<const N: usize>(s: &mut Sketch, x: TensorId) -> [TensorId; N] {
        let first = s.push_with("Split", Attributes::from([("axis", Attribute::Int(1))]), &[x]);
        let at = s.graph.nodes.len() - 1;
        std::array::from_fn(|j| {
            if j > 0 {
                let name = format!("part{j}_{}", first.index());
                let t =
                    s.graph.add_tensor(&*name, memfit_graph::Type::Unknown, memfit_graph::Role::Intermediate);
                s.graph.nodes[at].outputs.push(Some(t));
                return t;
            }
            first
        })
    }

    fn lstm(s: &mut Sketch) -> TensorId {
        let [x, h, c] = [("x", 4), ("h", 8), ("c", 8)].map(|(name, size)| s.input(name, &[2, size]));
        let (by_state, by_input) = (product(s, h, 32, 8), product(s, x, 32, 4));
        let gates = s.push("Add", &[by_state, by_input]);
        let [i, f, g, o] = split::<4>(s, gates);
        let [i, f, o] = [i, f, o].map(|t| s.push("Sigmoid", &[t]));
        let g = s.push("Tanh", &[g]);
        let (kept, new) = (s.push("Mul", &[f, c]), s.push("Mul", &[i, g]));
        let cell = s.push("Add", &[kept, new]);
        let seen = s.push("Tanh", &[cell]);
        let hidden = s.push("Mul", &[o, seen]);
        s.push("Add", &[hidden, cell])
    }

    #[test]
    fn a_step_of_an_lstm() {
        let mut s = Sketch::default();
        let y = lstm(&mut s);
        assert_eq!(s.recompose(y), ["LSTMCell", "Add"]);
        assert_eq!(s.inputs_of(0)[..2], ["x", "h"]);
        assert_eq!(s.graph.nodes[0].outputs.len(), 2);
    }

    #[test]
    fn gates_of_a_models_own_have_modules_for_their_products() {
        let mut s = Sketch::default();
        let y = lstm(&mut s);
        s.graph.nodes[0].scope = "cell.hidden".into();
        assert_eq!(s.recompose(y).len(), 14);
    }

    #[test]
    fn a_step_of_a_gru() {
        let mut s = Sketch::default();
        let [x, h] = [("x", 4), ("h", 8)].map(|(name, size)| s.input(name, &[2, size]));
        let (by_input, by_state) = (product(&mut s, x, 24, 4), product(&mut s, h, 24, 8));
        let ([ir, iz, i], [hr, hz, hn]) = (split::<3>(&mut s, by_input), split::<3>(&mut s, by_state));
        let [r, z] = [[hr, ir], [hz, iz]].map(|pair| {
            let sum = s.push("Add", &pair);
            s.push("Sigmoid", &[sum])
        });
        let kept = s.push("Mul", &[hn, r]);
        let sum = s.push("Add", &[i, kept]);
        let new = s.push("Tanh", &[sum]);
        let difference = s.push("Sub", &[h, new]);
        let mixed = s.push("Mul", &[difference, z]);
        let y = s.push("Add", &[mixed, new]);
        assert_eq!(s.recompose(y), ["GRUCell"]);
        assert_eq!(s.inputs_of(0)[..2], ["x", "h"]);
    }
}
