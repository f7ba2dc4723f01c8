//! Attention (ONNX 23, 24, 25) and ai.onnx.preview.FlexAttention; PyTorch's `scaled_dot_product_attention`, Keras
//! `MultiHeadAttention`, `GroupedQueryAttention`.
//!
//! Which kernel runs and what it keeps is in `sdpa`. On three axes the heads are split and joined by views. A cache is
//! joined to new keys and values by `cat`.

use super::calls::Traced;
use super::sdpa::{Sdpa, attention};
use crate::{Attributes, Call, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Shape};
use std::sync::Arc;

/// Queries `[B, H, S, D]` or `[B, S, H*D]` against keys and values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attention {
    /// Whether it is the preview operator whose bodies rewrite scores; they change no shape.
    pub flex: bool,
    /// How many query heads, where the inputs have three axes.
    pub heads: Option<u64>,
    /// How many key and value heads, where the inputs have three axes.
    pub kv_heads: Option<u64>,
    /// Whether a query sees no later key.
    pub causal: bool,
    /// Whether a query sees near keys only.
    pub window: bool,
    /// Whether the scores are bounded by a tanh.
    pub softcap: bool,
    /// What scores are multiplied by, where it is not one over the root of the head's size, and what bounds them.
    pub factors: [Option<f64>; 2],
    /// Whether weights are dropped while the model trains; no file says so, the module it was exported from does.
    pub dropout: bool,
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec { domain: "", name: "Attention", since: &[23, 24, 25], build: |a, _| build(a) },
    OpSpec {
        domain: "ai.onnx.preview",
        name: "FlexAttention",
        since: &[1],
        build: |_, _| Ok(Arc::new(Attention { flex: true, ..Attention::default() })),
    },
];

fn build(a: &mut Attributes) -> Result<Arc<dyn Op>, OpError> {
    let count = |name| -> Result<Option<u64>, OpError> {
        let Some(n) = a.int(name)? else { return Ok(None) };
        let n = u64::try_from(n).ok().filter(|n| *n > 0);
        n.map(Some).ok_or_else(|| OpError::attribute(name, "a positive number", "another"))
    };
    let window = |name| Ok::<_, OpError>(a.int(name)?.is_some_and(|n| n >= 0));
    Ok(Arc::new(Attention {
        flex: false,
        heads: count("q_num_heads")?,
        kv_heads: count("kv_num_heads")?,
        causal: a.flag("is_causal")?,
        window: window("left_window_size")? || window("right_window_size")?,
        softcap: a.float("softcap")?.is_some_and(|cap| cap != 0.0),
        factors: [a.float("scale")?, a.float("softcap")?.filter(|cap| *cap != 0.0)],
        dropout: false,
    }))
}

/// Batch, heads, rows and head size of an input.
struct Heads([Dim; 4]);

impl Attention {
    /// The heads of input `i` as `[batch, heads, rows, head size]`.
    fn heads(&self, cx: &Infer<'_>, i: usize) -> Result<Option<Heads>, OpError> {
        let Some(shape) = cx.shape(i) else { return Ok(None) };
        let heads = if i == 0 { self.heads } else { self.kv_heads.or(self.heads) };
        match (shape.dims(), heads) {
            ([b, h, s, d], _) => Ok(Some(Heads([b.clone(), h.clone(), s.clone(), d.clone()]))),
            ([b, s, width], Some(heads)) => {
                let head = width.div_exact(&Dim::Known(heads));
                let head = match (head, width.known()) {
                    (Some(head), _) => head,
                    (None, None) => cx.fresh_dim(&format!("head{i}"), None),
                    (None, Some(width)) => {
                        return Err(OpError::input(
                            i,
                            format!("{heads} equal heads"),
                            format!("{width} features"),
                        ));
                    }
                };
                Ok(Some(Heads([b.clone(), Dim::Known(heads), s.clone(), head])))
            }
            ([_, _, _], None) => Err(OpError::missing_attribute("q_num_heads")),
            _ => Err(OpError::input(i, "three or four axes", format!("shape {shape}"))),
        }
    }
}

