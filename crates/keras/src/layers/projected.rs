//! What MultiHeadAttention and GroupedQueryAttention run.
//!
//! keras/src/layers/attention/multi_head_attention.py (3.15), `_compute_attention`: TensorFlow has no fused attention, so the scores
//! are there as a tensor. Where nothing is dropped and no scores are asked for, `dot_product_attention`
//! (backend/tensorflow/nn.py) makes them with TensorFlow's own einsum and scales and normalises them in float32; else Keras'
//! einsum transposes each operand before its product (backend/tensorflow/numpy.py, `einsum`). On the PyTorch backend
//! `dot_product_attention` is the fused kernel.

use super::softmax;
use crate::run::Run;
use crate::torch::{Torch, broadcast};
use memfit_graph::kernels::Wire;
use memfit_graph::ops::{Sdpa, Traced};
use memfit_graph::{DType, elements};

/// `_compute_attention_mask`: which query sees which key, `[batch, 1, rows, columns]`, of all masks that there are. A causal mask alone is the
/// fused kernel's own matter.
fn conditions(
    run: &mut Torch<'_, '_>,
    [query, value]: [&Traced; 2],
    [causal, windowed, composed]: [bool; 3],
) -> Option<Traced> {
    let [batch, rows, ..] = query.shape[..] else { return None };
    let columns = value.shape.get(1).copied().unwrap_or(1);
    let riding = [("query_mask", 3), ("value_mask", 4), ("key_mask", 5)];
    let mut parts: Vec<Traced> = Vec::new();
    for (name, position) in riding {
        let Some(mask) = run.argument(position, name) else { continue };
        let shape = if position == 3 { [batch, rows, 1] } else { [batch, 1, columns] };
        let mask = run.condition(&mask);
        parts.push(mask.reshape(run.l, &shape));
    }
    let given = run.argument(6, "attention_mask");
    if causal && (windowed || composed || !parts.is_empty() || given.is_some()) {
        parts.push(run.test(&[], &[1, rows, columns]));
    }
    if windowed {
        parts.push(run.test(&[], &[1, rows, columns]));
    }
    if let Some(given) = given {
        let given = run.condition(&given);
        let shape = [&vec![1; 3_usize.saturating_sub(given.rank())][..], &given.shape].concat();
        parts.push(if given.rank() < 3 { given.reshape(run.l, &shape) } else { given });
    }
    let mask = parts.into_iter().reduce(|mask, part| {
        let shape = broadcast(&mask.shape, &part.shape);
        run.test(&[&mask, &part], &shape)
    })?;
    match mask.shape[..] {
        [batch, rows, columns] => Some(mask.reshape(run.l, &[batch, 1, rows, columns])),
        _ => Some(mask),
    }
}

/// Attention between projections.
pub(super) struct Projected {
    /// Heads of query, key and value.
    pub(super) heads: [u64; 3],
    /// Elements of a head of each.
    pub(super) dims: [u64; 3],
    /// Whether the result is gated.
    pub(super) gate: bool,
    /// Whether the projections have biases.
    pub(super) bias: bool,
    /// The share of scores that is dropped.
    pub(super) dropout: f64,
    /// Whether the last projection's equation has the letter of the size before that of the heads.
    pub(super) turned: bool,
    /// Whether a query sees so many keys before its own alone, which a mask says.
    pub(super) windowed: bool,
    /// The axes that are attended over, where they are not all but the first and the last. The others count as the batch.
    pub(super) axes: Option<Vec<i64>>,
}

/// A projection: what Keras' einsum has no pattern for is TensorFlow's.
fn projected(run: &mut Run<'_, '_>, is_plain: bool, x: Wire, kernel: Wire, shape: &[u64]) -> Wire {
    if is_plain { run.project(x, kernel, shape) } else { run.einsum(x, kernel, shape) }
}

