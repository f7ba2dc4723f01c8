//! EmbeddingBag: sums, means or maxima of groups of rows of a table. Made by recomposition only.
//!
//! `torch.embedding_bag` gathers no rows: its kernel adds them up where they are read. It writes down the group of each index and
//! the length of each group, and for a maximum the row that each number came from. Autograd keeps those, the indices and
//! where groups begin; the gradient is as large as the table (derivatives.yaml: `_embedding_bag`;
//! aten/src/ATen/native/cuda/EmbeddingBag.cu, `_embedding_bag_cuda`, 2.15).

use super::calls::Traced;
use crate::{Call, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved, Shape};

/// Inputs: the table, the indices in a row, where each group begins, and the weight of each index where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddingBag {
    /// Whether groups give their maximum and not a sum.
    pub maximum: bool,
    /// Whether where the last group ends is listed as a further beginning (`include_last_offset`).
    pub lists_end: bool,
}

/// No file holds it.
pub const SPECS: &[OpSpec] = &[];

impl Op for EmbeddingBag {
    fn name(&self) -> &str {
        "EmbeddingBag"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let dtype = cx.dtype(0);
        let (Some(table), Some(offsets)) = (cx.shape(0), cx.shape(2)) else {
            cx.set(0, dtype, None);
            return Ok(());
        };
        let (2, 1) = (table.rank(), offsets.rank()) else {
            let found = format!("shapes {table} and {offsets}");
            return Err(OpError::mismatch("a matrix and a list of where groups begin", found));
        };
        let groups = if self.lists_end {
            offsets[0].known().map(|n| n.saturating_sub(1).into())
        } else {
            Some(offsets[0].clone())
        };
        let groups = groups.unwrap_or_else(|| cx.fresh_dim("groups", None));
        let columns = table[1].clone();
        cx.set(0, dtype, Some([groups, columns].into_iter().collect::<Shape>()));
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let [table, indices, offsets] = [0, 1, 2].map(|i| Traced::input(l, i));
        let out = l.out_shape(0);
        let mut call = Call::new("_embedding_bag")
            .input(table.operand, Grad::New)
            .input(indices.operand, Grad::None)
            .input(offsets.operand, Grad::None);
        let mut saved = vec![Saved::Input(1), Saved::Input(2), Saved::Output(1), Saved::Output(2)];
        if let Some(weights) = Traced::optional(l, 3) {
            call = call.input(weights.operand, Grad::New);
            saved.extend([Saved::Input(0), Saved::Input(3)]);
        }
        call = call
            .output(out, OutDtype::Like(0), Place::New)
            .output(&indices.shape, OutDtype::Like(1), Place::New)
            .output(&offsets.shape, OutDtype::Like(1), Place::New);
        if self.maximum {
            call = call.output(out, OutDtype::Like(1), Place::New);
            saved.push(Saved::Output(3));
        }
        l.finish(call.saves(saved));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, OutState, TensorState};

    fn call(op: EmbeddingBag, weighted: bool) -> Call {
        let state = |shape, dtype: DType| {
            let is_float = dtype.is_float();
            Some(TensorState { shape, dtype, requires_grad: is_float, is_initializer: is_float })
        };
        let mut inputs =
            vec![state(&[100, 8][..], DType::Float32), state(&[12], DType::Int64), state(&[3], DType::Int64)];
        if weighted {
            inputs.push(state(&[12], DType::Float32));
        }
        let out = [Some(OutState { shape: &[3, 8], dtype: DType::Float32 })];
        let mut l = Lowering::new(&inputs, &out, None, true);
        op.pytorch(&mut l);
        l.into_parts().0.remove(0)
    }

    #[test]
    fn groups_are_kept_and_not_the_rows() {
        let sum = call(EmbeddingBag { maximum: false, lists_end: false }, false);
        let shapes: Vec<&[u64]> = sum.outputs.iter().map(|o| &o.shape[..]).collect();
        assert_eq!(shapes, [&[3, 8][..], &[12], &[3]]);
        assert!(!sum.saved.contains(&Saved::Input(0)));
    }

    #[test]
    fn a_maximum_keeps_where_it_was_and_a_weight_the_table() {
        let maximum = call(EmbeddingBag { maximum: true, lists_end: false }, false);
        assert!(maximum.outputs.len() == 4 && maximum.saved.contains(&Saved::Output(3)));
        let weighted = call(EmbeddingBag { maximum: false, lists_end: false }, true);
        assert!(weighted.saved.contains(&Saved::Input(0)) && weighted.saved.contains(&Saved::Input(3)));
    }
}