impl Op for Attention {
    fn name(&self) -> &str {
        if self.flex { "ai.onnx.preview.FlexAttention" } else { "Attention" }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        for i in 0..3 {
            cx.require(i)?;
        }
        let (q, k, v) = (self.heads(cx, 0)?, self.heads(cx, 1)?, self.heads(cx, 2)?);
        let (dtype, kv_dtypes) = (cx.dtype(0), [cx.dtype(1), cx.dtype(2)]);
        let (Some(Heads(q)), Some(Heads(k)), Some(Heads(v))) = (q, k, v) else {
            cx.set(0, dtype, None);
            cx.set(1, kv_dtypes[0], None);
            cx.set(2, kv_dtypes[1], None);
            cx.set(3, dtype, None);
            return Ok(());
        };
        let past = |i: usize| cx.shape(i).and_then(|s| s.dims().get(2)).cloned();
        let total = |rows: &Dim, i: usize| match past(i) {
            Some(past) => past.add(rows).ok_or_else(|| OpError::overflow("the cache")),
            None if cx.has(i) => Ok(cx.fresh_dim("total", None)),
            None => Ok(rows.clone()),
        };
        let (keys, values) = (total(&k[2], 4)?, total(&v[2], 5)?);
        let shape = |dims: [&Dim; 4]| Some(dims.into_iter().cloned().collect::<Shape>());
        let y = if cx.shape(0).is_some_and(|s| s.rank() == 3) {
            let width = q[1].mul(&v[3]).ok_or_else(|| OpError::overflow("the heads"))?;
            Some([q[0].clone(), q[2].clone(), width].into_iter().collect())
        } else {
            shape([&q[0], &q[1], &q[2], &v[3]])
        };
        cx.set(0, dtype, y);
        cx.set(1, kv_dtypes[0], shape([&k[0], &k[1], &keys, &k[3]]));
        cx.set(2, kv_dtypes[1], shape([&v[0], &v[1], &values, &v[3]]));
        cx.set(3, dtype, shape([&q[0], &q[1], &q[2], &keys]));
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let [q, mut k, mut v] = [0, 1, 2].map(|i| {
            let heads = if i == 0 { self.heads } else { self.kv_heads.or(self.heads) };
            by_rows(l, i, heads)
        });
        if self.flex {
            // Compiled from a template: no weights are made, whatever the bodies do.
            if let Some(y) = attention(l, [&q, &k, &v], l.dtype(0), &Sdpa::default()) {
                y.transpose(l, 1, 2).bind(l, 0);
            }
            return;
        }
        for (slot, past, present) in [(&mut k, 4, 1), (&mut v, 5, 2)] {
            if let Some(past) = Traced::optional(l, past) {
                let past = past.transpose(l, 1, 2);
                *slot = join_rows(l, &past, slot);
            }
            if l.wants(present) {
                slot.transpose(l, 1, 2).bind(l, present);
            }
        }
        let mut options = Sdpa {
            mask: Traced::optional(l, 3),
            mask_dtype: l.state(3).map(|s| s.dtype),
            causal: self.causal,
            dropout: self.dropout,
            composed: self.softcap || l.wants(3),
            capped: self.softcap,
            ..Sdpa::default()
        };
        if self.window && options.mask.is_none() {
            let shape = [q.shape[1], k.shape[1]];
            let mask = Call::new("where").output(&shape, OutDtype::Is(crate::DType::Bool), Place::New);
            options.mask = Some(Traced::of(l, mask, &shape, &[]));
            options.mask_dtype = Some(crate::DType::Bool);
        }
        let scores = [q.shape[0], q.shape[2], q.shape[1], k.shape[1]];
        let Some(y) = attention(l, [&q, &k, &v], l.dtype(0), &options) else { return };
        let y = if l.out_shape(0).len() == 4 { y.transpose(l, 1, 2) } else { y };
        y.bind(l, 0);
        if l.wants(3) {
            let call = Call::new("clone").output(&scores, OutDtype::Is(l.out_dtype(3)), Place::New);
            let scores = l.call(call);
            l.bind(3, scores);
        }
    }
}

/// Input `i` as `[batch, rows, heads, head size]`: its three axes split, or its four reordered; a view either way.
fn by_rows(l: &mut Lowering<'_>, i: usize, heads: Option<u64>) -> Traced {
    let x = Traced::input(l, i);
    match (x.shape[..].to_vec().as_slice(), heads) {
        ([b, s, width], Some(heads)) => x.reshape(l, &[*b, *s, heads, width.checked_div(heads).unwrap_or(0)]),
        ([_, _, _, _], _) => x.transpose(l, 1, 2),
        _ => Traced { shape: [0; 4].into(), ..x },
    }
}

/// Two values `[B, S, H, D]` joined along the rows: `cat`.
pub(super) fn join_rows(l: &mut Lowering<'_>, past: &Traced, new: &Traced) -> Traced {
    let mut shape = new.shape.clone();
    let start = past.shape.get(1).copied().unwrap_or(0);
    if let Some(rows) = shape.get_mut(1) {
        *rows = rows.saturating_add(start);
    }
    let call = Call::new("cat").input(past.operand, Grad::Narrow).input(new.operand, Grad::Narrow);
    Traced::of(l, call.output(&shape, OutDtype::Promoted, Place::New), &shape, &[past, new])
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, In, float, symbolic};
    use super::*;
    use crate::Attribute;

    fn heads(q: i64, kv: i64) -> Attributes {
        Attributes::from([("q_num_heads", Attribute::Int(q)), ("kv_num_heads", Attribute::Int(kv))])
    }

    #[test]
    fn heads_are_split_and_joined_and_the_batch_is_carried() {
        let q = symbolic(&["batch", "seq", "768"]);
        let k = symbolic(&["batch", "seq", "256"]);
        let out = testing::run("Attention", 23, heads(12, 4), &[q, k.clone(), k], 2).unwrap();
        let shapes: Vec<_> = out.iter().map(|(ty, _)| ty.shape().unwrap().to_string()).collect();
        assert_eq!(shapes, ["batchxseqx768", "batchx4xseqx64"]);
        let error = testing::shape(
            "Attention",
            23,
            heads(5, 5),
            &[float(&[2, 4, 768]), float(&[2, 4, 5]), float(&[2, 4, 5])],
        );
        assert!(error.unwrap_err().contains("5 equal heads"));
    }

    #[test]
    fn a_cache_grows_by_the_new_rows() {
        let (new, past) = (float(&[2, 3, 4, 8]), float(&[2, 3, 12, 8]));
        let inputs = [new.clone(), new.clone(), new, In::Absent, past.clone(), past];
        let out = testing::run("Attention", 23, Attributes::default(), &inputs, 4).unwrap();
        assert_eq!(out[1].0.shape().unwrap().to_string(), "2x3x16x8");
        assert_eq!(out[3].0.shape().unwrap().to_string(), "2x3x4x16");
    }

    #[test]
    fn joining_the_heads_again_is_a_view() {
        let x = float(&[2, 50, 96]);
        let calls = testing::calls("Attention", 23, heads(3, 3), &[x.clone(), x.clone(), x], 1);
        let names: Vec<_> = calls.iter().map(|c| c.function).collect();
        let kernel = "_scaled_dot_product_efficient_attention";
        assert_eq!(names, ["reshape", "reshape", "reshape", kernel, "reshape"]);
    }
}
