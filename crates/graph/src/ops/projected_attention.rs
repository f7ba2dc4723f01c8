//! com.microsoft's Attention, QAttention, PackedAttention and DecoderMaskedSelfAttention: attention with the projection of
//! its input inside.
//!
//! Trained, it is one linear layer, three slices of its result and `scaled_dot_product_attention` (see `sdpa`). The
//! quantised form has no gradient.

use super::attention::join_rows;
use super::calls::Traced;
use super::matmul::linear;
use super::quantize::without_gradient;
use super::sdpa::{Sdpa, attention, padding_mask};
use crate::{Attributes, Dim, Infer, Lowering, Op, OpError, OpSpec, Shape};
use std::sync::Arc;

/// Attention of an input over itself, projected by weights `[in, q + k + v]`.
#[derive(Clone, Debug)]
pub struct ProjectedAttention {
    /// Which of the four.
    pub form: Form,
    /// How many heads.
    pub heads: u64,
    /// Features of queries, keys and values, where they differ.
    pub sizes: Option<[u64; 3]>,
    /// Whether a query sees no later key.
    pub causal: bool,
    /// Whether the cache is one buffer of the full length.
    pub shared_buffer: bool,
}

/// Which of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Form {
    Plain,
    Quantized,
    Packed,
    Decoder,
}

const fn spec(name: &'static str, build: crate::Build) -> OpSpec {
    OpSpec { domain: "com.microsoft", name, since: &[1], build }
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    spec("Attention", |a, _| build(a, Form::Plain)),
    spec("QAttention", |a, _| build(a, Form::Quantized)),
    spec("PackedAttention", |a, _| build(a, Form::Packed)),
    spec("DecoderMaskedSelfAttention", |a, _| build(a, Form::Decoder)),
];

fn build(a: &mut Attributes, form: Form) -> Result<Arc<dyn Op>, OpError> {
    let heads = a.int("num_heads")?.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    let sizes = match a.sizes("qkv_hidden_sizes")?.as_deref() {
        None | Some([]) => None,
        Some([q, k, v]) => Some([*q, *k, *v]),
        Some(other) => {
            return Err(OpError::attribute("qkv_hidden_sizes", "three sizes", format!("{other:?}")));
        }
    };
    Ok(Arc::new(ProjectedAttention {
        form,
        heads: heads.ok_or_else(|| OpError::attribute("num_heads", "a positive number", "none"))?,
        sizes,
        causal: a.flag("unidirectional")?,
        shared_buffer: a.flag("past_present_share_buffer")?,
    }))
}

impl ProjectedAttention {
    /// The position of the cache.
    fn past(&self) -> usize {
        if self.form == Form::Quantized { 8 } else { 4 }
    }

    /// The features of keys and of values.
    fn widths(&self, weights: &Shape) -> Option<(Dim, Dim)> {
        match self.sizes {
            Some([_, k, v]) => Some((k.into(), v.into())),
            None => {
                let third = weights.dims().get(1)?.div_exact(&Dim::Known(3))?;
                Some((third.clone(), third))
            }
        }
    }
}

