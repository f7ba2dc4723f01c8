//! LSTM, GRU and RNN, unrolled over time. A step is two linear layers of all gates, cut into gates, then elementwise; burn-nn's
//! modules do the same with a layer a gate.

use super::Family;
use crate::frameworks::burn::builder::{MOST, Refusal};
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Binary, Kind, Slot, Unary};
use memfit_graph::ops::rnn::{Cell, Rnn};
use memfit_graph::ops::rnn_cell::RnnCell;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["LSTM", "GRU", "RNN"], rule: recurrent },
    Family { names: &["LSTMCell", "GRUCell"], rule: one_step },
];

/// The weights of one direction of one layer.
struct Weights {
    input: Slot,
    hidden: Slot,
    input_bias: Option<Slot>,
    hidden_bias: Option<Slot>,
    /// Whether gates stand in PyTorch's order: input, forget, cell, output; reset, update, new.
    torch_order: bool,
    /// Of a GRU that resets the state before the product: what of `hidden` and its bias is for two gates, and for the third.
    apart: Option<[(Slot, Option<Slot>); 2]>,
}

impl Weights {
    /// How many units there are, where all of these are weights of so many gates of theirs.
    fn units(&self, l: &Lower<'_, '_>, gates: usize) -> Result<usize, Refusal> {
        let [[units, all], [_, of_input]] = [self.hidden, self.input].map(|w| match l.shape(w)[..] {
            [from, to] => [from, to],
            _ => [0, 0],
        });
        let biases = [self.input_bias, self.hidden_bias].into_iter().flatten();
        let is_one = [all, of_input].iter().all(|n| *n == units.saturating_mul(gates));
        if units == 0 || !is_one || biases.into_iter().any(|bias| l.shape(bias)[..] != [all]) {
            return Err("weights of another layout".into());
        }
        Ok(units)
    }

    /// Cast once for all steps.
    fn for_products(self, l: &mut Lower<'_, '_>) -> Weights {
        Weights {
            input: l.product_input(self.input),
            hidden: l.product_input(self.hidden),
            input_bias: self.input_bias.map(|bias| l.product_input(bias)),
            hidden_bias: self.hidden_bias.map(|bias| l.product_input(bias)),
            ..self
        }
    }
}

fn recurrent(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Rnn>().copied().ok_or("an unknown form")?;
    if [4, 7].into_iter().any(|i| l.id(i).is_some()) {
        return Err("lengths or peepholes that are given".into());
    }
    if op.other_gates {
        return Err("gates other than the cell's own".into());
    }
    let x = l.input(0)?;
    let x = l.product_input(x);
    let x = if op.batch_first { l.swap(x, 0, 1) } else { x };
    let [steps, batch, features] = l.shape(x)[..] else { return Err("not three axes".into()) };
    if steps == 0 {
        return Err("a sequence without steps".into());
    }
    let gates = match op.cell {
        Cell::Lstm => 4,
        Cell::Gru => 3,
        Cell::Rnn => 1,
    };
    let layers = usize::try_from(op.layers).map_err(|_| "too many layers")?;
    let directions = if op.directions == 2 { 2 } else { 1 };
    let written = steps.saturating_mul(layers).saturating_mul(directions);
    if written > MOST {
        return Err(format!("{written} steps to write out, more than {MOST}"));
    }
    let mut inputs: Vec<Slot> = (0..steps).map(|t| l.narrow(x, 0, t, t + 1)).collect::<Vec<_>>();
    for input in &mut inputs {
        *input = l.reshape(*input, vec![batch, features]);
    }
    let mut last = Vec::new();
    for layer in 0..layers {
        let mut outputs: Vec<Vec<Slot>> = Vec::new();
        for direction in 0..directions {
            let mut w = weights(l, &op, layer, direction, directions)?.for_products(l);
            let hidden = w.units(l, gates)?;
            if op.cell == Cell::Gru && !op.resets_after && !w.torch_order {
                w.apart = Some([(0, 2), (2, 3)].map(|(from, to)| {
                    let (from, to) = (from * hidden, to * hidden);
                    let bias = w.hidden_bias.map(|bias| l.narrow(bias, 0, from, to));
                    (l.narrow(w.hidden, 1, from, to), bias)
                }));
            }
            let kind = Kind::Float(l.program.products);
            let initial = |l: &mut Lower<'_, '_>, i: usize| match l.optional(i)? {
                None => Ok(l.full(kind, vec![batch, hidden], 0.0)),
                Some(state) => {
                    let (axis, row) = (usize::from(op.batch_first), layer * directions + direction);
                    if l.shape(state).get(axis) != Some(&(layers * directions)) {
                        return Err("initial states of other layers".into());
                    }
                    let own = l.narrow(state, axis, row, row + 1);
                    let own = l.reshape(own, vec![batch, hidden]);
                    Ok::<Slot, Refusal>(l.product_input(own))
                }
            };
            let mut h = initial(l, 5)?;
            let mut c = (op.cell == Cell::Lstm).then(|| initial(l, 6)).transpose()?;
            let mut outs = vec![h; steps];
            for k in 0..steps {
                let t = if direction == 1 || op.reverse { steps - 1 - k } else { k };
                (h, c) = cell(l, op.cell, inputs[t], h, c, &w, hidden)?;
                outs[t] = h;
            }
            last.push((h, c));
            outputs.push(outs);
        }
        inputs = match &outputs[..] {
            [forward, backward] => forward.iter().zip(backward).map(|(a, b)| l.cat(&[*a, *b], 1)).collect(),
            _ => outputs.swap_remove(0),
        };
    }
    if l.wants(0) {
        let shape = l.output_shape(0)?;
        let axis = if op.batch_first { 1 } else { 0 };
        let rows: Vec<Slot> = inputs
            .iter()
            .map(|h| {
                let mut one = l.shape(*h);
                one.insert(axis, 1);
                l.reshape(*h, one)
            })
            .collect();
        let mut y = l.cat(&rows, axis);
        if !op.batch_first && directions == 2 {
            let [.., both] = l.shape(y)[..] else { return Err("no steps to join".into()) };
            let hidden = both / 2;
            y = l.reshape(y, vec![steps, batch, 2, hidden]);
            y = l.swap(y, 1, 2);
        }
        let y = l.reshape(y, shape);
        l.set(0, y);
    }
    let last = last.split_off(last.len().saturating_sub(directions));
    for j in 1..3 {
        if !l.wants(j) {
            continue;
        }
        let shape = l.output_shape(j)?;
        let states: Option<Vec<Slot>> =
            last.iter().map(|(h, c)| if j == 1 { Some(*h) } else { *c }).collect();
        let states = states.ok_or("a state that this cell does not have")?;
        let axis = usize::from(op.batch_first);
        let rows: Vec<Slot> = states
            .into_iter()
            .map(|h| {
                let mut one = l.shape(h);
                one.insert(axis, 1);
                l.reshape(h, one)
            })
            .collect();
        let y = if rows.len() == 1 { rows[0] } else { l.cat(&rows, axis) };
        let y = l.reshape(y, shape);
        l.set(j, y);
    }
    Ok(())
}