impl Projected {
    /// The ATen calls for the tensors with these numbers: query, key, value.
    pub(super) fn aten(&self, run: &mut Torch<'_, '_>, [query, key, value]: [usize; 3]) {
        let (x, width) = (run.x(query), if self.bias { 2 } else { 1 });
        let scored = run.call.arguments.flag("return_attention_scores") == Some(true);
        let quantized = run.call.facts.policy.quantization.is_some();
        if self.gate || x.rank() != 3 || scored || quantized {
            return run.not_modelled();
        }
        let last = run.x(value);
        let other = if key == value { last.clone() } else { run.x(key) };
        let causal = run.call.arguments.flag("use_causal_mask") == Some(true);
        let drops = self.dropout > 0.0;
        let mask = conditions(run, [&x, &last], [causal, self.windowed, drops]);
        let q = run.project(&x, 0, 1, self.bias);
        let k = run.project(&other, width, 1, self.bias);
        let v = run.project(&last, 2 * width, 1, self.bias);
        let [k, v] = [k, v].map(|x| self.repeated(run, &x));
        let options = Sdpa { causal: causal && mask.is_none(), composed: drops, mask, ..Sdpa::default() };
        let drops = drops && run.l.training;
        let Some([attended, scores]) = run.attend([&q, &k, &v], &options, drops) else {
            return run.not_modelled();
        };
        let y = if self.turned {
            // `torch.einsum` takes what it sums in the order of the letters: "bquh,uhm->bqm" turns heads and sizes around, in both.
            let (y, kernel) = (attended.permute(run.l, &[0, 1, 3, 2]), run.weight(3 * width));
            let kernel = kernel.permute(run.l, &[1, 0, 2]);
            let y = run.contract(&y, &kernel, 2);
            let bias = self.bias.then(|| run.weight(3 * width + 1));
            bias.map_or(y.clone(), |bias| run.add(&y, &bias))
        } else {
            run.project(&attended, 3 * width, 2, self.bias)
        };
        // Names of `call` hold what was projected, which the fused kernel may have been given a copy of, what came of it, and the mask.
        let held: Vec<&Traced> = [&q, &k, &v, &attended, &scores].into_iter().chain(&options.mask).collect();
        let y = run.holding(&y, &held);
        run.finish(&y);
    }

    /// Each head of keys or values as many times as heads of the query read it (`ops.repeat`).
    fn repeated(&self, run: &mut Torch<'_, '_>, x: &Traced) -> Traced {
        let [batch, length, heads, size] = x.shape[..] else { return x.clone() };
        let times = self.heads[0].checked_div(heads).unwrap_or(1);
        if times < 2 {
            return x.clone();
        }
        let apart = x.reshape(run.l, &[batch, length, heads, 1, size]);
        let apart = apart.expand(run.l, &[batch, length, heads, times, size]);
        apart.reshape(run.l, &[batch, length, self.heads[0], size])
    }

