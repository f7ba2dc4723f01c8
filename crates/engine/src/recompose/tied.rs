//! The matrix of the output layer where it is the embedding's, and the export untied them.
//!
//! The legacy exporter folds the transpose in front of a product when it exports for inference. Where the matrix is tied
//! to the embedding, which is stored anyway, the file then holds both: 24 % more parameters for BERT. Whether they were one
//! cannot be read off a file without its weights, so it is decided, said, and the user may decide otherwise. Embeddings
//! are tied in `transformers` unless a configuration says not (configuration_utils.py, `tie_word_embeddings`, 5.x), which
//! those of decoders with rotary positions do: GPT-J, GPT-NeoX, Llama, Mistral, Phi, OLMo and what followed them. Those that
//! multiply the embedding by the root of its width tie it (Gemma; Vaswani et al. 2017, 3.4).

use super::parameters::is_exporters;
use super::rewriter::Rewriter;
use super::{Finding, Options};
use memfit_graph::ops::gemm::Gemm;
use memfit_graph::ops::linear::Linear;
use memfit_graph::{NodeId, Role, TensorId};
use std::sync::Arc;

/// How far from the output its layer may be.
const STEPS: usize = 6;

/// Ties what was tied, where that is assumed; says what was done.
pub(super) fn tie(rw: &mut Rewriter<'_>, options: &Options) -> Option<Finding> {
    let (head, weight, table) = rw.node_ids().into_iter().rev().find_map(|id| untied(rw, id))?;
    let name = |t: TensorId| rw.graph.tensor(t).name.to_string();
    let (embedding, layer) = (name(table), rw.node(head).path().to_string());
    let assumed = options.tied_embeddings.is_none();
    let tied = options.tied_embeddings.unwrap_or_else(|| !rotates(rw) || is_scaled(rw, table));
    let message = if tied {
        attach(rw, head, table);
        let undo = if assumed { "; if they are separate, say --tied-embeddings no" } else { "" };
        format!("the export untied the output layer's matrix from `{embedding}`: counted once{undo}")
    } else {
        let undo = if assumed { "; if the model ties them, say --tied-embeddings yes" } else { "" };
        let elements = rw.shape(weight).and_then(|s| s.elements()).unwrap_or(0);
        format!(
            "the output layer's matrix has the size of `{embedding}`: counted apart, {elements} parameters{undo}"
        )
    };
    Some(Finding { kind: super::UNTIED, message, layers: vec![layer] })
}

/// An output layer over a folded matrix, and the embedding that it may be a copy of.
fn untied(rw: &Rewriter<'_>, id: NodeId) -> Option<(NodeId, TensorId, TensorId)> {
    let weight = rw.input(id, 1)?;
    let out_first = match (rw.op::<Linear>(id), rw.op::<Gemm>(id)) {
        (Some(linear), _) => linear.out_first,
        (None, Some(gemm)) if !gemm.trans_a => gemm.trans_b,
        _ => return None,
    };
    let tensor = rw.graph.tensor(weight);
    if tensor.role != Role::Initializer || !is_exporters(&tensor.name) || !is_last(rw, rw.output(id)?) {
        return None;
    }
    let dims = rw.shape(weight)?.dims();
    let [a, b] = dims else { return None };
    let wanted = if out_first { [a, b] } else { [b, a] };
    let is_table = |id: &NodeId| {
        let table = rw.is(*id, "Gather").then(|| rw.input(*id, 0)).flatten().filter(|t| rw.is_stored(*t))?;
        let same = matches!(rw.shape(table)?.dims(), [rows, columns] if [rows, columns] == wanted);
        (same && rw.dtype(table).is_float() && is_of_input(rw, rw.input(*id, 1)?)).then_some(table)
    };
    let table = rw.node_ids().iter().find_map(is_table)?;
    Some((id, weight, table))
}

/// Whether what is made of `t` is an output of the model, up to element by element work.
fn is_last(rw: &Rewriter<'_>, mut t: TensorId) -> bool {
    const LIGHT: &[&str] = &["Add", "Cast", "Div", "Identity", "Mul", "Reshape", "Tanh", "Transpose"];
    for _ in 0..STEPS {
        if rw.is_graph_output(t) {
            return true;
        }
        let next = rw.sole_reader(t).filter(|n| LIGHT.contains(&rw.node(*n).op.name()));
        let Some(next) = next.and_then(|n| rw.output(n)) else { return false };
        t = next;
    }
    false
}

/// Whether the model's input has chosen these rows: tokens, not positions.
fn is_of_input(rw: &Rewriter<'_>, mut t: TensorId) -> bool {
    for _ in 0..STEPS {
        if rw.graph.tensor(t).role == Role::Input {
            return true;
        }
        let Some(source) = rw.producer(t).and_then(|n| rw.input(n, 0)) else { return false };
        t = source;
    }
    false
}

/// Whether the looked up rows are multiplied by one number.
fn is_scaled(rw: &Rewriter<'_>, table: TensorId) -> bool {
    let by_number = |n: NodeId| {
        let other = rw.output(n).filter(|_| rw.is(n, "Gather")).and_then(|rows| {
            let mul = rw.readers(rows).find(|n| rw.is(*n, "Mul"))?;
            rw.other(mul, rows)
        });
        other.and_then(|t| rw.shape(t)).and_then(|s| s.elements()) == Some(1)
    };
    rw.readers(table).any(by_number)
}

