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
//!   overlap, and learn theirs.
//! - Rows looked up by position, parts of which multiply what positions rotate: sines beside cosines, which are stored as a
//!   parameter without a gradient (transformers, modeling_roformer.py: `RoFormerSinusoidalPositionalEmbedding`).
//! - A table under an exporter's own name whose rows are looked up or joined and then added: a parameter (a position
//!   table, a class token).

use crate::parameters::Stored;
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
                    if let Some((at, false)) = self.table[number.index()].filter(|_| self.scores[by.index()])
                    {
                        let shape = self.graph.tensors[at].declared.shape();
                        if shape
                            .is_some_and(|s| matches!(s.dims(), [.., m, n] if m == n && m.known() > Some(1)))
                        {
                            self.change(at, Stored::Parameter, Stored::Buffer);
                        }
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
            let wide = self
                .graph
                .tensor(id)
                .declared
                .shape()
                .map(|s| s.dims().iter().filter(|d| d.known() != Some(1)).count());
            if by_inputs && wide == Some(1) {
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
        let wide = |s: &memfit_graph::Shape| s.dims().iter().filter(|d| d.known() != Some(1)).count() > 1;
        if self.signal[to.index()] && self.graph.tensors[table].declared.shape().is_some_and(wide) {
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
    match shape.dims() {
        [outer @ .., rows, columns] => {
            rows == columns && rows.known() > Some(1) && outer.iter().all(|d| d.known() == Some(1))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::by_graph;
    use memfit_graph::{Attribute, Attributes, Binding, DType, Role, Type, infer};

    fn float(g: &mut Graph, name: &str, shape: &[u64], role: Role) -> TensorId {
        let id = g.add_tensor(name, Type::tensor(DType::Float32, Shape::from(shape)), role);
        if role == Role::Input {
            g.inputs.push(id);
        }
        id
    }

    fn kind(g: &Graph, t: TensorId) -> Stored {
        let inferred = infer(g, &Binding::default()).unwrap();
        by_graph(g, &inferred)[t.index()].unwrap()
    }

    #[test]
    fn coordinates_are_a_buffer_and_learned_queries_are_not() {
        for (columns, expected) in [(2, Stored::Buffer), (64, Stored::Parameter)] {
            let mut g = Graph::default();
            let table = float(&mut g, "attn.table", &[1, 9, columns], Role::Initializer);
            let weight = float(&mut g, "attn.mlp.weight", &[columns, 16], Role::Initializer);
            g.push("MatMul", Attributes::default(), &[table, weight], "y").unwrap();
            assert_eq!(kind(&g, table), expected);
        }
    }

    #[test]
    fn what_inputs_are_normalized_with_is_a_buffer_before_any_layer() {
        for (op, shape, after_layer, expected) in [
            ("Sub", &[16][..], false, Stored::Buffer),
            ("Div", &[1, 16], false, Stored::Buffer),
            ("Sub", &[16], true, Stored::Parameter),
            ("Sub", &[4, 16], false, Stored::Parameter),
            ("Mul", &[16], false, Stored::Parameter),
        ] {
            let mut g = Graph::default();
            let mut x = float(&mut g, "x", &[4, 16], Role::Input);
            g.inputs = vec![x];
            if after_layer {
                let weight = float(&mut g, "fc.weight", &[16, 16], Role::Initializer);
                x = g.push("MatMul", Attributes::default(), &[x, weight], "h").unwrap();
            }
            let stored = float(&mut g, "stored", shape, Role::Initializer);
            g.push(op, Attributes::default(), &[x, stored], "y").unwrap();
            assert_eq!(kind(&g, stored), expected, "{op} {shape:?}");
        }
    }

    #[test]
    fn a_square_with_its_complement_is_a_mask() {
        for (shape, one, expected) in [
            ([1, 1, 8, 8], 1.0, Stored::Buffer),
            ([1, 1, 1, 8], 1.0, Stored::Parameter),
            ([1, 1, 8, 8], 2.0, Stored::Parameter),
        ] {
            let mut g = Graph::default();
            let mask = float(&mut g, "attn.bias", &shape, Role::Initializer);
            let one = g.add_constant("one", memfit_graph::Value::scalar(DType::Float32, one));
            g.push("Sub", Attributes::default(), &[one, mask], "y").unwrap();
            assert_eq!(kind(&g, mask), expected);
        }
    }

    #[test]
    fn masks_of_weights_and_of_scores_are_buffers() {
        for (names, shape, expected) in [
            (["fc.weight_mask", "fc.weight_orig"], [8, 4], [Stored::Buffer, Stored::Parameter]),
            (["w1", "m1"], [8, 4], [Stored::Parameter, Stored::Buffer]),
            (["scale.weight", "gain.weight"], [1, 1], [Stored::Parameter, Stored::Parameter]),
        ] {
            let mut g = Graph::default();
            let [a, b] = names.map(|name| float(&mut g, name, &shape, Role::Initializer));
            g.push("Mul", Attributes::default(), &[a, b], "y").unwrap();
            let tril = float(&mut g, "tril", &[64, 64], Role::Initializer);
            let zero = g.add_constant("zero", memfit_graph::Value::scalar(DType::Float32, 0.0));
            g.push("Equal", Attributes::default(), &[tril, zero], "masked").unwrap();
            let [q, k] = ["q", "k"].map(|name| float(&mut g, name, &[2, 8, 8], Role::Input));
            let scores = g.push("MatMul", Attributes::default(), &[q, k], "scores").unwrap();
            let decay = float(&mut g, "decay", &[2, 8, 8], Role::Initializer);
            g.push("Mul", Attributes::default(), &[scores, decay], "decayed").unwrap();
            assert_eq!([kind(&g, a), kind(&g, b)], expected);
            assert_eq!([kind(&g, tril), kind(&g, decay)], [Stored::Buffer; 2]);
        }
    }

    #[test]
    fn positions_of_a_convolved_signal_are_fixed_unless_its_windows_are_patches() {
        for (stride, length, expected) in [(2, 5, Stored::Frozen), (3, 4, Stored::Parameter)] {
            let mut g = Graph::default();
            let x = float(&mut g, "x", &[1, 8, 12], Role::Input);
            let weight = float(&mut g, "conv.weight", &[16, 8, 3], Role::Initializer);
            let strides = Attributes::from([("strides", Attribute::Ints(vec![stride]))]);
            let y = g.push("Conv", strides, &[x, weight], "convolved").unwrap();
            let y = g
                .push("Transpose", Attributes::from([("perm", Attribute::Ints(vec![0, 2, 1]))]), &[y], "t")
                .unwrap();
            let table = float(&mut g, "positions.weight", &[length, 16], Role::Initializer);
            g.push("Add", Attributes::default(), &[y, table], "y").unwrap();
            assert_eq!(kind(&g, table), expected);
        }
    }

    #[test]
    fn rows_that_rotate_by_position_are_fixed_and_those_of_a_class_are_not() {
        for (index, expected) in [(Role::Initializer, Stored::Frozen), (Role::Input, Stored::Parameter)] {
            let mut g = Graph::default();
            let x = float(&mut g, "x", &[4, 8], Role::Input);
            let table = float(&mut g, "positions.weight", &[9, 16], Role::Initializer);
            let at = g.add_tensor("at", Type::tensor(DType::Int64, Shape::from([4])), index);
            g.inputs = [x, at].into_iter().filter(|id| g.tensor(*id).role == Role::Input).collect();
            let rows = g.push("Gather", Attributes::default(), &[table, at], "rows").unwrap();
            let halves = ["sin", "cos"].map(|name| g.add_tensor(name, Type::Unknown, Role::Intermediate));
            let split = memfit_graph::find_op("", "Split", 18).unwrap();
            let attributes =
                Attributes::from([("axis", Attribute::Int(1)), ("num_outputs", Attribute::Int(2))]);
            let split = split.build(attributes, 18).unwrap();
            g.add_node("split", split, vec![Some(rows)], halves.map(Some).to_vec());
            g.push("Mul", Attributes::default(), &[x, halves[1]], "y").unwrap();
            assert_eq!(kind(&g, table), expected);
        }
    }

    #[test]
    fn a_row_on_the_logits_is_a_buffer_unless_the_layer_has_its_bias_there() {
        for (shape, expected) in [(&[1, 16][..], Stored::Buffer), (&[16], Stored::Parameter)] {
            let mut g = Graph::default();
            let x = float(&mut g, "x", &[4, 8], Role::Input);
            let weight = float(&mut g, "head.weight", &[8, 16], Role::Initializer);
            let row = float(&mut g, "head.row", shape, Role::Initializer);
            let y = g.push("MatMul", Attributes::default(), &[x, weight], "m").unwrap();
            let y = g.push("Add", Attributes::default(), &[y, row], "y").unwrap();
            g.outputs = vec![y];
            assert_eq!(kind(&g, row), expected);
        }
    }

    #[test]
    fn looked_up_rows_and_an_expanded_token_are_parameters() {
        let mut g = Graph::default();
        let x = float(&mut g, "x", &[1, 4, 8], Role::Input);
        let at = g.add_tensor("at", Type::tensor(DType::Int64, Shape::from([1, 4])), Role::Input);
        g.inputs.push(at);
        let table = float(&mut g, "val_2", &[9, 8], Role::Initializer);
        let token = float(&mut g, "expand", &[1, 1, 8], Role::Initializer);
        let rows = g.push("Gather", Attributes::default(), &[table, at], "rows").unwrap();
        let y = g.push("Add", Attributes::default(), &[x, rows], "sum").unwrap();
        g.push("Concat", Attributes::from([("axis", Attribute::Int(1))]), &[token, y], "y").unwrap();
        assert_eq!((kind(&g, table), kind(&g, token)), (Stored::Parameter, Stored::Parameter));
    }
}
