//! Dropout that an inference export left out, and where training code has it.
//!
//! It does nothing in inference, so no exporter writes it there, not in metadata either. In training each Dropout keeps a mask
//! of one byte an element beside its result, and attention that drops probabilities in pieces (`eager`) keeps the largest of
//! them all. What tells an inference export: weights that the exporter folded, or batch norms that normalize with what they
//! stored.
//!
//! Where it stood is told by the numbers of `nn.Sequential`, of which it had one: `classifier.2` and then `classifier.4`.
//! Elsewhere it is put where code that drops at all mostly does so, counted in training exports of models with dropout: on
//! the probabilities of attention (44 of 56), on the layer before a residual sum (49 of 60), between ReLU and a linear layer
//! (22 of 30) and on the sum of embeddings. Not after GELU or SiLU (12 of 45), nor between convolutions.

use super::parameters::is_exporters;
use super::rewriter::{Rewriter, build};
use super::{Finding, Options, batchnorm};
use memfit_graph::ops::batch_norm::BatchNormalization;
use memfit_graph::ops::scaled_dot_product::ScaledDotProductAttention;
use memfit_graph::{Dim, NodeId, Role, TensorId};
use std::sync::Arc;

/// Operators that only training has.
const RANDOM: &[&str] = &["Bernoulli", "Dropout", "RandomNormalLike", "RandomUniform", "RandomUniformLike"];
const VIEWS: &[&str] = &["Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"];

/// Where a file is for inference and drops nothing: says so, or puts dropout back where that is asked for.
pub(super) fn restore(rw: &mut Rewriter<'_>, options: &Options) -> Option<Finding> {
    let nodes = rw.node_ids();
    let drops = |id: &NodeId| {
        let attention = rw.op::<ScaledDotProductAttention>(*id).is_some_and(|op| op.dropout);
        attention || RANDOM.contains(&rw.node(*id).op.name())
    };
    if nodes.iter().any(drops) {
        return None;
    }
    let message = if options.assume_dropout {
        let count = nodes.into_iter().filter(|id| put_back(rw, *id).is_some()).count();
        format!("dropout was put at {count} places where training code has it")
    } else if nodes.iter().any(|id| is_folded(rw, *id)) {
        "the file holds neither dropout nor stochastic depth, which exports for inference leave out: where the model has them, \
         training keeps a mask of a byte for each element; assume dropout back with --assume-dropout, or export the model in \
         training mode to see them"
            .to_owned()
    } else {
        return None;
    };
    Some(Finding { kind: "no-dropout", message, layers: Vec::new() })
}

/// Whether a node is as only inference has it.
fn is_folded(rw: &Rewriter<'_>, id: NodeId) -> bool {
    if rw.op::<BatchNormalization>(id).is_some_and(|norm| !norm.training_mode) {
        return true;
    }
    let is_product = ["Conv", "Gemm", "Linear", "MatMul"].iter().any(|op| rw.is(id, op));
    let weight = rw.input(id, 1).filter(|_| is_product).map(|t| rw.graph.tensor(t));
    weight.is_some_and(|w| w.role == Role::Initializer && is_exporters(&w.name))
}

/// Drops what a node reads or makes, if code does there.
fn put_back(rw: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    if let Some(op) = rw.op::<ScaledDotProductAttention>(id).copied() {
        let inputs = rw.node(id).inputs.clone();
        rw.rewrite(id, Arc::new(ScaledDotProductAttention { dropout: true, ..op }), inputs);
        return Some(());
    }
    if is_embedding(rw, id) {
        let (output, node) = (rw.output(id)?, rw.node(id).clone());
        let ty = rw.ty(output).clone();
        let sum = rw.insert_before(id, node.op, node.inputs, ty);
        rw.rewrite(id, build("Dropout", [])?, vec![Some(sum)]);
        return Some(());
    }
    let dropped = match rw.node(id).op.name() {
        "MatMul" | "Einsum" => rw.input(id, 0).filter(|t| is_softmax(rw, *t)),
        "Add" => branch(rw, id),
        "Conv" | "Gemm" | "Linear" => rw.input(id, 0).filter(|t| is_before_layer(rw, id, *t)),
        _ => None,
    }?;
    let ty = rw.ty(dropped).clone();
    let y = rw.insert_before(id, build("Dropout", [])?, vec![Some(dropped)], ty);
    // It runs where its input was made, as `nn.Sequential(nn.Linear(…), nn.Dropout(…))` does.
    if let (Some(made), Some(dropout)) = (rw.producer(dropped), rw.producer(y)) {
        rw.graph.nodes[dropout.index()].scope = rw.node(made).scope.clone();
    }
    rw.reread(id, dropped, y);
    Some(())
}

