//! RMS norm that a model composes in Python.
//!
//! Pow(2), ReduceMean, Add, Sqrt, then Div or Reciprocal (the exporters' `rsqrt`), and a Mul with the input. The framework
//! runs these pieces, so nothing is saved by joining them, except what a float32 export hides: the statistics are
//! computed in float32 whatever the model's precision. A weight multiplies the result after it is cast back (Llama, T5), one plus
//! a weight before (Gemma).

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::composed_rms_norm::ComposedRmsNorm;
use memfit_graph::{NodeId, TensorId};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "composed RMS norm", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    if !rw.is(id, "Mul") {
        return false;
    }
    let Some((squared, x)) = rw.operands(id, |t| squared(rw, t)) else { return false };
    if squared != x {
        return false;
    }
    let weight = |n: NodeId| {
        let other = rw.is(n, "Mul").then(|| rw.other(n, rw.output(id)?)).flatten()?;
        let add = rw.made_for_one(other, "Add")?;
        rw.operands(add, |t| rw.is_stored(t).then_some(())).map(|_| (n, other))
    };
    match rw.output(id).and_then(|y| rw.sole_reader(y)).and_then(weight) {
        Some((product, weight)) => {
            rw.rewrite(product, Arc::new(ComposedRmsNorm), vec![Some(x), Some(weight)])
        }
        None => rw.rewrite(id, Arc::new(ComposedRmsNorm), vec![Some(x)]),
    }
    true
}

/// What `t` is the reciprocal root mean square of.
fn squared(rw: &Rewriter<'_>, t: TensorId) -> Option<TensorId> {
    let root = match rw.made_for_one(t, "Reciprocal") {
        Some(reciprocal) => rw.input(reciprocal, 0)?,
        None => {
            let div = rw.made_for_one(t, "Div")?;
            if !rw.is_scalar(rw.input(div, 0)?, 1.0) {
                return None;
            }
            rw.input(div, 1)?
        }
    };
    let sqrt = rw.made_for_one(root, "Sqrt")?;
    let add = rw.made_for_one(rw.input(sqrt, 0)?, "Add")?;
    let (mean, _) = rw.operands(add, |t| rw.made_for_one(t, "ReduceMean"))?;
    let pow = rw.made_for_one(rw.input(mean, 0)?, "Pow")?;
    rw.is_scalar(rw.input(pow, 1)?, 2.0).then(|| rw.input(pow, 0)).flatten()
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    #[test]
    fn the_pieces_of_llama_and_of_another_square() {
        for (of_input, names) in [(true, &["ComposedRmsNorm", "Mul"][..]), (false, &[])] {
            let mut s = Sketch::default();
            let (x, z) = (s.input("x", &[2, 8]), s.input("z", &[2, 8]));
            let (two, eps, w) = (s.scalar(2.0), s.scalar(1e-6), s.weight("w", &[8]));
            let p = s.push("Pow", &[if of_input { x } else { z }, two]);
            let axes = s.ints(&[-1]);
            let m = s.push("ReduceMean", &[p, axes]);
            let a = s.push("Add", &[m, eps]);
            let r = s.push("Sqrt", &[a]);
            let r = s.push("Reciprocal", &[r]);
            let y = s.push("Mul", &[x, r]);
            let y = s.push("Mul", &[w, y]);
            let found = s.recompose(y);
            assert_eq!(found.contains(&"ComposedRmsNorm"), !names.is_empty(), "{found:?}");
        }
    }
}
