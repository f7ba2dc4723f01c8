//! What MultiHeadAttention and GroupedQueryAttention run under TensorFlow.
//!
//! keras/src/layers/attention/multi_head_attention.py (3.15), `_compute_attention`: TensorFlow has no fused attention, so the scores
//! are there as a tensor, and an einsum transposes each operand before its product (backend/tensorflow/numpy.py, `einsum`).

use crate::run::Run;
use memfit_graph::kernels::Wire;

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
    /// Whether scores are dropped.
    pub(super) drops: bool,
}

impl Projected {
    /// Runs it on the tensors with these numbers: query, key, value.
    pub(super) fn run(&self, run: &mut Run<'_, '_>, [query, key, value]: [usize; 3]) {
        let mut k = 0;
        let mut project = |run: &mut Run<'_, '_>, x: usize, heads: u64, dim: u64| {
            let (x, kernel) = (run.x(x), run.weight(k));
            k += 1;
            let shape = run.shape(x).to_vec();
            let leading = shape.get(..shape.len().saturating_sub(1)).unwrap_or_default();
            let y = run.project(x, kernel, &[leading, &[heads, dim]].concat());
            if !self.bias {
                return y;
            }
            let bias = run.weight(k);
            k += 1;
            run.binary("AddV2", y, bias)
        };
        let q = project(run, query, self.heads[0], self.dims[0]);
        let mut at_key = project(run, key, self.heads[1], self.dims[1]);
        let gate = self.gate.then(|| project(run, query, self.heads[0], self.dims[2]));
        let mut at_value = project(run, value, self.heads[2], self.dims[2]);
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
        let q = run.scaled("Mul", q);
        // [batch, length, heads, size] -> [batch, heads, length, size]; more attended axes count as one.
        let parts = |run: &Run<'_, '_>, x: Wire| {
            let shape = run.shape(x);
            let batch = shape.first().copied().unwrap_or(1);
            let size = shape.last().copied().unwrap_or(1);
            let outer = batch.saturating_mul(self.heads[0]).saturating_mul(size);
            (batch, run.made(x).elements().checked_div(outer).unwrap_or(0), size)
        };
        let ((batch, rows, size), (_, columns, _), (_, _, width)) =
            (parts(run, q), parts(run, at_key), parts(run, at_value));
        let heads = self.heads[0];
        let keys = run.moved("Transpose", at_key, &[batch, heads, columns, size]);
        let queries = run.moved("Transpose", q, &[batch, heads, size, rows]);
        let scores = run.matmul("BatchMatMulV2", keys, queries, &[batch, heads, columns, rows]);
        let scores = run.moved("Transpose", scores, &[batch, heads, rows, columns]);
        let mut weights = run.softmax(scores);
        if run.wants(1) {
            run.bind(1, weights);
        }
        if self.drops {
            weights = run.dropout(weights, &[batch, heads, rows, columns]);
        }
        let values = run.moved("Transpose", at_value, &[batch, heads, columns, width]);
        let y = run.matmul("BatchMatMulV2", weights, values, &[batch, heads, rows, width]);
        let mut y = run.moved("Transpose", y, &[batch, rows, heads, width]);
        if let Some(gate) = gate {
            let gate = run.unary("Sigmoid", gate);
            y = run.binary("Mul", y, gate);
        }
        let kernel = run.weight(k);
        let shape = run.out_shape(0);
        let mut out = run.project(y, kernel, shape);
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
}