/// Whether queries and keys are rotated by their positions: halves of a vector are swapped, one of them negated, or pairs of it
/// multiplied as complex numbers, whose parts are then joined.
fn rotates(rw: &Rewriter<'_>) -> bool {
    let is_part = |t: TensorId| ["Gather", "Slice", "Split"].iter().any(|op| rw.made_by(t, op).is_some());
    let of_products = |id: NodeId| {
        let factors = rw.node(id).inputs.iter().flatten();
        rw.node(id).inputs.len() == 2 && factors.filter(|t| rw.made_by(**t, "Mul").is_some()).count() == 2
    };
    let is_sum = |t: TensorId| {
        let source = rw.made_by(t, "Unsqueeze").and_then(|n| rw.input(n, 0)).unwrap_or(t);
        rw.made_by(source, "Add").is_some_and(of_products)
    };
    let joined = |id: NodeId| {
        let read = |t: TensorId| rw.readers(t).find(|n| rw.is(*n, "Concat") || rw.is(*n, "Unsqueeze"));
        let reader = rw.output(id).and_then(read)?;
        let joined = if rw.is(reader, "Concat") { reader } else { read(rw.output(reader)?)? };
        rw.is(joined, "Concat").then_some(joined)
    };
    rw.node_ids().into_iter().any(|id| match rw.node(id).op.name() {
        "Neg" => rw.input(id, 0).is_some_and(is_part) && joined(id).is_some(),
        "Sub" if of_products(id) => {
            joined(id).is_some_and(|n| rw.node(n).inputs.iter().flatten().any(|t| is_sum(*t)))
        }
        _ => false,
    })
}

/// The layer reads the table itself.
fn attach(rw: &mut Rewriter<'_>, head: NodeId, table: TensorId) {
    let mut inputs = rw.node(head).inputs.clone();
    inputs[1] = Some(table);
    match rw.op::<Gemm>(head).cloned() {
        Some(gemm) => rw.rewrite(head, Arc::new(Gemm { trans_b: true, ..gemm }), inputs),
        None => rw.rewrite(head, Arc::new(Linear { out_first: true }), inputs),
    }
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{DType, Role, Shape, Type};

    /// An embedding, and a head of its size under this name; rotary positions in between or not.
    fn model(head: &str, rotary: bool, tied: Option<bool>) -> Sketch {
        let mut s = Sketch::default();
        s.options.tied_embeddings = tied;
        let ids = s.graph.add_tensor("ids", Type::tensor(DType::Int64, Shape::from([2, 5])), Role::Input);
        s.graph.inputs.push(ids);
        let table = s.weight("wte.weight", &[30, 8]);
        let mut x = s.push("Gather", &[table, ids]);
        if rotary {
            let (zero, four, eight, axis) = (s.ints(&[0]), s.ints(&[4]), s.ints(&[8]), s.ints(&[2]));
            let (a, b) = (s.push("Slice", &[x, zero, four, axis]), s.push("Slice", &[x, four, eight, axis]));
            let b = s.push("Neg", &[b]);
            let last = memfit_graph::Attributes::from([("axis", memfit_graph::Attribute::Int(2))]);
            x = s.push_with("Concat", last, &[b, a]);
        }
        let w = s.weight(head, &[8, 30]);
        let y = s.push("MatMul", &[x, w]);
        s.recompose(y);
        s
    }

    fn head(s: &Sketch) -> &str {
        s.inputs_of(s.graph.nodes.len() - 1)[1]
    }

    #[test]
    fn a_folded_copy_is_tied_and_a_layer_of_its_own_is_not() {
        let s = model("onnx::MatMul_9", false, None);
        assert_eq!(head(&s), "wte.weight");
        assert!(s.report.findings[0].message.contains("--tied-embeddings no"), "{:?}", s.report);
        assert_eq!(head(&model("lm_head.weight", false, None)), "lm_head.weight");
    }

    #[test]
    fn pairs_that_are_multiplied_as_complex_numbers_are_rotated() {
        let mut s = Sketch::default();
        let ids = s.graph.add_tensor("ids", Type::tensor(DType::Int64, Shape::from([2, 5])), Role::Input);
        s.graph.inputs.push(ids);
        let (table, w) = (s.weight("wte.weight", &[30, 8]), s.weight("onnx::MatMul_9", &[8, 30]));
        let x = s.push("Gather", &[table, ids]);
        let (cos, sin) = (s.weight("cos", &[5, 8]), s.weight("sin", &[5, 8]));
        let [ac, bn, an, bc] = [cos, sin, sin, cos].map(|t| s.push("Mul", &[x, t]));
        let (re, im, axis) = (s.push("Sub", &[ac, bn]), s.push("Add", &[an, bc]), s.ints(&[3]));
        let [re, im] = [re, im].map(|t| s.push("Unsqueeze", &[t, axis]));
        let last = memfit_graph::Attributes::from([("axis", memfit_graph::Attribute::Int(3))]);
        let x = s.push_with("Concat", last, &[re, im]);
        let (zero, axis) =
            (s.whole(0), memfit_graph::Attributes::from([("axis", memfit_graph::Attribute::Int(3))]));
        let x = s.push_with("Gather", axis, &[x, zero]);
        let y = s.push("MatMul", &[x, w]);
        s.recompose(y);
        assert_ne!(head(&s), "wte.weight");
    }

    #[test]
    fn rotary_decoders_keep_them_apart_and_the_user_decides() {
        let s = model("onnx::MatMul_9", true, None);
        assert_ne!(head(&s), "wte.weight");
        assert!(s.report.findings[0].message.contains("--tied-embeddings yes"), "{:?}", s.report);
        assert_eq!(head(&model("onnx::MatMul_9", true, Some(true))), "wte.weight");
        assert_ne!(head(&model("onnx::MatMul_9", false, Some(false))), "wte.weight");
    }
}
