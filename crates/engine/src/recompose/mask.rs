//! What an attention mask in a file says about the kernel that really ran.
//!
//! An exporter turns a boolean mask into an added one right before it is used (`where(mask, 0, -inf)`), and
//! `is_causal` into a triangle of ones. Model code that makes its mask from positions alone does so only while it is
//! traced: run eagerly it sees that the mask is the plain causal one (or hides nothing) and passes none. So a mask
//! that depends on nothing but sizes is no tensor of a training step; one that depends on the model's inputs is, and so is a
//! sliding window that is shorter than the sequence (transformers, masking_utils.py `_ignore_causal_mask_sdpa`, 5.x).

use super::rewriter::Rewriter;
use memfit_graph::{DType, Dim, NodeId, Role, TensorId};
use std::collections::HashMap;

/// What an attention gets as its mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mask {
    /// Nothing.
    None,
    /// The kernel's own causal mode; whether the file has the exporter's triangle for it, or what the model made of positions.
    Causal { triangle: bool },
    /// This tensor, boolean or added.
    Tensor(TensorId),
}

/// The mask behind what is added to the scores.
pub(super) fn resolve(rw: &mut Rewriter<'_>, added: TensorId) -> Mask {
    let Some(choice) = rw.made_by(added, "Where") else { return Mask::Tensor(added) };
    let [condition, if_true, if_false] = [0, 1, 2].map(|i| rw.input(choice, i));
    let (Some(condition), Some(a), Some(b)) = (condition, if_true, if_false) else {
        return Mask::Tensor(added);
    };
    let hides = |t: TensorId| rw.scalar(t).is_some_and(|x| x < -1e4);
    let zero = |t: TensorId| rw.scalar(t) == Some(0.0);
    let shows = zero(a) && hides(b);
    let hidden = hides(a) && zero(b);
    if !shows && !hidden {
        return Mask::Tensor(added);
    }
    let mut cone = std::mem::take(&mut rw.cone);
    let sees = cone.visit(rw, condition);
    rw.cone = cone;
    let keys = rw.shape(condition).and_then(|s| s.dims().last()?.known());
    let slides = |sees: Sizes| sees.window.zip(keys).is_some_and(|(window, keys)| keys >= window);
    let sees = sees.filter(|sees| !slides(*sees));
    match sees {
        Some(sees) if sees.compares => Mask::Causal { triangle: sees.triangle },
        Some(_) => Mask::None,
        None if shows => Mask::Tensor(condition),
        None => Mask::Tensor(added),
    }
}

/// What a tensor is made of, where that is sizes alone.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    /// Whether positions are compared, which is what hides later keys.
    compares: bool,
    /// Whether a triangle of ones has a part in it.
    triangle: bool,
    /// How far back a position may look, where that is less than to the first.
    window: Option<u64>,
}

/// A walk over what a tensor is made of, which remembers what it saw.
#[derive(Default)]
pub(super) struct Cone {
    seen: HashMap<TensorId, Option<Sizes>>,
}

impl Cone {
    /// `None` where an input of the model or a stored table has a part in it.
    fn visit(&mut self, rw: &Rewriter<'_>, root: TensorId) -> Option<Sizes> {
        let mut pending = vec![(root, false)];
        while let Some((t, ready)) = pending.pop() {
            if self.seen.contains_key(&t) {
                continue;
            }
            let node = rw.producer(t);
            let (Some(node), false) = (node, node.is_some_and(|n| rw.node(n).op.name() == "Shape")) else {
                self.seen.insert(t, leaf(rw, t));
                continue;
            };
            let inputs = rw.node(node).inputs.iter().flatten();
            if !ready {
                pending.push((t, true));
                pending.extend(inputs.map(|i| (*i, false)));
                continue;
            }
            let parts: Option<Vec<Sizes>> = inputs.map(|i| self.seen.get(i).copied().flatten()).collect();
            let found = parts.filter(|_| !looks_up(rw, node)).map(|parts| Sizes {
                compares: compares(rw, node) || parts.iter().any(|p| p.compares),
                triangle: rw.is(node, "Trilu") || parts.iter().any(|p| p.triangle),
                window: window(rw, node).or_else(|| parts.iter().filter_map(|p| p.window).min()),
            });
            self.seen.insert(t, found);
        }
        self.seen.get(&root).copied().flatten()
    }
}

/// A size, a small constant, or a table that an exporter computed: module tables have dotted names.
fn leaf(rw: &Rewriter<'_>, t: TensorId) -> Option<Sizes> {
    let tensor = rw.graph.tensor(t);
    let name = &*tensor.name;
    // One truth value for all keys hides no later one.
    let keys = rw.shape(t).filter(|s| s.rank() >= 2).and_then(|s| s.dims().last());
    let is_mask = rw.dtype(t) == DType::Bool && keys.is_some_and(|n| *n != Dim::Known(1));
    match tensor.role {
        Role::Input => None,
        Role::Initializer if rw.value(t).is_none() && (name.contains('.') || rw.dtype(t).is_float()) => None,
        Role::Initializer | Role::Constant => Some(Sizes { compares: is_mask, ..Sizes::default() }),
        Role::Intermediate => Some(Sizes::default()),
    }
}