    /// Runs it on the tensors with these numbers: query, key, value.
    pub(super) fn run(&self, run: &mut Run<'_, '_>, [query, key, value]: [usize; 3]) {
        let mut k = 0;
        let mut project = |run: &mut Run<'_, '_>, name: &'static str, x: usize, heads: u64, dim: u64| {
            run.scope = name;
            let (x, kernel) = (run.x(x), run.weight(k));
            k += 1;
            let shape = run.shape(x).to_vec();
            let leading = shape.get(..shape.len().saturating_sub(1)).unwrap_or_default();
            let y = projected(run, shape.len() == 3, x, kernel, &[leading, &[heads, dim]].concat());
            if !self.bias {
                return y;
            }
            let bias = run.weight(k);
            k += 1;
            run.binary("AddV2", y, bias)
        };
        let q = project(run, "query", query, self.heads[0], self.dims[0]);
        let mut at_key = project(run, "key", key, self.heads[1], self.dims[1]);
        let gate = self.gate.then(|| project(run, "gate", query, self.heads[0], self.dims[2]));
        let mut at_value = project(run, "value", value, self.heads[2], self.dims[2]);
        run.scope = "";
        if self.heads[1] != self.heads[0] {
            // Each key and value head serves several query heads: `ops.repeat`.
            let repeated = |run: &mut Run<'_, '_>, x: Wire| {
                let mut shape = run.shape(x).to_vec();
                let at = shape.len().saturating_sub(2);
                shape.get_mut(at).into_iter().for_each(|d| *d = self.heads[0]);
                run.broadcast_to(x, &shape)
            };
            at_key = repeated(run, at_key);
            at_value = repeated(run, at_value);
        }
        let is_scored = run.call.arguments.flag("return_attention_scores") == Some(true) || run.wants(1);
        let operands = [q, at_key, at_value];
        let is_fused = run.is_keras3() && self.dropout == 0.0 && !is_scored && run.shape(q).len() == 4;
        let mut y = if is_fused { self.fused(run, operands) } else { self.composed(run, operands) };
        if let Some(gate) = gate {
            let gate = run.unary("Sigmoid", gate);
            y = run.binary("Mul", y, gate);
        }
        run.scope = "attention_output";
        let kernel = run.weight(k);
        let shape = run.out_shape(0);
        let is_plain = run.shape(y).len() == 4;
        let mut out = projected(run, is_plain, y, kernel, shape);
        if self.bias {
            let bias = run.weight(k + 1);
            out = if run.shape(bias).len() == 1 {
                run.bias_add(out, bias)
            } else {
                run.binary("AddV2", out, bias)
            };
        }
        run.finish(out);
    }

    /// `dot_product_attention` of `[batch, length, heads, size]`; a mask is a constant, or one for all heads.
    fn fused(&self, run: &mut Run<'_, '_>, [q, k, v]: [Wire; 3]) -> Wire {
        let size = |run: &Run<'_, '_>, x: Wire, i: usize| run.shape(x).get(i).copied().unwrap_or(1);
        let (batch, rows, heads) = (size(run, q, 0), size(run, q, 1), size(run, q, 2));
        let (columns, width) = (size(run, k, 1), size(run, v, 3));
        let dtype = run.dtype(q);
        let scores = run.einsum(q, k, &[batch, heads, rows, columns]);
        let scores = run.cast(scores, DType::Float32);
        let mut scores = run.scaled("Mul", scores);
        if let Some(mask) = mask(run, rows, columns, self.windowed) {
            scores = run.select(mask, scores);
        }
        let weights = run.softmax(scores);
        let weights = run.cast(weights, dtype);
        run.einsum(weights, v, &[batch, rows, heads, width])
    }

    /// Scores from Keras' own einsum, dropped out where the layer trains.
    fn composed(&self, run: &mut Run<'_, '_>, [q, k, v]: [Wire; 3]) -> Wire {
        let q = run.scaled("Mul", q);
        let rank = run.shape(q).len() - 1;
        let attended: Vec<usize> = match &self.axes {
            Some(axes) => axes.iter().map(|axis| super::position(rank, *axis)).collect(),
            None => (1..rank - 1).collect(),
        };
        let lengths = |run: &Run<'_, '_>, x: Wire| -> Vec<u64> {
            attended.iter().filter_map(|axis| run.shape(x).get(*axis).copied()).collect()
        };
        let (along_rows, along_columns) = (lengths(run, q), lengths(run, k));
        // [batch, length, heads, size] -> [batch, heads, length, size]; more attended axes count as one.
        let parts = |run: &Run<'_, '_>, x: Wire| {
            let shape = run.shape(x);
            let apart = |i: &usize| !attended.contains(i);
            let others: Vec<u64> =
                (0..rank - 1).filter(apart).filter_map(|i| shape.get(i).copied()).collect();
            let batch = elements(&others);
            let size = shape.last().copied().unwrap_or(1);
            let outer = batch.saturating_mul(self.heads[0]).saturating_mul(size);
            (batch, run.made(x).elements().checked_div(outer).unwrap_or(0), size)
        };
        let ((batch, rows, size), (_, columns, _), (_, _, width)) =
            (parts(run, q), parts(run, k), parts(run, v));
        let heads = self.heads[0];
        let is_plain = rank == 3;
        let mut scores = if is_plain {
            let keys = run.moved("Transpose", k, &[batch, heads, columns, size]);
            let queries = run.moved("Transpose", q, &[batch, heads, size, rows]);
            let scores = run.matmul("BatchMatMulV2", keys, queries, &[batch, heads, columns, rows]);
            run.moved("Transpose", scores, &[batch, heads, rows, columns])
        } else {
            run.einsum(k, q, &[batch, heads, rows, columns])
        };
        let mask = mask(run, rows, columns, self.windowed);
        if let Some(mask) = mask {
            scores = run.select(mask, scores);
        }
        run.scope = "softmax";
        // `Softmax` over each attended axis of the keys.
        let each = run.view("Reshape", scores, &[&[batch, heads], &along_rows[..], &along_columns].concat());
        let last: Vec<i64> = (1..=along_columns.len() as i64).map(|i| -i).collect();
        let weights = softmax::over(run, each, &last);
        let mut weights = run.view("Reshape", weights, &[batch, heads, rows, columns]);
        run.scope = "";
        if let Some(mask) = mask {
            // Rows without anything to attend to are zero.
            weights = run.select(mask, weights);
        }
        if run.wants(1) {
            run.bind(1, weights);
        }
        if self.dropout > 0.0 && run.compute.training {
            run.scope = "dropout";
            weights = run.dropout(weights, &[batch, heads, rows, columns]);
            run.scope = "";
        }
        if !is_plain {
            return run.einsum(weights, v, &[batch, rows, heads, width]);
        }
        let values = run.moved("Transpose", v, &[batch, heads, columns, width]);
        let y = run.matmul("BatchMatMulV2", weights, values, &[batch, heads, rows, width]);
        run.moved("Transpose", y, &[batch, rows, heads, width])
    }
}

