//! Bidirectional. Keras 2 and 3.
//!
//! keras/src/layers/rnn/bidirectional.py: a recurrence and one that runs from the end, merged by `merge_mode`.

use super::LayerSpec;
use super::conv_lstm::ConvLstm;
use super::rnn::Rnn;
use crate::arguments::{Argument, Arguments};
use crate::cell::Cell;
use crate::config::{refused, shown};
use crate::layer::{Call, Configured, Layer, Weight};
use crate::reader::{Source, boxed};
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{Dim, OpError};
use serde_json::Value;

/// Two recurrences.
#[derive(Clone, Debug)]
pub struct Bidirectional {
    /// From the beginning.
    pub forward: Configured,
    /// From the end.
    pub backward: Configured,
    /// How their outputs become one.
    pub merge: MergeMode,
}

/// How two outputs become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeMode {
    /// One after the other along the features.
    Concat,
    /// Their sum.
    Sum,
    /// Their product.
    Product,
    /// Their mean.
    Mean,
    /// Not at all.
    None,
}

/// What the two recurrences must have in common, and what not (`_verify_layer_config`). Python's `1` is `True`.
fn verify(config: &Value) -> Result<(), String> {
    let inner = |key: &str| config.get(key)?.get("config");
    let (Some(forward), Some(backward)) = (inner("layer"), inner("backward_layer")) else { return Ok(()) };
    let plain = |value: &Value| value.as_bool().map_or_else(|| value.clone(), |is| Value::from(u8::from(is)));
    for name in ["go_backwards", "stateful", "return_sequences", "return_state"] {
        let (Some(of_forward), Some(of_backward)) = (forward.get(name), backward.get(name)) else { continue };
        let same = plain(of_forward) == plain(of_backward);
        if same == (name == "go_backwards") {
            let expected = if same { "another value than the layer's" } else { "the layer's value" };
            let expected = format!("{expected} {}", shown(of_forward));
            return Err(format!("its backward layer: {}", refused(name, &expected, of_backward)));
        }
    }
    Ok(())
}

fn read(source: &Source<'_>) -> Result<Bidirectional, String> {
    let merge = match source.object.config.get("merge_mode") {
        None => MergeMode::Concat,
        Some(Value::Null) => MergeMode::None,
        Some(mode) if mode == "concat" => MergeMode::Concat,
        Some(mode) if mode == "sum" => MergeMode::Sum,
        Some(mode) if mode == "mul" => MergeMode::Product,
        Some(mode) if mode == "ave" => MergeMode::Mean,
        Some(other) => {
            return Err(format!("merge_mode: expected concat, sum, mul, ave or none, found {other}"));
        }
    };
    verify(source.object.config)?;
    let renamed = |layer: Configured, prefix: &str| {
        let mut layer = layer;
        if !layer.facts.name.starts_with(prefix) {
            layer.facts.name = format!("{prefix}{}", layer.facts.name);
        }
        layer
    };
    let layer = source.inner("layer")?;
    let name = layer.facts.name.strip_prefix("forward_").unwrap_or(&layer.facts.name).to_owned();
    let mut mirrored = layer.clone();
    mirrored.facts.name = name;
    let backward = match source.optional_inner("backward_layer")? {
        Some(backward) => backward,
        None => renamed(mirrored, "backward_"),
    };
    Ok(Bidirectional { forward: renamed(layer, "forward_"), backward, merge })
}

/// How it is found.
pub const SPECS: &[LayerSpec] =
    &[LayerSpec { classes: &["Bidirectional"], keras: &[2, 3], build: |s| boxed(read(s)?) }];