/// Whether a node reads a table of ones: a padding mask that the model made itself, whose contents alone tell the
/// framework whether to pass it.
fn looks_up(rw: &Rewriter<'_>, node: NodeId) -> bool {
    let reads = matches!(rw.node(node).op.name(), "Gather" | "GatherND" | "GatherElements");
    let Some(mut table) = rw.input(node, 0).filter(|t| reads && rw.dtype(*t) == DType::Bool) else {
        return false;
    };
    for _ in 0..8 {
        let Some(maker) = rw.producer(table) else { return true };
        match (rw.node(maker).op.name(), rw.input(maker, 0)) {
            ("ConstantOfShape", _) => return true,
            ("Flatten" | "Reshape" | "Cast" | "Transpose" | "Expand", Some(source)) => table = source,
            _ => return false,
        }
    }
    false
}

/// Whether a node orders positions: `<`, `<=`, `>`, `>=` of more than one element, or a triangle.
fn compares(rw: &Rewriter<'_>, node: NodeId) -> bool {
    match rw.node(node).op.name() {
        "Trilu" => true,
        "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" => {
            let several = |t: TensorId| rw.shape(t).and_then(|s| s.elements()) != Some(1);
            rw.node(node).inputs.iter().flatten().all(|t| several(*t))
        }
        _ => false,
    }
}

/// The length of a window that a node compares with: `key > query - window`, or `|query - key| <= window`.
fn window(rw: &Rewriter<'_>, node: NodeId) -> Option<u64> {
    if !["Less", "LessOrEqual", "Greater", "GreaterOrEqual"].iter().any(|op| rw.is(node, op)) {
        return None;
    }
    let length = |t: TensorId| rw.value(t)?.single()?.as_i64().and_then(|n| u64::try_from(n).ok());
    let (a, b) = (rw.input(node, 0)?, rw.input(node, 1)?);
    let shifted = |t: TensorId| rw.made_by(t, "Sub").and_then(|n| length(rw.input(n, 1)?));
    let apart = |t: TensorId, other: TensorId| rw.made_by(t, "Abs").and_then(|_| length(other));
    [shifted(a), shifted(b), apart(a, b), apart(b, a)].into_iter().flatten().find(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::ops::scaled_dot_product::ScaledDotProductAttention;
    use memfit_graph::{DType, TensorId, Value};

    /// Attention with `where(condition, 0, -inf)` added; gives its struct and its inputs.
    fn attention(condition: impl Fn(&mut Sketch) -> TensorId) -> (ScaledDotProductAttention, Vec<String>) {
        let mut s = Sketch::default();
        let [q, v] = ["q", "v"].map(|name| s.input(name, &[2, 4, 10, 8]));
        let k = s.input("turned", &[2, 4, 8, 10]);
        let (c, zero, low) = (s.scalar(0.42), s.scalar(0.0), s.scalar(f64::from(f32::MIN)));
        let (a, b) = (s.push("Mul", &[q, c]), s.push("Mul", &[k, c]));
        let condition = condition(&mut s);
        let mask = s.push("Where", &[condition, zero, low]);
        let scores = s.push("MatMul", &[a, b]);
        let scores = s.push("Add", &[scores, mask]);
        let p = s.push("Softmax", &[scores]);
        let y = s.push("MatMul", &[p, v]);
        s.recompose(y);
        let node = s.graph.nodes.last().unwrap();
        let inputs = node.inputs.iter().flatten().map(|t| s.graph.tensor(*t).name.to_string()).collect();
        (*node.op.downcast().unwrap(), inputs)
    }

    fn positions(s: &mut Sketch, shape: &[i64]) -> TensorId {
        let (zero, one, n) = (s.whole(0), s.whole(1), s.whole(10));
        let range = s.push("Range", &[zero, n, one]);
        let target = s.ints(shape);
        s.push("Reshape", &[range, target])
    }

    #[test]
    fn positions_alone_are_the_kernels_causal_mode() {
        let (op, inputs) = attention(|s| {
            let (keys, queries) = (positions(s, &[1, 10]), positions(s, &[10, 1]));
            s.push("LessOrEqual", &[keys, queries])
        });
        assert!(op.is_causal);
        assert_eq!(inputs.len(), 3);
    }

    #[test]
    fn a_window_shorter_than_the_sequence_is_a_mask() {
        for (length, expected) in [(4, 4), (64, 3)] {
            let (op, inputs) = attention(|s| {
                let (keys, queries) = (positions(s, &[1, 10]), positions(s, &[10, 1]));
                let length = s.whole(length);
                let first = s.push("Sub", &[queries, length]);
                let near = s.push("Greater", &[keys, first]);
                let past = s.push("LessOrEqual", &[keys, queries]);
                s.push("And", &[near, past])
            });
            assert_eq!((op.is_causal, inputs.len()), (expected == 3, expected));
        }
    }

    #[test]
    fn an_input_of_the_model_is_a_mask() {
        let (op, inputs) = attention(|s| {
            let (lengths, keys) = (s.input("lengths", &[2, 1, 1, 1]), positions(s, &[1, 10]));
            let keys = s.push_with("Cast", [("to", memfit_graph::Attribute::Int(1))].into(), &[keys]);
            s.push("Less", &[keys, lengths])
        });
        assert!(!op.is_causal);
        assert!(inputs[3].starts_with("Less"), "{inputs:?}");
    }

    #[test]
    fn a_mask_that_hides_nothing_is_none() {
        for dims in [&[1][..], &[1, 1, 10, 1]] {
            let all = Value::filled(DType::Bool, dims, 1_i64.into()).unwrap();
            let (op, inputs) = attention(|s| s.graph.add_constant("all", all.clone()));
            assert!(!op.is_causal);
            assert_eq!(inputs.len(), 3);
        }
    }
}
