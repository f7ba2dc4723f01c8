//! Stored tables whose use tells what they are, where their names and sizes do not.
//!
//! - Coordinates: rows of at most four numbers that a linear layer reads, as a learned function of positions does
//!   (`relative_coords_table` of Swin v2). A buffer.
//! - A row on top of the logits of a layer without a bias: a layer's own bias has one axis; a row `[1, classes]` is a
//!   buffer (`final_logits_bias`, transformers: BART, Marian, Pegasus).
//! - One number that an embedding is multiplied with: a buffer (`embed_scale`, transformers: Gemma).
//! - A square of which the complement `1 - mask` is taken: a causal mask, a buffer
//!   (transformers, modeling_openai.py: `w = w * b + -1e4 * (1 - b)`).
//! - Squares that products of activations are multiplied with: a mask or a decay, a buffer (retention, `att * self.tril`).
//! - What is compared with something, as a mask is with zero (`att.masked_fill(self.tril[:T, :T] == 0, …)`): a buffer, for no
//!   gradient comes through.
//! - The other factor of a stored matrix: a mask of its elements, a buffer (torch/nn/utils/prune.py, `weight_mask *
//!   weight_orig`; autoregressive layers).
//! - One number a channel that is taken from a model's inputs, or that they are divided by, before any layer: means and
//!   deviations, centres of a basis (torchvision's `Normalize`, SchNet's `GaussianSmearing`): a buffer.
//! - Positions added to what overlapping one-dimensional convolutions made: sinusoids, which are stored as a parameter
//!   without a gradient (transformers, modeling_whisper.py: `self.embed_positions.requires_grad_(False)`). Patches do not
//!   overlap, and learn theirs; rows that the model's inputs choose are words, which a convolution's result is added to.
//! - Rows looked up by position, parts of which multiply what positions rotate: sines beside cosines, which are stored as a
//!   parameter without a gradient (transformers, modeling_roformer.py: `RoFormerSinusoidalPositionalEmbedding`).
//! - A table under an exporter's own name whose rows are looked up or joined and then added: a parameter (a position
//!   table, a class token).

use crate::parameters::{Stored, wide_axes};
use memfit_graph::ops::conv::Conv;
use memfit_graph::{Dim, Graph, Inferred, Node, Shape, TensorId, is_exporter_name};

/// The widest row of coordinates.
const COORDINATES: u64 = 4;

/// What is known of each tensor while the graph is walked, by tensor index.
struct Walk<'a> {
    graph: &'a Graph,
    inferred: &'a Inferred,
    kinds: &'a mut [Option<Stored>],
    /// The stored tensor that it is a view of, or rows of, and whether rows were looked up.
    table: Vec<Option<(usize, bool)>>,
    /// Whether elements of the model's inputs have a part in it.
    fed: Vec<bool>,
    /// Whether nothing but the model's inputs and constants has a part in it.
    raw: Vec<bool>,
    /// The stored tensor of whose rows, looked up by position, it is a part.
    part: Vec<Option<usize>>,
    /// Whether it is a convolved one-dimensional signal.
    signal: Vec<bool>,
    /// Whether it is rows that the model's inputs choose.
    embedded: Vec<bool>,
    /// Whether a linear layer without a bias made it.
    unbiased: Vec<bool>,
    /// Whether it is a product of activations.
    scores: Vec<bool>,
}

/// Corrects `kinds` where the graph tells more than names.
pub(crate) fn sort_out(graph: &Graph, inferred: &Inferred, kinds: &mut [Option<Stored>]) {
    let none = vec![false; graph.tensors.len()];
    let table = (0..kinds.len()).map(|i| kinds[i].map(|_| (i, false))).collect();
    let part = vec![None; graph.tensors.len()];
    let mut fed = none.clone();
    graph.inputs.iter().for_each(|id| fed[id.index()] = true);
    let (signal, embedded, unbiased, scores) = (none.clone(), none.clone(), none.clone(), none);
    let raw = fed.clone();
    let mut walk = Walk { graph, inferred, kinds, table, fed, raw, part, signal, embedded, unbiased, scores };
    graph.nodes.iter().for_each(|node| walk.visit(node));
}

