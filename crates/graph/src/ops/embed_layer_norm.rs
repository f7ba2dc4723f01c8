//! com.microsoft's EmbedLayerNormalization: the sum of two or three embeddings and its layer norm.
//!
//! An embedding keeps its indices (derivatives.yaml: `embedding`), its gradient is of the whole table; the sum keeps
//! nothing, the norm what `layer_norm` says.

use super::calls::Traced;
use super::layer_norm::normalize;
use crate::{Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved, Shape};
use std::sync::Arc;

/// Words, positions and segments of a sequence, embedded and normalized.
#[derive(Clone, Copy, Debug)]
pub struct EmbedLayerNormalization;

/// How it is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "com.microsoft",
    name: "EmbedLayerNormalization",
    since: &[1],
    build: |_, _| Ok(Arc::new(EmbedLayerNormalization)),
}];

impl Op for EmbedLayerNormalization {
    fn name(&self) -> &str {
        "com.microsoft.EmbedLayerNormalization"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(2)?;
        let (ids, words) = (cx.shape_of_rank(0, 2)?, cx.shape_of_rank(2, 2)?);
        let shape: Option<Shape> =
            ids.zip(words).map(|(ids, words)| [&ids[0], &ids[1], &words[1]].into_iter().cloned().collect());
        let dtype = cx.dtype(2);
        cx.set(0, dtype, shape.clone());
        cx.set(1, DType::Int32, ids.map(|ids| [ids[0].clone()].into_iter().collect()));
        cx.set(2, dtype, shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let shape = l.out_shape(0);
        // Tables with the indices that read them; without position ids the positions are counted.
        let tables = [(2, Some(0)), (3, Some(8).filter(|i| l.state(*i).is_some())), (4, Some(1))];
        let mut sum: Option<Traced> = None;
        for (table, ids) in tables {
            let Some(table) = Traced::optional(l, table) else { continue };
            let ids = match ids.map(|i| Traced::optional(l, i)) {
                Some(Some(ids)) => ids,
                Some(None) => continue,
                None => {
                    let rows = [1, shape.get(1).copied().unwrap_or(1)];
                    let call = Call::new("arange").output(&rows, OutDtype::Is(DType::Int64), Place::New);
                    Traced::of(l, call, &rows, &[])
                }
            };
            let out = [&ids.shape[..], &shape[shape.len().saturating_sub(1)..]].concat();
            let call = Call::new("embedding")
                .input(table.operand, Grad::New)
                .input(ids.operand, Grad::None)
                .saves([Saved::Input(1)]);
            let embedded = Traced::of(l, call.output(&out, OutDtype::Like(0), Place::New), &out, &[&table]);
            sum = Some(match sum {
                Some(sum) => sum.add(l, &embedded, shape),
                None => embedded,
            });
        }
        let Some(sum) = sum else { return };
        sum.bind(l, 2);
        let y = normalize(l, &sum, sum.rank().saturating_sub(1), 5, Some(6), false);
        l.bind(0, y);
        if l.wants(1) {
            let call = Call::new("sum").output(l.out_shape(1), OutDtype::Is(DType::Int32), Place::New);
            let lengths = l.call(call);
            l.bind(1, lengths);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OutState, TensorState};

    #[test]
    fn indices_are_kept_and_the_sum_is_normalized() {
        let state = |shape, dtype: DType| {
            Some(TensorState { shape, dtype, requires_grad: dtype.is_float(), is_initializer: false })
        };
        let (ids, f): (&[u64], _) = (&[2, 16], DType::Float32);
        let inputs = [
            state(ids, DType::Int32),
            state(ids, DType::Int32),
            state(&[100, 8], f),
            state(&[64, 8], f),
            state(&[2, 8], f),
            state(&[8], f),
            state(&[8], f),
        ];
        let outputs = [Some(OutState { shape: &[2, 16, 8], dtype: f })];
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        EmbedLayerNormalization.pytorch(&mut l);
        let names: Vec<_> = l.into_parts().0.iter().map(|c| c.function).collect();
        let embeddings = ["embedding", "arange", "embedding", "add", "embedding", "add"];
        assert_eq!(names, [&embeddings[..], &["native_layer_norm"]].concat());
    }
}