fn one_step(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<RnnCell>().copied().ok_or("an unknown form")?;
    let [x, h, input, hidden, input_bias, hidden_bias] = [0, 1, 2, 3, 4, 5].map(|i| l.input(i));
    let (input, hidden) = (l.swap(input?, 0, 1), l.swap(hidden?, 0, 1));
    let (input_bias, hidden_bias) = (Some(input_bias?), Some(hidden_bias?));
    let w = Weights { input, hidden, input_bias, hidden_bias, torch_order: true, apart: None };
    let w = w.for_products(l);
    let h = h.map(|h| l.product_input(h))?;
    let size = w.units(l, if matches!(op, RnnCell::Lstm) { 4 } else { 3 })?;
    let (kind, c) = match op {
        RnnCell::Lstm => {
            let c = l.input(6)?;
            (Cell::Lstm, Some(l.product_input(c)))
        }
        RnnCell::Gru => (Cell::Gru, None),
    };
    let (h, c) = cell(l, kind, x?, h, c, &w, size)?;
    l.set(0, h);
    if let Some(c) = c {
        l.set(1, c);
    }
    Ok(())
}

fn weights(
    l: &mut Lower<'_, '_>,
    op: &Rnn,
    layer: usize,
    direction: usize,
    directions: usize,
) -> Result<Weights, Refusal> {
    // After the operator's own eight inputs come those of further layers.
    let slots: Vec<usize> = (1..4).chain(8..l.node.inputs.len()).collect();
    let at = |k: usize| slots.get(k).copied().ok_or("a weight that is absent");
    if op.own_weights {
        // A layer's weights as ONNX's inputs lay them out: those of all directions one after the other, then biases in pairs.
        let given = slots.iter().filter(|i| l.id(**i).is_some()).count();
        let layers = usize::try_from(op.layers).map_err(|_| "too many layers")?;
        let each = given / layers.max(1);
        let base = layer * each + direction;
        let (input, hidden) = (l.input(at(base)?)?, l.input(at(base + directions)?)?);
        let bias = |l: &mut Lower<'_, '_>, k: usize| -> Result<Option<Slot>, Refusal> {
            if each == 2 * directions {
                return Ok(None);
            }
            if each == 2 * directions + 1 {
                // Folded by the exporter, all biases of a layer in one.
                let all = l.input(at(layer * each + 2 * directions)?)?;
                return folded_bias(l, op.cell, all, direction, k).map(Some);
            }
            if each != 4 * directions {
                return Err("weights of another layout".into());
            }
            let i = at(layer * each + 2 * directions + 2 * direction + k)?;
            Ok(Some(l.input(i)?))
        };
        let (input_bias, hidden_bias) = (bias(l, 0)?, bias(l, 1)?);
        let (input, hidden) = (l.swap(input, 0, 1), l.swap(hidden, 0, 1));
        return Ok(Weights { input, hidden, input_bias, hidden_bias, torch_order: true, apart: None });
    }
    let one = |l: &mut Lower<'_, '_>, i: usize| {
        let w = l.input(i)?;
        let w = l.narrow(w, 0, direction, direction + 1);
        let shape = l.shape(w).get(1..).unwrap_or_default().to_vec();
        Ok::<Slot, Refusal>(l.reshape(w, shape))
    };
    let base = layer * 3;
    let (input, hidden) = (one(l, at(base)?)?, one(l, at(base + 1)?)?);
    let bias = at(base + 2).ok().filter(|i| l.id(*i).is_some());
    let bias = bias.map(|i| one(l, i)).transpose()?;
    let half = match bias.map(|bias| l.shape(bias)) {
        None => None,
        Some(shape) => match shape[..] {
            [both] => Some(both / 2),
            _ => return Err("biases of another layout".into()),
        },
    };
    let input_bias = bias.zip(half).map(|(b, n)| l.narrow(b, 0, 0, n));
    let hidden_bias = bias.zip(half).map(|(b, n)| l.narrow(b, 0, n, 2 * n));
    Ok(Weights {
        input: l.swap(input, 0, 1),
        hidden: l.swap(hidden, 0, 1),
        input_bias,
        hidden_bias,
        torch_order: false,
        apart: None,
    })
}

