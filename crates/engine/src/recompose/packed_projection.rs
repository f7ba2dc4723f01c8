//! Query, key and value of `nn.MultiheadAttention` that one product made.
//!
//! The module turns the axis of the three to the front and copies the result before it takes them apart
//! (torch/nn/functional.py, `_in_projection_packed`: `unflatten(-1, (3, E)).unsqueeze(0).transpose(0, -2).squeeze(-2)
//! .contiguous()`), so that they share one storage for as long as one of them is kept: the query as well, where the
//! attention's weights are asked for and a scaled copy of it is multiplied. Files do not say `contiguous()`.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::NodeId;
use memfit_graph::ops::transpose::Transpose;
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "packed projection", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let found = || {
        let op = rw.op::<Transpose>(id).filter(|op| !op.copies)?;
        let (x, turned) = (rw.input(id, 0)?, rw.output(id)?);
        let rank = rw.rank(turned)?;
        let swapped = op.permutation(rank).ok()?.iter().enumerate().all(|(at, from)| match at {
            0 => *from + 2 == rank,
            _ if at + 2 == rank => *from == 0,
            _ => *from == at,
        });
        let shape = rw.shape(turned)?;
        let ends = swapped && rank > 3 && shape[0].known() == Some(3) && shape[rank - 2].known() == Some(1);
        let squeezed = rw.sole_reader(turned).filter(|n| ends && rw.is(*n, "Squeeze"))?;
        rw.made_by(x, "Unsqueeze")?;
        let parts = rw.output(squeezed)?;
        let whole = rw.readers(parts).all(|n| rw.is(n, "Gather"));
        whole.then(|| (Transpose { copies: true, ..op.clone() }, x))
    };
    let Some((op, x)) = found() else { return false };
    rw.rewrite(id, Arc::new(op), vec![Some(x)]);
    true
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::ops::transpose::Transpose;
    use memfit_graph::{Attribute, Attributes};

    #[test]
    fn the_three_are_copied_where_they_come_to_the_front() {
        let copies = |joined: &[u64], perm: [i64; 5]| {
            let mut s = Sketch::default();
            let x = s.input("x", joined);
            let front = s.ints(&[0]);
            let x = s.push("Unsqueeze", &[x, front]);
            let perm = Attributes::from([("perm", Attribute::Ints(perm.to_vec()))]);
            let x = s.push_with("Transpose", perm, &[x]);
            let last = s.ints(&[-2]);
            let x = s.push("Squeeze", &[x, last]);
            let first = s.ints(&[0]);
            let y = s.push("Gather", &[x, first]);
            s.recompose(y);
            s.graph.nodes.iter().filter_map(|n| n.op.downcast::<Transpose>()).any(|t| t.copies)
        };
        assert!(copies(&[6, 2, 3, 8], [3, 1, 2, 0, 4]));
        assert!(!copies(&[6, 2, 4, 8], [3, 1, 2, 0, 4]));
    }
}
