//! Attention and AdditiveAttention. Keras 2 and 3.
//!
//! keras/src/layers/attention/attention.py, additive_attention.py: called on `[query, value]` or `[query, value, key]`; scores of
//! `[batch, Tq, Tv]` are materialised, as is the dropout of them. Additive scores go through a tensor of `[batch, Tq, Tv, dim]`.

use super::LayerSpec;
use crate::activation::Activation;
use crate::config;
use crate::layer::{Call, Layer, Weight};
use crate::reader::{Source, boxed};
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::OpError;
use memfit_graph::kernels::Wire;
use memfit_graph::ops::Traced;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// How query and key make a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Score {
    /// Their product.
    #[default]
    Dot,
    /// The sum of the tangents of their sum.
    Concat,
    /// The same with a weight for each feature.
    Additive,
}

/// Attention without projections.
#[derive(Clone, Debug, Deserialize)]
pub struct Attention {
    /// How scores are made.
    #[serde(default, rename = "score_mode", deserialize_with = "score")]
    pub score: Score,
    /// Whether the scores are scaled by a variable.
    #[serde(default)]
    pub use_scale: Option<bool>,
    /// The fraction of scores that is dropped.
    #[serde(default)]
    pub dropout: f64,
    /// Whether later positions are hidden (Keras 2 until 2.10).
    #[serde(default)]
    pub causal: bool,
}

fn score<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Score, D::Error> {
    let words = [("dot", Score::Dot), ("concat", Score::Concat)];
    config::word(deserializer, &words, false)?.ok_or_else(|| D::Error::custom("expected dot or concat"))
}

fn read(source: &Source<'_>) -> Result<Attention, String> {
    let layer: Attention = source.read()?;
    let score = if source.class() == "AdditiveAttention" { Score::Additive } else { layer.score };
    Ok(Attention { score, ..layer })
}

/// How they are found.
pub const SPECS: &[LayerSpec] =
    &[LayerSpec { classes: &["AdditiveAttention", "Attention"], keras: &[2, 3], build: |s| boxed(read(s)?) }];