/// One of the two biases of a direction out of ONNX's own tensor of all, `[directions, 2 * gates * hidden]`, its gates in PyTorch's order.
fn folded_bias(
    l: &mut Lower<'_, '_>,
    cell: Cell,
    all: Slot,
    direction: usize,
    k: usize,
) -> Result<Slot, Refusal> {
    let order: &[usize] = match cell {
        Cell::Lstm => &[0, 2, 3, 1],
        Cell::Gru => &[1, 0, 2],
        Cell::Rnn => &[0],
    };
    let &[_, size] = &l.shape(all)[..] else { return Err("biases of another layout".into()) };
    let (half, hidden) = (size / 2, size / 2 / order.len());
    let own = l.narrow(all, 0, direction, direction + 1);
    let own = l.reshape(own, vec![size]);
    let gate = |i: &usize| (k * half + i * hidden, k * half + (i + 1) * hidden);
    let gates: Vec<Slot> = order.iter().map(gate).map(|(from, to)| l.narrow(own, 0, from, to)).collect();
    Ok(l.cat(&gates, 0))
}

/// One step. ONNX's order of gates: input, output, forget, cell; update, reset, hidden.
fn cell(
    l: &mut Lower<'_, '_>,
    cell: Cell,
    x: Slot,
    h: Slot,
    c: Option<Slot>,
    w: &Weights,
    hidden: usize,
) -> Result<(Slot, Option<Slot>), Refusal> {
    let from_x = l.linear(x, w.input, w.input_bias);
    let from_h = match w.apart {
        Some([(weight, bias), _]) => l.linear(h, weight, bias),
        None => l.linear(h, w.hidden, w.hidden_bias),
    };
    let gate = |l: &mut Lower<'_, '_>, t: Slot, k: usize| l.narrow(t, 1, k * hidden, (k + 1) * hidden);
    match (cell, c) {
        (Cell::Lstm, Some(c)) => {
            let all = l.binary(Binary::Add, from_x, from_h)?;
            let parts: Vec<Slot> = (0..4).map(|k| gate(l, all, k)).collect();
            let ([i, o, f], g) = if w.torch_order { ([0, 3, 1], 2) } else { ([0, 1, 2], 3) };
            let [i, o, f] = [i, o, f].map(|k| l.unary(Unary::Sigmoid, parts[k]));
            let g = l.unary(Unary::Tanh, parts[g]);
            let kept = l.binary(Binary::Mul, f, c)?;
            let added = l.binary(Binary::Mul, i, g)?;
            let c = l.binary(Binary::Add, kept, added)?;
            let squashed = l.unary(Unary::Tanh, c);
            Ok((l.binary(Binary::Mul, o, squashed)?, Some(c)))
        }
        (Cell::Gru, _) => {
            let sum = |l: &mut Lower<'_, '_>, k: usize| {
                let (a, b) = (gate(l, from_x, k), gate(l, from_h, k));
                l.binary(Binary::Add, a, b)
            };
            let (z, r) = if w.torch_order { (1, 0) } else { (0, 1) };
            let (z, r) = (sum(l, z)?, sum(l, r)?);
            let (z, r) = (l.unary(Unary::Sigmoid, z), l.unary(Unary::Sigmoid, r));
            let xn = gate(l, from_x, 2);
            let hn = match w.apart {
                Some([_, (weight, bias)]) => {
                    let reset = l.binary(Binary::Mul, r, h)?;
                    l.linear(reset, weight, bias)
                }
                None => {
                    let hn = gate(l, from_h, 2);
                    l.binary(Binary::Mul, r, hn)?
                }
            };
            let n = l.binary(Binary::Add, xn, hn)?;
            let n = l.unary(Unary::Tanh, n);
            let difference = l.binary(Binary::Sub, h, n)?;
            let kept = l.binary(Binary::Mul, z, difference)?;
            Ok((l.binary(Binary::Add, n, kept)?, None))
        }
        _ => {
            let sum = l.binary(Binary::Add, from_x, from_h)?;
            Ok((l.unary(Unary::Tanh, sum), None))
        }
    }
}
