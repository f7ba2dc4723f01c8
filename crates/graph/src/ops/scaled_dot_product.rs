//! ScaledDotProductAttention: `torch.nn.functional.scaled_dot_product_attention` on `[batch, heads, length, size]`, as
//! the framework calls it. Made by recomposition only; `sdpa` says which kernel runs and what it keeps.
//!
//! Values that are not of rank 4 are composed of products and a softmax: no fused kernel takes them
//! (aten/src/ATen/native/transformers/sdp_utils_cpp.h, `check_tensor_shapes`). Neither does one take keys that are
//! broadcast, one head for all queries or one batch, unless the call says that heads are grouped (`enable_gqa`; sdp_utils_cpp.h,
//! `check_batch_size_and_num_heads_dense`).

use super::calls::Traced;
use super::sdpa::{Sdpa, attention};
use crate::kernels::TfLowering;
use crate::{Infer, Lowering, Op, OpError, OpSpec, elements};

/// Attention of queries (input 0) over keys and values; input 3 is an optional mask, boolean or added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScaledDotProductAttention {
    /// Whether the kernel itself hides later keys, without a mask.
    pub is_causal: bool,
    /// Whether probabilities are dropped while the model trains.
    pub dropout: bool,
    /// Whether each head of keys and values is for a group of the queries' heads.
    pub grouped: bool,
}

/// No file holds it.
pub const SPECS: &[OpSpec] = &[];

impl Op for ScaledDotProductAttention {
    fn name(&self) -> &str {
        "ScaledDotProductAttention"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        for i in 0..3 {
            cx.require(i)?;
        }
        let shape = match (cx.shape(0), cx.shape(2)) {
            (Some(q), Some(v)) if q.rank() > 1 && q.rank() == v.rank() => {
                let mut shape = q.clone();
                shape.dims_mut()[q.rank() - 1] = v[v.rank() - 1].clone();
                Some(shape)
            }
            (Some(q), Some(v)) => {
                let expected = "queries and values of one rank above 1";
                return Err(OpError::mismatch(expected, format!("shapes {q} and {v}")));
            }
            _ => None,
        };
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let operands = (l.input(0), l.input(1), l.input(2));
        let mask = (l.has(3) && !l.is_constant(3)).then(|| l.input(3));
        let drops = self.dropout && l.compute.training;
        let y = l.attention(operands, mask, drops);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let rank = l.shape(0).len();
        let mut operand = |i: usize| {
            let t = Traced::input(l, i);
            // All axes before the last two are batches to the composed form.
            let (outer, inner) = t.shape.split_at(rank.saturating_sub(2).min(t.rank()));
            let t =
                if rank == 4 { t.clone() } else { t.reshape(l, &[&[elements(outer), 1], inner].concat()) };
            t.transpose(l, 1, 2)
        };
        let [q, k, v] = [operand(0), operand(1), operand(2)];
        let mask = Traced::optional(l, 3).map(|mask| match mask.shape[..] {
            // A batch of masks lies along the flattened batches.
            [.., rows, columns] if rank != 4 => {
                let batches = elements(&mask.shape) / rows.saturating_mul(columns).max(1);
                let batches = if batches > 1 { q.shape[0] } else { 1 };
                let wide =
                    mask.expand(l, &[&l.shape(0)[..rank.saturating_sub(2)], &[rows, columns]].concat());
                if batches > 1 { wide.reshape(l, &[batches, 1, rows, columns]) } else { mask }
            }
            _ => mask,
        });
        let outer = |t: &Traced| (t.shape[0], if self.grouped { None } else { Some(t.shape[2]) });
        let broadcast = rank == 4 && [&k, &v].iter().any(|t| t.rank() == 4 && outer(t) != outer(&q));
        let options = Sdpa {
            mask,
            mask_dtype: l.state(3).map(|s| s.dtype),
            causal: self.is_causal,
            dropout: self.dropout,
            composed: rank != 4,
            broadcast,
            capped: false,
        };
        match attention(l, [&q, &k, &v], l.dtype(0), &options) {
            Some(out) => out.transpose(l, 1, 2).bind(l, 0),
            None => l.not_modelled(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, OutState, TensorState, View};

    fn kernels(shapes: [[u64; 4]; 3], op: ScaledDotProductAttention) -> Vec<&'static str> {
        let state = |shape| {
            Some(TensorState { shape, dtype: DType::Bfloat16, requires_grad: true, is_initializer: false })
        };
        let inputs = [state(&shapes[0][..]), state(&shapes[1]), state(&shapes[2])];
        let outputs = [Some(OutState { shape: &shapes[0], dtype: DType::Bfloat16 })];
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        op.pytorch(&mut l);
        l.into_parts().0.iter().map(|c| c.function).collect()
    }

    #[test]
    fn broadcast_keys_are_composed_and_grouped_ones_are_not() {
        let (q, one_head, one_batch) = ([2, 6, 10, 8], [2, 1, 10, 8], [1, 6, 10, 8]);
        let fused = |shapes, grouped| {
            let op = ScaledDotProductAttention { grouped, ..ScaledDotProductAttention::default() };
            !kernels(shapes, op).contains(&"_safe_softmax")
        };
        assert!(fused([q; 3], false) && fused([q, one_head, one_head], true));
        assert!(!fused([q, one_head, one_head], false) && !fused([q, one_batch, one_batch], false));
    }

    #[test]
    fn the_result_is_a_view_of_what_the_kernel_wrote() {
        let shape = &[2, 8, 100, 64][..];
        let state = TensorState { shape, dtype: DType::Float32, requires_grad: true, is_initializer: false };
        let inputs = [Some(state); 3];
        let outputs = [Some(OutState { shape, dtype: DType::Float32 })];
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        ScaledDotProductAttention::default().pytorch(&mut l);
        let (calls, bound, modelled) = l.into_parts();
        let kernel = calls.iter().position(|c| !c.saved.is_empty()).unwrap();
        assert_eq!(calls[kernel].outputs[0].shape[..], [2, 100, 8, 64]);
        assert_eq!(calls[kernel].saved.len(), 7);
        let crate::Operand::Result { call, .. } = bound[0].1 else { panic!("no call") };
        assert_eq!(calls[call].outputs[0].place, crate::Place::View(0, View::Permute(vec![0, 2, 1, 3])));
        assert!(modelled);
    }
}