impl Layer for Attention {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let scales = self.use_scale.unwrap_or(self.score == Score::Additive);
        let mut weights = Vec::new();
        match self.score {
            Score::Additive if scales => {
                weights.push(call.weight("scale", [spec::number(spec::input(inputs, 0)?.last()?)?]));
            }
            _ if scales => weights.push(call.weight("scale", [])),
            _ => {}
        }
        if self.score == Score::Concat {
            weights.push(call.weight("concat_score_weight", []));
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let at = call.arguments.first();
        let find = |i: usize| spec::input_from_rank(inputs, at.get(i).copied().unwrap_or(i), 2);
        let (query, value) = (find(0)?, find(1)?);
        let key = if at.len() > 2 { find(2)? } else { value };
        let leading = || query.dims()[..query.rank() - 1].iter().cloned();
        let mut outputs = vec![call.output(leading().chain([value.last()?.clone()]))];
        if call.arguments.flag("return_attention_scores") == Some(true) {
            outputs.push(call.output(leading().chain([key.dims()[key.rank() - 2].clone()])));
        }
        Ok(outputs)
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let at = run.call.arguments.first();
        if run.tensors() > at.len() || at.len() < 2 {
            return run.not_modelled();
        }
        let (q, v) = (run.x(at[0]), run.x(at[1]));
        let k = at.get(2).map_or_else(|| v.clone(), |at| run.x(*at));
        let (rows, keys) = (q.shape[q.rank() - 2], k.shape[k.rank() - 2]);
        let scales = run.weights() > usize::from(self.score == Score::Concat);
        let scaled = |run: &mut Torch<'_, '_>, x: &Traced| {
            let scale = run.weight(0);
            run.mul(&scale, x)
        };
        let mut scores = if self.score == Score::Dot {
            let turned = k.transpose_last(run.l);
            run.matmul(&q, &turned)
        } else {
            let (batch, width) = (q.shape[0], q.shape[q.rank() - 1]);
            let q = q.reshape(run.l, &[batch, rows, 1, width]);
            let k = k.reshape(run.l, &[batch, 1, keys, width]);
            let mut sum = run.add(&q, &k);
            if self.score == Score::Concat && scales {
                sum = scaled(run, &sum);
            }
            let mut tanh = run.activate(&Activation::Tanh, &sum);
            if self.score == Score::Additive {
                tanh = if scales { scaled(run, &tanh) } else { tanh.scale(run.l, "mul") };
            }
            run.sum(&tanh, &[batch, rows, keys])
        };
        if self.score == Score::Concat {
            let weight = run.weight(usize::from(scales));
            scores = run.mul(&weight, &scores);
        } else if self.score == Score::Dot && scales {
            scores = scaled(run, &scores);
        }
        if self.causal || run.call.arguments.flag("use_causal_mask") == Some(true) {
            let hidden = run.test(&[], &[1, rows, keys]);
            let less = scores.scale(run.l, "sub");
            scores = run.choose(&hidden, &[&less, &scores]);
        }
        let mut weights = run.softmax("_softmax", &scores);
        if self.dropout > 0.0 && run.l.training {
            weights = run.dropout(&weights);
        }
        weights.bind(run.l, 1);
        let y = run.matmul(&weights, &v);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let at = run.call.arguments.first();
        let place = |i: usize, default: usize| at.get(i).copied().unwrap_or(default);
        let (query, value) = (place(0, 0), place(1, 1));
        let key = place(2, value);
        let (q, v, k) = (run.x(query), run.x(value), run.x(key));
        let shape = run.out_shape(0);
        let mut scores = run.shape(q).to_vec();
        let keys = run.shape(k).iter().rev().nth(1).copied().unwrap_or(1);
        scores.last_mut().into_iter().for_each(|d| *d = keys);
        let mut y = match self.score {
            Score::Dot if run.is_keras3() => {
                let mut turned = run.shape(k).to_vec();
                let rank = turned.len();
                turned.swap(rank.saturating_sub(2), rank.saturating_sub(1));
                let k = run.turned(k, &turned);
                run.matmul("BatchMatMulV2", q, k, &scores)
            }
            Score::Dot => run.matmul("BatchMatMulV2", q, k, &scores),
            Score::Concat | Score::Additive => {
                let width = run.shape(q).last().copied().unwrap_or(1);
                let (batch, rows) = (run.shape(q)[..1].to_vec(), run.shape(q).get(1).copied().unwrap_or(1));
                let q = run.view("Reshape", q, &[&batch[..], &[rows, 1, width]].concat());
                let k = run.view("Reshape", k, &[&batch[..], &[1, keys, width]].concat());
                let mut sum = run.binary("AddV2", q, k);
                let is_concat = self.score == Score::Concat;
                // The weight of the scores comes after the scale.
                let scale = (run.weights() > usize::from(is_concat)).then(|| run.weight(0));
                let scaled = |run: &mut Run<'_, '_>, x: Wire| match scale {
                    Some(scale) => run.binary("Mul", scale, x),
                    None => x,
                };
                if is_concat {
                    sum = scaled(run, sum);
                }
                let mut tanh = run.unary("Tanh", sum);
                if !is_concat {
                    tanh = scaled(run, tanh);
                }
                let sum = run.reduce("Sum", tanh, &scores);
                if !is_concat {
                    sum
                } else {
                    let weight = run.weight(usize::from(scale.is_some()));
                    run.binary("Mul", weight, sum)
                }
            }
        };
        if self.score == Score::Dot && run.weights() > 0 {
            let scale = run.weight(0);
            y = run.binary("Mul", y, scale);
        }
        let mut weights = run.softmax(y);
        if self.dropout > 0.0 && run.compute.training {
            weights = run.dropout(weights, &scores);
        }
        if run.wants(1) {
            run.bind(1, weights);
        }
        let y = run.matmul("BatchMatMulV2", weights, v, shape);
        run.finish(y);
    }
}