impl Walk<'_> {
    fn visit(&mut self, node: &Node) {
        if node.op.name() != "Shape" && node.inputs.iter().flatten().any(|id| self.fed[id.index()]) {
            node.outputs.iter().flatten().for_each(|id| self.fed[id.index()] = true);
        }
        let input = |i: usize| node.inputs.get(i).copied().flatten();
        let (Some(first), Some(Some(output))) = (input(0), node.outputs.first()) else { return };
        let (x, y) = (first.index(), output.index());
        self.raw[y] = node.inputs.iter().flatten().all(|id| self.is_raw(node, *id));
        match node.op.name() {
            "Cast" | "Unsqueeze" | "Squeeze" | "Reshape" | "Expand" | "Transpose" | "Identity" | "Slice" => {
                self.table[y] = self.table[x];
                self.part[y] = self.part[x];
                self.signal[y] = self.signal[x];
                self.embedded[y] = self.embedded[x];
                if node.op.name() == "Slice" && self.width(first) != self.width(*output) {
                    self.part[y] = self.rows_by_position(x);
                }
            }
            "Split" => {
                let rows = self.rows_by_position(x);
                node.outputs.iter().flatten().for_each(|id| self.part[id.index()] = rows);
            }
            "Gelu" | "Relu" | "Dropout" | "Swish" => self.signal[y] = self.signal[x],
            "Conv" => self.signal[y] = self.overlaps(node),
            "Gather" | "GatherND" => {
                self.table[y] = self.table[x].map(|(at, _)| (at, true));
                self.embedded[y] =
                    self.table[x].is_some() && input(1).is_some_and(|i| self.table[i.index()].is_none());
            }
            "Sub" => {
                let complement = input(1).and_then(|t| self.table[t.index()]).map(|(at, _)| at);
                let is_one = self.inferred.value(first).and_then(|v| v.single()?.as_f64()) == Some(1.0);
                if let Some(at) = complement
                    .filter(|at| is_one && self.graph.tensors[*at].declared.shape().is_some_and(is_square))
                {
                    self.change(at, Stored::Parameter, Stored::Buffer);
                }
            }
            "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" => {
                for compared in node.inputs.iter().flatten() {
                    if let Some((at, _)) = self.table[compared.index()] {
                        self.change(at, Stored::Parameter, Stored::Buffer);
                    }
                }
            }
            "Linear" | "MatMul" | "Gemm" => {
                self.unbiased[y] = input(2).is_none();
                self.scores[y] =
                    [input(0), input(1)].into_iter().flatten().all(|t| self.table[t.index()].is_none());
                if self.columns(first).is_some_and(|n| n <= COORDINATES) {
                    self.change(x, Stored::Parameter, Stored::Buffer);
                }
            }
            "Add" => {
                let Some(second) = input(1) else { return };
                self.added(first, second, *output);
                self.added(second, first, *output);
            }
            "Mul" => {
                let Some(second) = input(1) else { return };
                if let (Some((a, false)), Some((b, false))) = (self.table[x], self.table[second.index()]) {
                    self.masked([a, b]);
                }
                for (number, by) in [(first, second), (second, first)] {
                    self.scores[y] |= self.scores[by.index()] && self.elements(number) == Some(1);
                    if let Some((at, false)) = self.table[number.index()]
                        && self.scores[by.index()]
                        && self.graph.tensors[at].declared.shape().is_some_and(are_squares)
                    {
                        self.change(at, Stored::Parameter, Stored::Buffer);
                    }
                    if self.embedded[by.index()] && self.elements(number) == Some(1) {
                        self.change(number.index(), Stored::Parameter, Stored::Buffer);
                    }
                    if let Some(rows) = self.part[number.index()].filter(|_| self.part[by.index()].is_none())
                    {
                        self.change(rows, Stored::Parameter, Stored::Frozen);
                    }
                }
            }
            "Concat" => {
                self.part[y] = self.part[x];
                for id in node.inputs.iter().flatten() {
                    if self.is_row(*id) && self.graph.tensor(*id).name.starts_with("expand") {
                        self.change(id.index(), Stored::Buffer, Stored::Parameter);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether no parameter has a part in what a node reads.
    fn is_raw(&mut self, node: &Node, id: TensorId) -> bool {
        let dtype = self.inferred.types[id.index()].dtype();
        let kind = self.kinds[id.index()];
        if kind == Some(Stored::Parameter) && matches!(node.op.name(), "Sub" | "Div") {
            let by_inputs = node.inputs.iter().flatten().any(|x| self.raw[x.index()]);
            if by_inputs && self.graph.tensor(id).declared.shape().is_some_and(|s| wide_axes(s) == 1) {
                self.change(id.index(), Stored::Parameter, Stored::Buffer);
                return true;
            }
        }
        self.raw[id.index()]
            || !dtype.is_some_and(|d| d.is_float())
            || kind.is_some_and(|k| k != Stored::Parameter)
    }

    /// Two stored tensors are multiplied.
    fn masked(&mut self, factors: [usize; 2]) {
        let [a, b] = factors.map(|at| &self.graph.tensors[at]);
        let is_matrix = a.declared.shape().is_some_and(|s| s.rank() > 1 && s.elements() > Some(1));
        if is_matrix && a.declared == b.declared && factors[0] != factors[1] {
            let mask = factors[usize::from(!a.name.contains("mask"))];
            self.change(mask, Stored::Parameter, Stored::Buffer);
        }
    }

    /// `t` is added to `to`, which makes `output`.
    fn added(&mut self, t: TensorId, to: TensorId, output: TensorId) {
        let Some((table, looked_up)) = self.table[t.index()] else { return };
        let is_table = |s: &Shape| wide_axes(s) > 1;
        if self.signal[to.index()]
            && !self.fed[t.index()]
            && self.graph.tensors[table].declared.shape().is_some_and(is_table)
        {
            return self.change(table, Stored::Parameter, Stored::Frozen);
        }
        let is_logits = self.graph.outputs.contains(&output) && self.unbiased[to.index()];
        let rank = self.inferred.shape(t).map_or(0, |s| s.rank());
        if is_logits && table == t.index() && rank > 1 && self.is_row(t) {
            return self.change(table, Stored::Parameter, Stored::Buffer);
        }
        let stored = &self.graph.tensors[table];
        let is_float = stored.declared.dtype().is_some_and(|d| d.is_float());
        let is_table = stored.declared.shape().is_some_and(|s| s.rank() > 1);
        let folded = stored.name.rsplit('/').next().is_some_and(|last| last.starts_with("Gather_output_"));
        if is_float && is_table && is_exporter_name(&stored.name) && (looked_up || folded) {
            self.change(table, Stored::Buffer, Stored::Parameter);
        }
    }

    /// The stored tensor whose rows were looked up, where the model's inputs have no part in which.
    fn rows_by_position(&self, x: usize) -> Option<usize> {
        let (at, looked_up) = self.table[x]?;
        (looked_up && !self.fed[x]).then_some(at)
    }

    /// The length of the last axis.
    fn width(&self, t: TensorId) -> Option<&Dim> {
        self.inferred.shape(t)?.dims().last()
    }

    fn change(&mut self, at: usize, from: Stored, to: Stored) {
        if self.kinds[at] == Some(from) {
            self.kinds[at] = Some(to);
        }
    }

    /// The length of a stored tensor's rows.
    fn columns(&self, t: TensorId) -> Option<u64> {
        self.kinds[t.index()]?;
        self.inferred.shape(t)?.dims().last()?.known()
    }

    fn elements(&self, t: TensorId) -> Option<u64> {
        self.kinds[t.index()]?;
        self.inferred.shape(t)?.elements()
    }

    /// Whether all of a stored float tensor lies along its last axis, which is no colour.
    fn is_row(&self, t: TensorId) -> bool {
        let columns = self.columns(t).filter(|n| *n > COORDINATES);
        columns.is_some() && columns == self.elements(t) && self.inferred.dtype(t).is_float()
    }

    /// Whether a convolution has one spatial axis, on which its windows overlap.
    fn overlaps(&self, node: &Node) -> bool {
        let weight = node.inputs.get(1).copied().flatten().and_then(|id| self.inferred.shape(id));
        let (Some(conv), Some(weight)) = (node.op.downcast::<Conv>(), weight.filter(|w| w.rank() == 3))
        else {
            return false;
        };
        let stride = conv.window.strides.first().copied().unwrap_or(1);
        weight[2].known().is_some_and(|kernel| kernel > stride)
    }
}

/// Whether a shape is that of one matrix with as many rows as columns, as causal masks are stored.
pub(crate) fn is_square(shape: &Shape) -> bool {
    are_squares(shape) && shape.dims().iter().rev().skip(2).all(|d| d.known() == Some(1))
}

/// The same of one or more.
fn are_squares(shape: &Shape) -> bool {
    matches!(shape.dims(), [.., rows, columns] if rows == columns && rows.known() > Some(1))
}

#[cfg(test)]
mod tests;