/// Whether `t` is the probabilities of attention, be it cast, in another shape or guarded against rows of NaN.
fn is_softmax(rw: &Rewriter<'_>, t: TensorId) -> bool {
    let Some(id) = rw.producer(t).filter(|_| rw.rank(t) > Some(2)) else { return false };
    match rw.node(id).op.name() {
        "Softmax" => true,
        "Cast" | "Reshape" => rw.input(id, 0).is_some_and(|t| is_softmax(rw, t)),
        "Where" => rw.input(id, 2).is_some_and(|t| is_softmax(rw, t)),
        _ => false,
    }
}

/// What a linear layer gives to a residual sum.
fn branch(rw: &Rewriter<'_>, add: NodeId) -> Option<TensorId> {
    let from_layer = |t: TensorId| is_from_layer(rw, t).then_some(t);
    let (branch, stream) = rw.operands(add, from_layer)?;
    let alike = rw.shape(branch) == rw.shape(stream) && rw.rank(branch) > Some(1);
    (alike && !rw.is_stored(stream) && from_layer(stream).is_none()).then_some(branch)
}

fn is_from_layer(rw: &Rewriter<'_>, t: TensorId) -> bool {
    let Some(id) = rw.producer(t).filter(|_| rw.sole_reader(t).is_some()) else { return false };
    let op = rw.node(id).op.name();
    op == "Linear"
        || op == "Gemm"
        || VIEWS.contains(&op) && rw.input(id, 0).is_some_and(|t| is_from_layer(rw, t))
}

/// Whether `t`, which the layer `id` reads, was dropped: by the numbers of a Sequential, or after ReLU before a linear layer.
fn is_before_layer(rw: &Rewriter<'_>, id: NodeId, t: TensorId) -> bool {
    let Some(from) = rw.producer(t).filter(|_| rw.sole_reader(t).is_some() && rw.is_layer(id)) else {
        return false;
    };
    let before = rw.node(from).op.name();
    match gap(&rw.node(from).scope, &batchnorm::path(rw, id)) {
        // A norm that was folded into a layer had a number too.
        Some(is_gap) => is_gap && !rw.is_layer(from) && before != "Linear",
        None if rw.is(id, "Conv") => false,
        // The second layer of torch.nn's Transformer layers: `linear2(dropout(activation(linear1(x))))`.
        None => matches!(before, "Relu" | "HardSwish") || rw.node(id).scope.ends_with("linear2"),
    }
}

/// Whether the numbers of two children of one module leave one out between them; `None` where they are no such children.
fn gap(from: &str, to: &str) -> Option<bool> {
    let (parent, to) = to.rsplit_once('.').unwrap_or(("", to));
    let from = from.strip_prefix(parent)?;
    let from = if parent.is_empty() { from } else { from.strip_prefix('.')? };
    let number = |s: &str| s.parse::<usize>().ok();
    Some(number(to)? > number(from.split('.').next()?)? + 1)
}

/// Whether a node makes the sum of embeddings, normalized where that is what the model goes on with.
fn is_embedding(rw: &Rewriter<'_>, id: NodeId) -> bool {
    let Some(y) = rw.output(id).filter(|y| rw.rank(*y) == Some(3) && rw.dtype(*y).is_float()) else {
        return false;
    };
    // Rows that only a convolution or a recurrence reads are no stream of residual blocks.
    let ends =
        |reader: NodeId| !rw.is(id, "Gather") && !rw.is(reader, "LayerNormalization") && !is_rows(rw, reader);
    is_rows(rw, id) && rw.sole_reader(y).is_none_or(ends)
}

/// Whether a node makes rows of a table, sums of them and positions, or their norm.
fn is_rows(rw: &Rewriter<'_>, id: NodeId) -> bool {
    let of = |t: TensorId| rw.producer(t).is_some_and(|id| is_rows(rw, id));
    let Some(x) = rw.input(id, 0) else { return false };
    match rw.node(id).op.name() {
        "Gather" => rw.is_layer(id) && rw.output(id).and_then(|y| rw.rank(y)) == Some(3),
        "LayerNormalization" => rw.sole_reader(x).is_some() && of(x),
        // What has positions added; not a layer's input in a block, nor scores with a bias.
        "Add" => rw.operands(id, |t| (is_shared(rw, t) || of(t)).then_some(())).is_some_and(|(_, other)| {
            ["Div", "LayerNormalization", "MatMul"].iter().all(|op| rw.made_by(other, op).is_none())
        }),
        "Mul" => rw.operands(id, |t| rw.scalar(t)).is_some_and(|(_, other)| of(other)),
        _ => false,
    }
}

