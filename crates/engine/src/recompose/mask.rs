//! What an attention mask in a file says about the kernel that really ran.
//!
//! An exporter turns a boolean mask into an added one right before it is used (`where(mask, 0, -inf)`), and
//! `is_causal` into a triangle of ones. Model code that makes its mask from positions alone does so only while it is
//! traced: run eagerly it sees that the mask is the plain causal one (or hides nothing) and passes none. So a mask
//! that depends on nothing but sizes is no tensor of a training step; one that depends on the model's inputs is.

use super::rewriter::Rewriter;
use memfit_graph::{DType, NodeId, Role, TensorId};
use std::collections::HashMap;

/// What an attention gets as its mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mask {
    /// Nothing.
    None,
    /// The kernel's own causal mode.
    Causal,
    /// This tensor, boolean or added.
    Tensor(TensorId),
}

/// The mask behind what is added to the scores.
pub(super) fn resolve(rw: &Rewriter<'_>, added: TensorId) -> Mask {
    let Some(choice) = rw.made_by(added, "Where") else { return Mask::Tensor(added) };
    let [condition, if_true, if_false] = [0, 1, 2].map(|i| rw.input(choice, i));
    let (Some(condition), Some(a), Some(b)) = (condition, if_true, if_false) else {
        return Mask::Tensor(added);
    };
    let hides = |t: TensorId| rw.scalar(t).is_some_and(|x| x < -1e4);
    let zero = |t: TensorId| rw.scalar(t) == Some(0.0);
    if !(zero(a) && hides(b) || hides(a) && zero(b)) {
        return Mask::Tensor(added);
    }
    let mut cone = Cone::default();
    match cone.visit(rw, condition) {
        Some(sees) if sees.compares => Mask::Causal,
        Some(_) => Mask::None,
        None if zero(a) => Mask::Tensor(condition),
        None => Mask::Tensor(added),
    }
}

/// What a tensor is made of, where that is sizes alone.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    /// Whether positions are compared, which is what hides later keys.
    compares: bool,
}

/// A walk over what a tensor is made of.
#[derive(Default)]
struct Cone {
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
            let found =
                parts.map(|parts| Sizes { compares: compares(rw, node) || parts.iter().any(|p| p.compares) });
            self.seen.insert(t, found);
        }
        self.seen.get(&root).copied().flatten()
    }
}

/// A size, a small constant, or a table that an exporter computed: module tables have dotted names.
fn leaf(rw: &Rewriter<'_>, t: TensorId) -> Option<Sizes> {
    let tensor = rw.graph.tensor(t);
    let name = &*tensor.name;
    let is_mask = rw.dtype(t) == DType::Bool && rw.rank(t).is_some_and(|r| r >= 2);
    match tensor.role {
        Role::Input => None,
        Role::Initializer if rw.value(t).is_none() && (name.contains('.') || rw.dtype(t).is_float()) => None,
        Role::Initializer | Role::Constant => Some(Sizes { compares: is_mask }),
        Role::Intermediate => Some(Sizes::default()),
    }
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
