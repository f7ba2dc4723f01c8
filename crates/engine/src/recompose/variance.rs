//! `Tensor.var` and `Tensor.std`, which exporters write as ReduceMean, Sub, Mul, ReduceMean, and Mul, Div for the unbiased one.
//!
//! torch/onnx, symbolic_helper.py, `_var_mean_helper`; onnxscript, `aten_var_correction`. Both square by a product of the
//! difference with itself, which nothing else reads. Model code that composes a variance has a name for the difference and
//! reads it again, or writes `pow(2)`, and runs in pieces.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::reduce::{Reduce, ReduceKind};
use memfit_graph::{NodeId, TensorId};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "variance", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let Some((x, op)) = biased(rw, id) else { return false };
    let sample = unbiased(rw, id);
    let end = sample.unwrap_or(id);
    let root = rw.output(end).and_then(|t| rw.sole_reader(t)).filter(|n| rw.is(*n, "Sqrt"));
    let kind = if root.is_some() { ReduceKind::Std } else { ReduceKind::Var };
    rw.rewrite(
        root.unwrap_or(end),
        Arc::new(Reduce { kind, unbiased: sample.is_some(), ..op }),
        vec![Some(x)],
    );
    true
}

/// `mean((x - mean(x))²)` over axes that are known: gives x and the outer mean, its axes listed.
fn biased(rw: &Rewriter<'_>, id: NodeId) -> Option<(TensorId, Reduce)> {
    let outer = listed(rw, id)?;
    let square = rw.made_for_one(rw.input(id, 0)?, "Mul")?;
    let centred = rw.input(square, 0).filter(|t| rw.input(square, 1) == Some(*t))?;
    let sub = rw.made_by(centred, "Sub").filter(|_| rw.use_count(centred) == 2)?;
    let (x, mean) = (rw.input(sub, 0)?, rw.made_for_one(rw.input(sub, 1)?, "ReduceMean")?);
    let same = rw.input(mean, 0) == Some(x) && listed(rw, mean)?.axes.listed == outer.axes.listed;
    same.then_some((x, outer))
}

/// A ReduceMean, with its axes as a list.
fn listed(rw: &Rewriter<'_>, id: NodeId) -> Option<Reduce> {
    let mut op = rw.op::<Reduce>(id).filter(|op| op.kind == ReduceKind::Mean)?.clone();
    if let (None, Some(axes)) = (&op.axes.listed, rw.input(id, 1)) {
        op.axes.listed = Some(rw.value(axes)?.ints()?);
    }
    op.axes.listed.get_or_insert_default();
    Some(op)
}

/// The quotient that follows a biased variance: `variance * n / (n - 1)`.
fn unbiased(rw: &Rewriter<'_>, biased: NodeId) -> Option<NodeId> {
    let mul = rw.output(biased).and_then(|t| rw.sole_reader(t)).filter(|n| rw.is(*n, "Mul"))?;
    let div = rw.output(mul).and_then(|t| rw.sole_reader(t)).filter(|n| rw.is(*n, "Div"))?;
    let is_count = |t: TensorId| rw.shape(t).is_some_and(|s| s.dims().iter().all(|d| d.known() == Some(1)));
    let count = rw.other(mul, rw.output(biased)?).filter(|t| is_count(*t))?;
    let rest = rw.input(div, 1).filter(|t| is_count(*t) && rw.input(div, 0) == rw.output(mul))?;
    // Both are constants, or the second follows from the first.
    let follows = rw.made_by(rest, "Sub").and_then(|n| rw.input(n, 0)) == Some(count);
    let less = || Some(rw.scalar(count)? - rw.scalar(rest)? == 1.0);
    (follows || less() == Some(true)).then_some(div)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recompose::testing::Sketch;

    /// What is left of `x.var(1)`, whose difference `again` reads too, and whether one element less is counted.
    fn left(unbiased: bool, root: bool, again: bool) -> (Vec<String>, bool) {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8, 4]);
        let axes = s.ints(&[1]);
        let mean = s.push("ReduceMean", &[x, axes]);
        let centred = s.push("Sub", &[x, mean]);
        let square = s.push("Mul", &[centred, centred]);
        let mut y = s.push("ReduceMean", &[square, axes]);
        if unbiased {
            let (n, rest) = (s.scalar(8.0), s.scalar(7.0));
            y = s.push("Mul", &[y, n]);
            y = s.push("Div", &[y, rest]);
        }
        if root {
            y = s.push("Sqrt", &[y]);
        }
        if again {
            y = s.push("Add", &[centred, y]);
        }
        let y = s.push("Relu", &[y]);
        let left = s.recompose(y).into_iter().map(str::to_owned).collect();
        let ops = s.graph.nodes.iter().filter_map(|node| node.op.downcast::<Reduce>());
        (left, ops.filter(|op| op.kind != ReduceKind::Mean).any(|op| op.unbiased))
    }

    #[test]
    fn a_variance_and_its_root_are_one_kernel() {
        for (unbiased, root, name) in
            [(false, false, "ReduceVar"), (true, false, "ReduceVar"), (true, true, "ReduceStd")]
        {
            assert_eq!(left(unbiased, root, false), (vec![name.to_owned(), "Relu".to_owned()], unbiased));
        }
    }

    #[test]
    fn a_difference_that_model_code_reads_again_stays() {
        assert!(!left(false, true, true).0.iter().any(|op| op.starts_with("ReduceS") || op == "ReduceVar"));
    }
}