/// What hides positions, for all heads: the mask that the layer is called with, those of query, value and key, the causal mask and that of a
/// window, constants as long as sizes are, joined (`_compute_attention_mask`).
fn mask(run: &mut Run<'_, '_>, rows: u64, columns: u64, windowed: bool) -> Option<Wire> {
    let given = |run: &mut Run<'_, '_>, position: usize, name: &str| {
        let mask = run.argument(position, name)?;
        Some(run.cast(mask, DType::Bool))
    };
    let batch = |run: &Run<'_, '_>, mask: Wire| run.shape(mask).first().copied().unwrap_or(1);
    let mut masks = Vec::new();
    if let Some(mask) = given(run, 3, "query_mask") {
        let shape = [batch(run, mask), rows, 1];
        masks.push(run.view("ExpandDims", mask, &shape));
    }
    for (position, name) in [(4, "value_mask"), (5, "key_mask")] {
        if let Some(mask) = given(run, position, name) {
            let shape = [batch(run, mask), 1, columns];
            masks.push(run.view("ExpandDims", mask, &shape));
        }
    }
    if run.call.arguments.flag("use_causal_mask") == Some(true) {
        masks.push(run.constant(&[1, rows, columns], DType::Bool));
    }
    if windowed {
        masks.push(run.constant(&[1, rows, columns], DType::Bool));
    }
    if let Some(mask) = given(run, 6, "attention_mask") {
        let shape = run.shape(mask).to_vec();
        let (batch, length) = (shape.first().copied().unwrap_or(1), shape.last().copied().unwrap_or(1));
        let middle = run.made(mask).elements().checked_div(batch.saturating_mul(length)).unwrap_or(1);
        masks.push(run.view("Reshape", mask, &[batch, middle, length]));
    }
    let (first, others) = masks.split_first()?;
    let joined = others.iter().fold(*first, |joined, mask| run.binary("LogicalAnd", joined, *mask));
    let mut shape = run.shape(joined).to_vec();
    shape.insert(1, 1);
    Some(run.view("ExpandDims", joined, &shape))
}
