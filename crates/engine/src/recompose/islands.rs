//! Float32 inside of a half-precision model, which a float32 export shows as two casts that change nothing.
//!
//! `q.float()`, …, `.to(v.dtype)`: the legacy exporter writes both Casts, though in its float32 file the tensors have that
//! dtype already. A Cast of an activation opens such a stretch if whatever is made of it meets another Cast before a layer
//! with weights does, and something in between is worth the precision. Other Casts to the dtype that a tensor has are
//! what models write to be sure (`x.to(weight.dtype)`), and nothing runs for them. Norms have casts of their own (`rms_norm`).
//!
//! So does a cast of a parameter: `A = -torch.exp(self.A_log.float())` makes all states of Mamba's recurrence float32, however
//! many steps it has (transformers, models/mamba/modeling_mamba.py). A step's result is cast and the next step reads the state
//! itself; in the file it reads the cast, which gave the same tensor to the tracer.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::float_island::FloatIsland;
use memfit_graph::{NodeId, Role, TensorId};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "float32 inside of half precision", run };

/// How many nodes a stretch that an activation opens may have: a recurrence's, written out step by step.
const LONGEST: usize = 4096;

/// Operators that models take care to run in float32.
const SENSITIVE: &[&str] = &[
    "Exp",
    "Log",
    "LogSoftmax",
    "MatMul",
    "Pow",
    "ReduceMean",
    "ReduceSum",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Sqrt",
];

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    if !rw.is_empty_cast(id) {
        return false;
    }
    let (Some(entry), Some(start)) = (rw.input(id, 0), rw.output(id)) else { return false };
    let role = rw.graph.tensor(entry).role;
    let longest = match role {
        Role::Initializer => usize::MAX,
        Role::Intermediate if rw.is_trained(entry) => LONGEST,
        _ => return false,
    };
    let Some((ends, inside)) = ends(rw, start, longest) else { return false };
    rw.rewrite(id, Arc::new(FloatIsland::Widen), vec![Some(entry)]);
    for end in ends {
        if let (Some(x), Some(cast)) = (rw.input(end, 0), rw.output(end)) {
            let again: Vec<NodeId> = rw.readers(cast).filter(|n| inside.contains(n)).collect();
            again.into_iter().for_each(|n| rw.reread(n, cast, x));
        }
        if !rw.is_dead(end) && rw.is_empty_cast(end) {
            let x = rw.input(end, 0);
            rw.rewrite(end, Arc::new(FloatIsland::Restore { entry }), vec![x]);
        }
    }
    true
}

/// The casts that close the stretch which begins with `start`, and the nodes inside; `None` where a way out of it has none.
fn ends(rw: &Rewriter<'_>, start: TensorId, longest: usize) -> Option<(BTreeSet<NodeId>, BTreeSet<NodeId>)> {
    let (mut ends, mut seen, mut pending) = (BTreeSet::new(), BTreeSet::new(), vec![start]);
    let mut worth_it = false;
    while let Some(t) = pending.pop() {
        if rw.is_graph_output(t) {
            return None;
        }
        for reader in rw.readers(t) {
            if rw.is(reader, "Shape") || !seen.insert(reader) {
                continue;
            }
            let restores = rw.is(reader, "Restore");
            if restores || rw.is_empty_cast(reader) {
                worth_it |= restores;
                ends.insert(reader);
                seen.remove(&reader);
                continue;
            }
            if seen.len() > longest || rw.is_layer(reader) {
                return None;
            }
            worth_it |= SENSITIVE.contains(&rw.node(reader).op.name());
            let outputs = rw.node(reader).outputs.iter().flatten();
            pending.extend(outputs.filter(|t| rw.dtype(**t).is_float()));
        }
    }
    (worth_it && !ends.is_empty()).then_some((ends, seen))
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::TensorId;

    fn linear(s: &mut Sketch, x: TensorId) -> TensorId {
        let w = s.weight("w", &[8, 8]);
        s.push("MatMul", &[x, w])
    }

    #[test]
    fn scores_between_two_casts_are_float32() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8, 8]);
        let (q, k) = (linear(&mut s, x), linear(&mut s, x));
        let (q, k) = (s.cast(q), s.cast(k));
        let p = s.push("MatMul", &[q, k]);
        let p = s.push("Softmax", &[p]);
        let p = s.cast(p);
        let y = s.push("MatMul", &[p, x]);
        let names = s.recompose(y);
        assert_eq!(names, ["Linear", "Linear", "Widen", "Widen", "MatMul", "Softmax", "Restore", "MatMul"]);
    }

    #[test]
    fn a_parameter_makes_a_recurrence_float32() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8]);
        let a = s.weight("a", &[8]);
        let a = s.cast(a);
        let mut a = s.push("Exp", &[a]);
        let x = linear(&mut s, x);
        for _ in 0..super::LONGEST {
            a = s.push("Mul", &[a, x]);
        }
        let step = s.cast(a);
        let last = s.push("Mul", &[a, step]);
        let last = s.cast(last);
        let y = s.push("Add", &[step, last]);
        let y = linear(&mut s, y);
        let names = s.recompose(y);
        let count = |name| names.iter().filter(|n| **n == name).count();
        assert_eq!((count("Widen"), count("Restore")), (1, 2));
        let square = s.graph.nodes.iter().rposition(|n| n.op.name() == "Mul").unwrap();
        assert_eq!(s.graph.nodes[square].inputs[0], s.graph.nodes[square].inputs[1]);
    }

    #[test]
    fn positions_that_are_counted_by_an_embeddings_length_are_nothing() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8, 8]);
        let q = linear(&mut s, x);
        let length = s.push("Shape", &[q]);
        let cos = s.push("ConstantOfShape", &[length]);
        let cos = s.push("Cos", &[cos]);
        let cos = s.cast(cos);
        let q = s.push("Mul", &[q, cos]);
        let p = s.push("Softmax", &[q]);
        let p = s.cast(p);
        let y = s.push("MatMul", &[p, x]);
        assert!(!s.recompose(y).contains(&"Widen"));
    }

    #[test]
    fn a_cast_before_a_layer_or_of_positions_is_nothing() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8]);
        let y = linear(&mut s, x);
        let y = s.cast(y);
        let y = s.push("Sigmoid", &[y]);
        let y = linear(&mut s, y);
        let frequencies = s.cast(x);
        let frequencies = s.push("Exp", &[frequencies]);
        let frequencies = s.cast(frequencies);
        let y = s.push("Mul", &[y, frequencies]);
        assert_eq!(s.recompose(y), ["Linear", "Sigmoid", "Linear", "Exp", "Mul"]);
    }
}