impl Layer for Bidirectional {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let mut weights = self.forward.weights(call.arguments, inputs)?;
        weights.extend(self.backward.weights(call.arguments, inputs)?);
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let forward = self.forward.outputs(call.arguments, inputs)?;
        let backward = self.backward.outputs(call.arguments, inputs)?;
        let (Some((y, states)), Some((z, others))) = (forward.split_first(), backward.split_first()) else {
            return Ok(Vec::new());
        };
        let mut outputs = match self.merge {
            MergeMode::Concat => {
                let axis = y.rank().saturating_sub(1);
                vec![y.replaced(axis, spec::sum(y.last()?, z.last()?)?)]
            }
            MergeMode::Sum | MergeMode::Product | MergeMode::Mean => vec![y.clone()],
            MergeMode::None => vec![y.clone(), z.clone()],
        };
        for output in &mut outputs {
            *output = call.output(output.dims().iter().map(Dim::clone).collect::<Vec<_>>());
        }
        outputs.extend(states.iter().chain(others).cloned());
        Ok(outputs)
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let cells =
            [&self.forward, &self.backward].map(|layer| layer.layer.downcast::<Rnn>()?.on_cudnn(false));
        let mask = run.argument(2, "mask");
        if run.tensors() > 1 + usize::from(mask.is_some()) {
            return run.not_modelled();
        }
        let (x, shape) = (run.x(0), run.out_shape());
        let sequences = shape.len() > x.rank() - 1;
        let mut states = Vec::new();
        let halves = match cells {
            [Some(a), Some(b)]
                if mask.is_none() && a.units == b.units && [a.dropout, b.dropout] == [0.0; 2] =>
            {
                // One call for both directions (`_call_fused_lstm`, `_call_fused_gru`).
                let y = run.recurrent(&x, [a.states().len(), 2], a.units, &[], &[]);
                let steps = y.shape.get(1).copied().unwrap_or(1);
                [(0, steps.saturating_sub(1)), (a.units, 0)].map(|(start, last)| {
                    let half = y.narrow(run.l, 2, start, a.units);
                    if sequences {
                        half
                    } else {
                        half.narrow(run.l, 1, last, 1).reshape(run.l, &[x.shape[0], a.units])
                    }
                })
            }
            _ => {
                let (mut arguments, mut tensors) = (Arguments::plain(1), vec![x.clone()]);
                if let Some(mask) = mask {
                    arguments.named.insert("mask".into(), Argument::Tensor(1));
                    tensors.push(mask);
                }
                let second = run.weights() / 2;
                let mut each = |(layer, first): (&Configured, usize)| {
                    let units = match layer.layer.downcast::<Rnn>() {
                        Some(rnn) => rnn.cell.layer.cell()?.output(),
                        None => layer.layer.downcast::<ConvLstm>()?.filters,
                    };
                    let outer = shape.get(..shape.len().saturating_sub(1)).unwrap_or_default();
                    let made =
                        run.inner_call(layer, &arguments, &tensors, first, &[outer, &[units]].concat());
                    let (y, own) = made.split_first()?;
                    states.extend(own.iter().cloned());
                    Some(y.clone())
                };
                let made = [(&self.forward, 0), (&self.backward, second)].map(&mut each);
                let [Some(forward), Some(backward)] = made else { return run.not_modelled() };
                let backward = if sequences { backward.scale(run.l, "flip") } else { backward };
                [forward, backward]
            }
        };
        let first = if self.merge == MergeMode::None { 2 } else { 1 };
        for (j, state) in (first..).zip(&states) {
            run.bind(j, state);
        }
        let y = match self.merge {
            MergeMode::Concat => run.cat(&halves, shape),
            MergeMode::Product => run.mul(&halves[0], &halves[1]),
            MergeMode::Mean => run.add(&halves[0], &halves[1]).scale(run.l, "div"),
            MergeMode::Sum => run.add(&halves[0], &halves[1]),
            MergeMode::None => {
                run.bind(1, &halves[1]);
                halves[0].clone()
            }
        };
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let x = run.x(0);
        let mut tensors = vec![x];
        let mut arguments = Arguments::plain(1);
        if let Some(mask) = run.argument(2, "mask") {
            tensors.push(mask);
            arguments.named.insert("mask".into(), Argument::Tensor(1));
        }
        // The first half of the states that are given are the forward layer's.
        let given = run.call.arguments.get(1, "initial_state").map(Argument::tensors).unwrap_or_default();
        let mut begin = |run: &mut Run<'_, '_>, states: &[usize], layer: &Configured, first: usize| {
            let mut tensors = tensors.clone();
            let mut list = Vec::new();
            for at in states {
                list.push(Argument::Tensor(tensors.len()));
                tensors.push(run.x(*at));
            }
            if !list.is_empty() {
                arguments.named.insert("initial_state".into(), Argument::List(list));
            }
            run.inner_call(layer, &arguments, &tensors, first)
        };
        let (ahead, back) = given.split_at(given.len() / 2);
        let second = run.weights() / 2;
        let forward = begin(run, ahead, &self.forward, 0);
        let backward = begin(run, back, &self.backward, second);
        let (Some((y, states)), Some((z, others))) = (forward.split_first(), backward.split_first()) else {
            return run.not_modelled();
        };
        let shape = run.out_shape(0).to_vec();
        let sequences = shape.len() > 2;
        // What ran from the end is turned around again.
        let z = if sequences {
            let of = run.shape(*z).to_vec();
            run.moved("ReverseV2", *z, &of)
        } else {
            *z
        };
        let mut at = 1;
        match self.merge {
            MergeMode::Concat => {
                let merged = run.concat(&[*y, z], &shape);
                run.finish(merged);
            }
            MergeMode::Sum | MergeMode::Product | MergeMode::Mean => {
                let merged = run.binary("AddV2", *y, z);
                run.finish(merged);
            }
            MergeMode::None => {
                run.finish(*y);
                run.bind(1, z);
                at = 2;
            }
        }
        for (j, state) in (at..).zip(states.iter().chain(others)) {
            run.bind(j, *state);
        }
    }
}
