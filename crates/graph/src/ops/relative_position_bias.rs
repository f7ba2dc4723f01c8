//! com.microsoft's RelativePositionBias and GatedRelativePositionBias.
//!
//! The first is an embedding of bucketed distances, transposed to one matrix a head: the indices are kept
//! (derivatives.yaml: `embedding`). The second multiplies such a bias by a gate made from the queries: a linear layer over
//! each head, sums, two sigmoids and products (transformers' WavLM attention).

use super::calls::Traced;
use super::matmul::linear;
use crate::{Call, DType, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved, Shape};
use std::sync::Arc;

/// A bias for each pair of positions and each head, read from a table.
#[derive(Clone, Copy, Debug)]
pub struct RelativePositionBias;

/// The same, multiplied by a gate for each query.
#[derive(Clone, Copy, Debug)]
pub struct GatedRelativePositionBias {
    /// How many heads.
    pub heads: u64,
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "com.microsoft",
        name: "RelativePositionBias",
        since: &[1],
        build: |_, _| Ok(Arc::new(RelativePositionBias)),
    },
    OpSpec {
        domain: "com.microsoft",
        name: "GatedRelativePositionBias",
        since: &[1],
        build: |a, _| {
            Ok(Arc::new(GatedRelativePositionBias { heads: super::calls::positive(a, "num_heads", 1)? }))
        },
    },
];

impl Op for RelativePositionBias {
    fn name(&self) -> &str {
        "com.microsoft.RelativePositionBias"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let table = cx.shape_of_rank(0, 2)?;
        let length = |i: usize| {
            let told = cx.value(i).and_then(|v| v.single()?.as_dim());
            told.unwrap_or_else(|| cx.fresh_dim(&format!("length{i}"), None))
        };
        let shape = table.map(|t| [Dim::Known(1), t[1].clone(), length(1), length(2)].into_iter().collect());
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let table = Traced::input(l, 0);
        let (heads, pairs) = match *l.out_shape(0) {
            [_, heads, rows, columns] => (heads, [rows, columns]),
            _ => return,
        };
        let buckets = Call::new("arange").output(&pairs, OutDtype::Is(DType::Int64), Place::New);
        let buckets = Traced::of(l, buckets, &pairs, &[]);
        let shape = [pairs[0], pairs[1], heads];
        let call = Call::new("embedding")
            .input(table.operand, Grad::New)
            .input(buckets.operand, Grad::None)
            .saves([Saved::Input(1)]);
        let bias = Traced::of(l, call.output(&shape, OutDtype::Like(0), Place::New), &shape, &[&table]);
        bias.permute(l, &[2, 0, 1]).bind(l, 0);
    }
}

impl Op for GatedRelativePositionBias {
    fn name(&self) -> &str {
        "com.microsoft.GatedRelativePositionBias"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        for i in 0..6 {
            cx.require(i)?;
        }
        // Packed tokens say their batch and length by the offsets of each token.
        let leading = if cx.has(6) { cx.shape_of_rank(6, 2)? } else { cx.shape_of_rank(0, 3)? };
        let shape: Option<Shape> = leading
            .map(|s| [s[0].clone(), self.heads.into(), s[1].clone(), s[1].clone()].into_iter().collect());
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let [batch, heads, rows, _] = *l.out_shape(0) else { return };
        let (query, bias) = (Traced::input(l, 0), Traced::input(l, 1));
        let shape = query.shape.clone();
        let query = query.add(l, &bias, &shape);
        let width = query.shape.last().map_or(0, |w| w / heads.max(1));
        let query = query.reshape(l, &[batch, rows, heads, width]).transpose(l, 1, 2);
        let (weight, bias) = (Traced::input(l, 3), Traced::input(l, 4));
        let gates = linear(l, &query, &weight, Some(&bias));
        let half = gates.shape.last().map_or(0, |w| w / 2);
        let halves = gates.reshape(l, &[batch, heads, rows, 2, half]);
        let one = [batch, heads, rows, 2];
        let sum = Call::new("sum").input(halves.operand, Grad::Expand);
        let sum = Traced::of(l, sum.output(&one, OutDtype::Like(0), Place::New), &one, &[&halves]);
        let gates = sum.pointwise(l, "sigmoid", Saved::Output(0));
        let one = [batch, heads, rows, 1];
        let (update, reset) = (gates.narrow(l, 3, 0, 1), gates.narrow(l, 3, 1, 1));
        let scale = reset.mul(l, &Traced::input(l, 5), &one).scale(l, "sub");
        let gate = update.mul(l, &scale, &one).scale(l, "add");
        gate.mul(l, &Traced::input(l, 2), l.out_shape(0)).bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OutState, TensorState};

    #[test]
    fn the_bias_is_a_view_of_an_embedding() {
        let table =
            TensorState { shape: &[32, 8], dtype: DType::Float32, requires_grad: true, is_initializer: true };
        let (inputs, outputs) =
            ([Some(table)], [Some(OutState { shape: &[1, 8, 16, 16], dtype: DType::Float32 })]);
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        RelativePositionBias.pytorch(&mut l);
        let calls = l.into_parts().0;
        let names: Vec<_> = calls.iter().map(|c| c.function).collect();
        assert_eq!(names, ["arange", "embedding", "permute", "reshape"]);
        assert_eq!(calls[1].saved[..], [Saved::Input(1)]);
    }
}
