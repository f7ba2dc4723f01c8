//! `tensor.split(…)` as the dynamo exporter writes it: a SplitToSequence and a SequenceAt for each part.
//!
//! PyTorch runs one `split`, whose parts are views and whose backward joins their gradients once; a sequence has no rule of
//! its own.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::sequence_split::SplitToSequence;
use memfit_graph::ops::split::Split;
use memfit_graph::{NodeId, Num, TensorId, Type};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "split", run };

/// A split that a sequence stands for.
struct Found {
    split: Split,
    /// The type of each part.
    types: Vec<Type>,
    /// What each SequenceAt gives, and which part that is.
    parts: Vec<(TensorId, usize)>,
}

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let Some(Found { split, types, parts }) = find(rw, id) else { return false };
    let Some(input) = rw.input(id, 0) else { return false };
    let made = rw.insert_with_outputs(id, Arc::new(split), vec![Some(input)], types);
    for (part, at) in parts {
        rw.redirect(part, made[at]);
    }
    true
}

fn find(rw: &Rewriter<'_>, id: NodeId) -> Option<Found> {
    let op = rw.op::<SplitToSequence>(id)?;
    let sequence = rw.output(id).filter(|t| !rw.is_graph_output(*t))?;
    // Without sizes the axis may go as well, which is an `unbind`.
    rw.input(id, 1)?;
    let Type::Sequence { items: Some(items), .. } = rw.ty(sequence) else { return None };
    let size = |item: &Type| {
        let shape = item.shape()?;
        shape.axis(op.axis).and_then(|axis| shape.dims()[axis].known()).and_then(|n| i64::try_from(n).ok())
    };
    let sizes: Vec<i64> = items.iter().map(size).collect::<Option<_>>()?;
    let mut parts = Vec::new();
    for reader in rw.readers(sequence) {
        let part = rw.is(reader, "SequenceAt").then(|| rw.output(reader)).flatten()?;
        let at = rw.value(rw.input(reader, 1)?)?.single().and_then(Num::as_i64)?;
        let at = if at < 0 { at.checked_add(i64::try_from(items.len()).ok()?)? } else { at };
        let at = usize::try_from(at).ok().filter(|at| *at < items.len())?;
        if rw.is_graph_output(part) {
            return None;
        }
        parts.push((part, at));
    }
    let split = Split { axis: op.axis, sizes: Some(sizes), parts: None };
    Some(Found { split, types: items.clone(), parts })
}

#[cfg(test)]
mod tests {
    use super::super::testing::Sketch;
    use memfit_graph::{Attribute, Attributes, DType, Value};

    #[test]
    fn parts_of_a_sequence_are_one_split() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 6]);
        let size = s.graph.add_constant("size", Value::scalar(DType::Int64, 3));
        let axis = Attributes::from([("axis", Attribute::Int(-1))]);
        let sequence = s.push_with("SplitToSequence", axis, &[x, size]);
        let position =
            |s: &mut Sketch, n: i64| s.graph.add_constant(format!("at{n}"), Value::scalar(DType::Int64, n));
        let (first, last) = (position(&mut s, 0), position(&mut s, -1));
        let a = s.push("SequenceAt", &[sequence, first]);
        let b = s.push("SequenceAt", &[sequence, last]);
        let y = s.push("Mul", &[a, b]);
        assert_eq!(s.recompose(y), ["Split", "Mul"]);
        assert_eq!(s.report.applied[0].pattern, "split");
    }
}