impl Op for ProjectedAttention {
    fn name(&self) -> &str {
        match self.form {
            Form::Plain => "com.microsoft.Attention",
            Form::Quantized => "com.microsoft.QAttention",
            Form::Packed => "com.microsoft.PackedAttention",
            Form::Decoder => "com.microsoft.DecoderMaskedSelfAttention",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let dtype = if self.form == Form::Quantized { cx.dtype(3) } else { cx.dtype(0) };
        let x = cx.shape_of_rank(0, if self.form == Form::Packed { 2 } else { 3 })?;
        let weights = cx.shape_of_rank(1, 2)?;
        let widths = weights.and_then(|w| self.widths(w));
        let unknown = |cx: &Infer<'_>| cx.fresh_dim("features", None);
        let mut output = None;
        let mut present = None;
        if let Some(x) = x {
            let (keys, values) = widths.unwrap_or_else(|| (unknown(cx), unknown(cx)));
            let mut shape = x.clone();
            if let Some(last) = shape.dims_mut().last_mut() {
                *last = values;
            }
            output = Some(shape);
            if self.form != Form::Packed {
                let head = keys.div_floor(&self.heads.into()).unwrap_or_else(|| unknown(cx));
                let past = cx.shape(self.past()).and_then(|s| s.dims().get(3)).cloned();
                let rows = match past {
                    Some(past) if self.shared_buffer => past,
                    Some(past) => past.add(&x[1]).ok_or_else(|| OpError::overflow("the cache"))?,
                    None => x[1].clone(),
                };
                let dims = [2.into(), x[0].clone(), self.heads.into(), rows, head];
                present = Some(dims.into_iter().collect());
            }
        }
        cx.set(0, dtype, output);
        cx.set(1, dtype, present);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        if self.form == Form::Quantized {
            return without_gradient(l, "quantized");
        }
        let x = Traced::input(l, 0);
        let x = match x.shape[..] {
            [tokens, width] => x.reshape(l, &[1, tokens, width]),
            _ => x,
        };
        let (weights, bias) = (Traced::input(l, 1), Traced::optional(l, 2));
        let projected = linear(l, &x, &weights, bias.as_ref());
        let [batch, rows, width] = projected.shape[..] else { return };
        let sizes = self.sizes.unwrap_or([width / 3; 3]);
        let mut start = 0;
        let mut part = |size: u64| {
            let part = projected.narrow(l, 2, start, size);
            start += size;
            part.reshape(l, &[batch, rows, self.heads, size / self.heads])
        };
        let (q, mut k, mut v) = (part(sizes[0]), part(sizes[1]), part(sizes[2]));
        if let Some(past) = Traced::optional(l, 4).filter(|p| self.form != Form::Packed && p.rank() == 5) {
            for (at, slot) in [(0, &mut k), (1, &mut v)] {
                let one = past.narrow(l, 0, at, 1);
                let shape = one.shape[1..].to_vec();
                let one = one.reshape(l, &shape).transpose(l, 1, 2);
                *slot = join_rows(l, &one, slot);
            }
        }
        if l.wants(1) {
            let shape = l.out_shape(1);
            let call = crate::Call::new("stack")
                .input(k.operand, crate::Grad::New)
                .input(v.operand, crate::Grad::New);
            let present = l.call(call.output(shape, crate::OutDtype::Like(0), crate::Place::New));
            l.bind(1, present);
        }
        let given = |l: &Lowering<'_>, i: usize| Traced::optional(l, i).filter(|m| m.rank() >= 3);
        let mut mask = given(l, 5);
        let mut mask_dtype = None;
        if self.form != Form::Packed && mask.is_none() && l.state(3).is_some() {
            mask = given(l, 3).or_else(|| padding_mask(l, &q, &k));
            mask_dtype = Some(crate::DType::Bool);
        }
        let options = Sdpa { mask, mask_dtype, causal: self.causal, ..Sdpa::default() };
        if let Some(y) = attention(l, [&q, &k, &v], l.dtype(0), &options) {
            y.bind(l, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Binding, DType, Graph, OutState, Role, TensorState, Type, infer};

    fn op() -> Arc<dyn Op> {
        SPECS[0].build(Attributes::from([("num_heads", Attribute::Int(12))]), 1).unwrap()
    }

    #[test]
    fn a_third_of_the_projection_is_the_result() {
        let mut g = Graph::default();
        let mut add = |name: &str, dims: &[u64]| {
            g.add_tensor(name, Type::tensor(DType::Float32, Shape::from(dims)), Role::Input)
        };
        let ids = [add("x", &[2, 128, 768]), add("w", &[768, 2304]), add("b", &[2304])];
        g.inputs = ids.to_vec();
        let outs = ["y", "present"].map(|n| g.add_tensor(n, Type::Unknown, Role::Intermediate));
        g.add_node("attention", op(), ids.map(Some).to_vec(), outs.map(Some).to_vec());
        let inferred = infer(&g, &Binding::default()).unwrap();
        assert_eq!(inferred.shape(outs[0]), Some(&Shape::from([2, 128, 768])));
        assert_eq!(inferred.shape(outs[1]), Some(&Shape::from([2, 2, 12, 128, 64])));
    }

    #[test]
    fn it_is_a_linear_layer_and_a_fused_kernel() {
        let state = |shape| {
            Some(TensorState { shape, dtype: DType::Float32, requires_grad: true, is_initializer: false })
        };
        let inputs = [state(&[2, 128, 768][..]), state(&[768, 2304]), state(&[2304])];
        let outputs = [Some(OutState { shape: &[2, 128, 768], dtype: DType::Float32 })];
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        op().pytorch(&mut l);
        let calls = l.into_parts().0;
        let kept: Vec<_> = calls.iter().filter(|c| !c.saved.is_empty()).map(|c| c.function).collect();
        assert_eq!(kept, ["addmm", "_scaled_dot_product_efficient_attention"]);
    }
}