/// Whether `t` is a stored table of some rank, or a part of one.
fn is_shared(rw: &Rewriter<'_>, t: TensorId) -> bool {
    const PARTS: &[&str] = &["Expand", "Gather", "Reshape", "Slice", "Transpose", "Unsqueeze"];
    let part = |id: NodeId| rw.input(id, 0).filter(|_| PARTS.contains(&rw.node(id).op.name()));
    match rw.producer(t) {
        None => {
            let rows = rw.shape(t).and_then(|s| s.dims().iter().nth_back(1));
            rw.is_stored(t) && rw.dtype(t).is_float() && rows.is_some_and(|n| *n != Dim::Known(1))
        }
        Some(id) => part(id).is_some_and(|t| is_shared(rw, t)),
    }
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{DType, Role, TensorId, Type};

    #[test]
    fn a_folded_weight_without_dropout_tells_an_inference_export() {
        for (name, drops, found) in
            [("onnx::MatMul_3", false, true), ("fc.weight", false, false), ("onnx::MatMul_3", true, false)]
        {
            let mut s = Sketch::default();
            let (x, w) = (s.input("x", &[2, 8]), s.weight(name, &[8, 8]));
            let mut y = s.push("MatMul", &[x, w]);
            if drops {
                y = s.push("Dropout", &[y]);
            }
            s.recompose(y);
            assert_eq!(s.report.findings.iter().any(|f| f.kind == "no-dropout"), found);
        }
    }

    /// The operators of what `draw` draws in this scope, with dropout put back.
    fn assumed(draw: fn(&mut Sketch) -> TensorId, scopes: &[&str]) -> Vec<String> {
        let mut s = Sketch::default();
        s.options.assume_dropout = true;
        let y = draw(&mut s);
        for (node, scope) in s.graph.nodes.iter_mut().zip(scopes) {
            node.scope = (*scope).into();
        }
        s.recompose(y).into_iter().map(str::to_owned).collect()
    }

    fn linear(s: &mut Sketch, x: TensorId) -> TensorId {
        let w = s.weight("w", &[8, 8]);
        s.push("MatMul", &[x, w])
    }

    #[test]
    fn probabilities_and_what_a_layer_adds_to_the_stream_are_dropped() {
        let block = |s: &mut Sketch| {
            let x = s.input("x", &[2, 6, 8]);
            let scores = s.input("scores", &[2, 6, 6]);
            let p = s.push("Softmax", &[scores]);
            let y = s.push("MatMul", &[p, x]);
            let y = linear(s, y);
            s.push("Add", &[y, x])
        };
        assert_eq!(assumed(block, &[]), ["Softmax", "Dropout", "MatMul", "Linear", "Dropout", "Add"]);
        let gate = |s: &mut Sketch| {
            let (x, h) = (s.input("x", &[2, 8]), s.input("h", &[2, 8]));
            let (x, h) = (linear(s, x), linear(s, h));
            s.push("Add", &[x, h])
        };
        assert_eq!(assumed(gate, &[]), ["Linear", "Linear", "Add"]);
    }

    #[test]
    fn the_numbers_of_a_sequential_tell_and_else_the_activation() {
        fn layers(s: &mut Sketch, act: &str) -> TensorId {
            let x = s.input("x", &[2, 8]);
            let y = linear(s, x);
            let y = s.push(act, &[y]);
            linear(s, y)
        }
        let (relu, tanh) = (|s: &mut Sketch| layers(s, "Relu"), |s: &mut Sketch| layers(s, "Tanh"));
        for (draw, scopes, dropped) in [
            (relu as fn(&mut Sketch) -> TensorId, ["fc1", "", "fc2"], true),
            (relu, ["net.0", "net.1", "net.2"], false),
            (relu, ["0", "1", "3"], true),
            (tanh, ["fc1", "", "fc2"], false),
            (tanh, ["net.0", "net.1", "net.3"], true),
            (tanh, ["net.0", "other.1", "net.3"], false),
        ] {
            assert_eq!(assumed(draw, &scopes).iter().any(|op| op == "Dropout"), dropped, "{scopes:?}");
        }
    }

    #[test]
    fn the_sum_of_embeddings_is_dropped_behind_its_norm() {
        fn rows(s: &mut Sketch, norm: bool) -> TensorId {
            let table = s.weight("table", &[10, 8]);
            let ids = s.graph.add_tensor("ids", Type::tensor(DType::Int64, [2, 6].into()), Role::Input);
            s.graph.inputs.push(ids);
            let (x, positions) = (s.push("Gather", &[table, ids]), s.weight("positions", &[1, 6, 8]));
            let x = s.push("Add", &[x, positions]);
            let scale = s.weight("scale", &[8]);
            let y = s.push("LayerNormalization", &[x, scale]);
            let y = if norm { y } else { s.push("Add", &[y, x]) };
            s.push("Tanh", &[y])
        }
        let with_norm = assumed(|s| rows(s, true), &[]);
        assert_eq!(with_norm, ["Gather", "Add", "LayerNormalization", "Dropout", "Tanh"]);
        let without = assumed(|s| rows(s, false), &[]);
        assert_eq!(without, ["Gather", "Add", "Dropout", "LayerNormalization", "Add", "Tanh"]);
    }
}
