//! `contiguous()`, which copies a tensor whose axes were exchanged and which files do not say.
//!
//! Two places where code calls it by habit:
//!
//! - Query, key and value of `nn.MultiheadAttention` that one product made: the module turns the axis of the three to the
//!   front (torch/nn/functional.py, `_in_projection_packed`: `unflatten(-1, (3, E)).unsqueeze(0).transpose(0, -2).squeeze(-2)
//!   .contiguous()`), and they share one storage for as long as one of them is kept: the query as well, where the
//!   attention's weights are asked for and a scaled copy of it is multiplied.
//! - Tokens that become an image by its rows: `x.reshape(B, H, W, -1).permute(0, 3, 1, 2).contiguous()` (SegFormer, PVT, Twins,
//!   DPT, diffusers' `Transformer2DModel`, TimesNet). Who writes `x.transpose(1, 2).view(B, C, H, W)` needs no copy and makes none.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::transpose::Transpose;
use memfit_graph::{NodeId, TensorId};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "contiguous", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let found = || {
        let op = rw.op::<Transpose>(id).filter(|op| !op.copies)?;
        let (x, turned) = (rw.input(id, 0)?, rw.output(id)?);
        let perm = op.permutation(rw.rank(turned)?).ok()?;
        let copies = is_image(rw, x, &perm) || is_packed(rw, x, turned, &perm) == Some(true);
        copies.then(|| (Transpose { copies, ..op.clone() }, x))
    };
    let Some((op, x)) = found() else { return false };
    rw.rewrite(id, Arc::new(op), vec![Some(x)]);
    true
}

/// Whether `x` is tokens cut into rows.
fn is_image(rw: &Rewriter<'_>, x: TensorId, perm: &[usize]) -> bool {
    let tokens = rw.made_by(x, "Reshape").and_then(|n| rw.input(n, 0));
    perm == [0, 3, 1, 2] && tokens.is_some_and(|t| rw.rank(t) == Some(3))
}

/// Whether the three parts of one product come to the front.
fn is_packed(rw: &Rewriter<'_>, x: TensorId, turned: TensorId, perm: &[usize]) -> Option<bool> {
    let last = perm.len().checked_sub(2)?;
    let swapped = perm.iter().enumerate().all(|(at, from)| match at {
        0 => *from == last,
        _ if at == last => *from == 0,
        _ => *from == at,
    });
    let shape = rw.shape(turned)?;
    let ends = swapped && last > 1 && shape[0].known() == Some(3) && shape[last].known() == Some(1);
    let squeezed = rw.sole_reader(turned).filter(|n| ends && rw.is(*n, "Squeeze"))?;
    rw.made_by(x, "Unsqueeze")?;
    let parts = rw.output(squeezed)?;
    Some(rw.readers(parts).all(|n| rw.is(n, "Gather")))
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::ops::transpose::Transpose;
    use memfit_graph::{Attribute, Attributes, TensorId};

    fn transpose(s: &mut Sketch, x: TensorId, perm: &[i64]) -> TensorId {
        s.push_with("Transpose", Attributes::from([("perm", Attribute::Ints(perm.to_vec()))]), &[x])
    }

    fn copies(s: &mut Sketch, y: TensorId) -> bool {
        s.recompose(y);
        s.graph.nodes.iter().filter_map(|n| n.op.downcast::<Transpose>()).any(|t| t.copies)
    }

    #[test]
    fn the_three_are_copied_where_they_come_to_the_front() {
        for (parts, expected) in [(3, true), (4, false)] {
            let mut s = Sketch::default();
            let x = s.input("x", &[6, 2, parts, 8]);
            let front = s.ints(&[0]);
            let x = s.push("Unsqueeze", &[x, front]);
            let x = transpose(&mut s, x, &[3, 1, 2, 0, 4]);
            let last = s.ints(&[-2]);
            let x = s.push("Squeeze", &[x, last]);
            let first = s.ints(&[0]);
            let y = s.push("Gather", &[x, first]);
            assert_eq!(copies(&mut s, y), expected);
        }
    }

    #[test]
    fn tokens_are_copied_where_their_rows_become_an_image() {
        for (shape, perm, expected) in
            [([2, 4, 4, 8], [0, 3, 1, 2], true), ([2, 4, 4, 8], [0, 2, 1, 3], false)]
        {
            let mut s = Sketch::default();
            let x = s.input("x", &[2, 16, 8]);
            let sizes = s.ints(&shape);
            let x = s.push("Reshape", &[x, sizes]);
            let y = transpose(&mut s, x, &perm);
            assert_eq!(copies(&mut s, y), expected);
        }
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 4, 4, 8]);
        let y = transpose(&mut s, x, &[0, 3, 1, 2]);
        assert!(!copies(&mut s, y));
    }
}
