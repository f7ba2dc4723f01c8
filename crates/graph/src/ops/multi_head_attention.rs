//! com.microsoft's MultiHeadAttention, DecoderMaskedMultiHeadAttention, PackedMultiHeadAttention, GroupQueryAttention and
//! SparseAttention: attention of projected queries, keys and values.
//!
//! Trained, it is `scaled_dot_product_attention` (see `sdpa`) after the bias of the projections, if that was fused in.

use super::attention::join_rows;
use super::calls::Traced;
use super::sdpa::{Sdpa, attention, padding_mask};
use crate::{
    Attributes, Call, DType, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Shape,
};
use std::sync::Arc;

/// Attention of `[batch, rows, heads * size]`, or of packed queries, keys and values.
#[derive(Clone, Debug)]
pub struct MultiHeadAttention {
    /// Which operator.
    pub form: &'static Form,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Whether a query sees no later key.
    pub causal: bool,
    /// Whether the cache is one buffer of the full length.
    pub shared_buffer: bool,
}

/// Where an operator has its inputs.
#[derive(Debug)]
pub struct Form {
    /// The operator's name.
    name: &'static str,
    bias: Option<usize>,
    score_bias: Option<usize>,
    padding: Option<usize>,
    past: Option<usize>,
    /// The input that holds the length of past and present together.
    total: Option<usize>,
    /// Whether queries see no later key unless told otherwise.
    causal: bool,
    /// Whether the tokens of all samples lie in one axis.
    packed_tokens: bool,
}

const NONE: Form = Form {
    name: "",
    bias: None,
    score_bias: None,
    padding: None,
    past: None,
    total: None,
    causal: false,
    packed_tokens: false,
};
static MULTI: Form = Form {
    name: "com.microsoft.MultiHeadAttention",
    bias: Some(3),
    padding: Some(4),
    score_bias: Some(5),
    past: Some(6),
    ..NONE
};
static DECODER: Form = Form {
    name: "com.microsoft.DecoderMaskedMultiHeadAttention",
    padding: Some(3),
    score_bias: Some(4),
    past: Some(5),
    bias: Some(10),
    ..NONE
};
static PACKED: Form = Form {
    name: "com.microsoft.PackedMultiHeadAttention",
    bias: Some(3),
    score_bias: Some(6),
    packed_tokens: true,
    ..NONE
};
static GROUPED: Form = Form {
    name: "com.microsoft.GroupQueryAttention",
    past: Some(3),
    total: Some(6),
    score_bias: Some(10),
    causal: true,
    ..NONE
};
static SPARSE: Form = Form { name: "com.microsoft.SparseAttention", past: Some(3), causal: true, ..NONE };

const fn spec(name: &'static str, build: crate::Build) -> OpSpec {
    OpSpec { domain: "com.microsoft", name, since: &[1], build }
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    spec("MultiHeadAttention", |a, _| build(a, &MULTI)),
    spec("DecoderMaskedMultiHeadAttention", |a, _| build(a, &DECODER)),
    spec("PackedMultiHeadAttention", |a, _| build(a, &PACKED)),
    spec("GroupQueryAttention", |a, _| build(a, &GROUPED)),
    spec("SparseAttention", |a, _| build(a, &SPARSE)),
];

fn build(a: &mut Attributes, form: &'static Form) -> Result<Arc<dyn Op>, OpError> {
    let count =
        |name: &str| Ok::<_, OpError>(a.int(name)?.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0));
    let heads =
        count("num_heads")?.ok_or_else(|| OpError::attribute("num_heads", "a positive number", "none"))?;
    Ok(Arc::new(MultiHeadAttention {
        form,
        heads,
        kv_heads: count("kv_num_heads")?.unwrap_or(heads),
        causal: a.flag("unidirectional")? || (form.causal && a.int("causal")?.unwrap_or(1) != 0),
        shared_buffer: a.flag("past_present_share_buffer")? || form.name == SPARSE.name,
    }))
}

/// What the inputs' shapes say.
struct Sizes {
    /// Query rows' leading dims: batch and rows, or tokens.
    leading: Vec<Dim>,
    /// New rows of keys.
    rows: Dim,
    key: Dim,
    value: Dim,
}

impl MultiHeadAttention {
    fn sizes(&self, cx: &Infer<'_>) -> Result<Option<Sizes>, OpError> {
        let Some(q) = cx.shape(0) else { return Ok(None) };
        let leading = if self.form.packed_tokens { 1 } else { 2 };
        if q.rank() <= leading {
            return Err(OpError::input(0, format!("more than {leading} axes"), format!("shape {q}")));
        }
        let fresh = || cx.fresh_dim("head", None);
        let part = |width: &Dim, parts: u64| width.div_floor(&parts.into()).unwrap_or_else(fresh);
        let dims = q.dims()[..leading].to_vec();
        let rows = dims[leading - 1].clone();
        let last = &q[q.rank() - 1];
        let (k, v) = (cx.shape(1), cx.shape(2));
        Ok(Some(match (k.map(Shape::dims), v.map(Shape::dims)) {
            // Queries, keys and values in one: [.., heads, 3, size] or [.., (heads + 2 * kv_heads) * size].
            (None, _) if !cx.has(1) => {
                let head = if q.rank() == leading + 3 {
                    last.clone()
                } else {
                    part(last, self.heads.saturating_add(self.kv_heads.saturating_mul(2)))
                };
                Sizes { leading: dims, rows, key: head.clone(), value: head }
            }
            // Keys and values in one: [batch, rows, heads, 2, size].
            (Some([_, rows, _, _, size]), _) => {
                Sizes { leading: dims, rows: rows.clone(), key: size.clone(), value: size.clone() }
            }
            // Keys and values of a cross attention's cache: [batch, heads, rows, size].
            (Some([_, _, rows, size]), Some([_, _, _, value])) => {
                Sizes { leading: dims, rows: rows.clone(), key: size.clone(), value: value.clone() }
            }
            (Some(k), v) => {
                let key = part(last, self.heads);
                let value = v.and_then(<[Dim]>::last).map_or(key.clone(), |v| part(v, self.kv_heads));
                let rows = k.get(leading - 1).cloned().unwrap_or(rows);
                Sizes { leading: dims, rows, key, value }
            }
            (None, _) => return Ok(None),
        }))
    }

    /// The rows of past and present together.
    fn total(&self, cx: &Infer<'_>, rows: &Dim) -> Result<Dim, OpError> {
        let past = self.form.past.and_then(|i| cx.shape(i)).and_then(|s| s.dims().get(2));
        let Some(past) = past else { return Ok(rows.clone()) };
        if self.shared_buffer {
            return Ok(past.clone());
        }
        let told = self.form.total.and_then(|i| cx.value(i)).and_then(|v| v.single()?.as_dim());
        match told {
            // A buffer that is longer than what it holds so far is passed through.
            Some(told) => Ok(match (told.known(), past.known()) {
                (Some(told), Some(past)) => told.max(past).into(),
                _ => told,
            }),
            None => past.add(rows).ok_or_else(|| OpError::overflow("the cache")),
        }
    }
}

impl Op for MultiHeadAttention {
    fn name(&self) -> &str {
        self.form.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let dtype = cx.dtype(0);
        let cache = self.form.past.filter(|i| cx.has(*i)).map_or(dtype, |i| cx.dtype(i));
        let Some(sizes) = self.sizes(cx)? else {
            cx.set(0, dtype, None);
            cx.set(1, cache, None);
            cx.set(2, cache, None);
            return Ok(());
        };
        let width = sizes.value.mul(&self.heads.into()).ok_or_else(|| OpError::overflow("the heads"))?;
        cx.set(0, dtype, Some(sizes.leading.iter().cloned().chain([width]).collect()));
        if let [batch, rows] = &sizes.leading[..] {
            let total = self.total(cx, &sizes.rows)?;
            let shape = |dims: [&Dim; 4]| dims.into_iter().cloned().collect::<Shape>();
            let kv: Dim = self.kv_heads.into();
            cx.set(1, cache, Some(shape([batch, &kv, &total, &sizes.key])));
            cx.set(2, cache, Some(shape([batch, &kv, &total, &sizes.value])));
            cx.set(3, dtype, Some(shape([batch, &self.heads.into(), rows, &total])));
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let Some([q, mut k, mut v]) = self.operands(l) else { return l.not_modelled() };
        if let Some(past) = self.form.past {
            for (at, slot) in [(past, &mut k), (past + 1, &mut v)] {
                if let Some(past) = Traced::optional(l, at).filter(|p| p.rank() == 4) {
                    let past = past.transpose(l, 1, 2);
                    *slot = join_rows(l, &past, slot);
                }
            }
        }
        for (j, slot) in [(1, &k), (2, &v)] {
            if l.wants(j) {
                let call = Call::new("clone").input(slot.operand, Grad::Pass);
                let present = l.call(call.output(l.out_shape(j), OutDtype::Like(0), Place::New));
                l.bind(j, present);
            }
        }
        let mut mask = self.form.score_bias.and_then(|i| Traced::optional(l, i));
        let mut mask_dtype = None;
        if mask.is_none() && self.form.padding.is_some_and(|i| l.state(i).is_some()) {
            mask = padding_mask(l, &q, &k);
            mask_dtype = Some(DType::Bool);
        }
        let options = Sdpa { mask, mask_dtype, causal: self.causal, composed: l.wants(3), ..Sdpa::default() };
        if let Some(y) = attention(l, [&q, &k, &v], l.dtype(0), &options) {
            y.bind(l, 0);
        }
        if l.wants(3) {
            let scores = Call::new("clone").output(l.out_shape(3), OutDtype::Is(DType::Float32), Place::New);
            let scores = l.call(scores);
            l.bind(3, scores);
        }
    }
}

impl MultiHeadAttention {
    /// Queries, keys and values as `[batch, rows, heads, size]`.
    fn operands(&self, l: &mut Lowering<'_>) -> Option<[Traced; 3]> {
        let mut q = Traced::input(l, 0);
        if self.form.packed_tokens {
            let shape = [&[1], &q.shape[..]].concat();
            q = q.reshape(l, &shape);
        }
        let keys = Traced::optional(l, 1);
        let [batch, rows] = [*q.shape.first()?, *q.shape.get(1)?];
        let heads = |l: &mut Lowering<'_>, t: &Traced, heads: u64| -> Option<Traced> {
            let (rows, width) = (t.shape.get(1)?, t.shape.get(2)?);
            Some(t.reshape(l, &[batch, *rows, heads, width.checked_div(heads)?]))
        };
        let Some(k) = keys else {
            // One tensor for all three.
            let size = *q.shape.last()?;
            if q.rank() == 5 {
                return Some([0, 1, 2].map(|i| {
                    let part = q.narrow(l, 3, i, 1);
                    part.reshape(l, &[batch, rows, self.heads, size])
                }));
            }
            let size = size.checked_div(self.heads.checked_add(self.kv_heads.checked_mul(2)?)?)?;
            let widths = [self.heads, self.kv_heads, self.kv_heads].map(|h| h.saturating_mul(size));
            let starts = [0, widths[0], widths[0].saturating_add(widths[1])];
            let mut parts = (0..3).map(|i| {
                let part = q.narrow(l, 2, starts[i], widths[i]);
                part.reshape(l, &[batch, rows, widths[i].checked_div(size).unwrap_or(0), size])
            });
            return Some([parts.next()?, parts.next()?, parts.next()?]);
        };
        if let Some(bias) = self.form.bias.and_then(|i| Traced::optional(l, i)) {
            let shape = q.shape.clone();
            let part = bias.narrow(l, 0, 0, *shape.last()?);
            q = q.add(l, &part, &shape);
        }
        let q = heads(l, &q, self.heads)?;
        Some(match (k.rank(), Traced::optional(l, 2)) {
            (5, _) => {
                let size = *k.shape.last()?;
                let [k, v] = [0, 1].map(|i| {
                    let part = k.narrow(l, 3, i, 1);
                    part.reshape(l, &[batch, part.shape[1], self.heads, size])
                });
                [q, k, v]
            }
            (4, Some(v)) => [q, k.transpose(l, 1, 2), v.transpose(l, 1, 2)],
            (_, Some(v)) => {
                let flat = |l: &mut Lowering<'_>, t: Traced| match t.shape[..] {
                    [tokens, width] => t.reshape(l, &[1, tokens, width]),
                    _ => t,
                };
                let (k, v) = (flat(l, k), flat(l, v));
                [q, heads(l, &k, self.kv_heads)?, heads(l, &v, self.kv_heads)?]
            }
            (_, None) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Binding, Graph, Role, Type, infer};

    fn shapes(name: &str, heads: &[(&str, i64)], inputs: &[&[u64]]) -> Vec<String> {
        let attributes =
            Attributes(heads.iter().map(|(k, n)| ((*k).to_owned(), Attribute::Int(*n))).collect());
        let op = SPECS.iter().find(|s| s.name == name).unwrap().build(attributes, 1).unwrap();
        let mut g = Graph::default();
        let ids: Vec<_> = inputs
            .iter()
            .enumerate()
            .map(|(i, dims)| {
                (!dims.is_empty()).then(|| {
                    let ty = Type::tensor(DType::Float32, Shape::from(*dims));
                    g.add_tensor(format!("x{i}"), ty, Role::Input)
                })
            })
            .collect();
        g.inputs = ids.iter().flatten().copied().collect();
        let outs = [0, 1, 2].map(|j| g.add_tensor(format!("y{j}"), Type::Unknown, Role::Intermediate));
        g.add_node("node", op, ids, outs.map(Some).to_vec());
        let inferred = infer(&g, &Binding::default()).unwrap();
        outs.iter().map(|id| inferred.shape(*id).map_or("?".into(), Shape::to_string)).collect()
    }

    #[test]
    fn separate_and_packed_inputs_give_the_same() {
        let heads = [("num_heads", 4)];
        let x: &[u64] = &[2, 10, 32];
        let separate = shapes("MultiHeadAttention", &heads, &[x, &[2, 12, 32], &[2, 12, 64]]);
        assert_eq!(separate, ["2x10x64", "2x4x12x8", "2x4x12x16"]);
        let packed = shapes("MultiHeadAttention", &heads, &[&[2, 10, 4, 3, 8]]);
        assert_eq!(packed, ["2x10x32", "2x4x10x8", "2x4x10x8"]);
        let tokens = shapes("PackedMultiHeadAttention", &heads, &[&[77, 32], &[77, 32], &[77, 32]]);
        assert_eq!(tokens[0], "77x32");
    }

    #[test]
    fn grouped_heads_and_a_cache() {
        let heads = [("num_heads", 8), ("kv_num_heads", 2)];
        let past: &[u64] = &[2, 2, 100, 16];
        let grouped =
            shapes("GroupQueryAttention", &heads, &[&[2, 1, 128], &[2, 1, 32], &[2, 1, 32], past, past]);
        assert_eq!(grouped, ["2x1x128", "2x2x101x16", "2x2x101x16"]);
        let packed = shapes("GroupQueryAttention", &heads, &[&[2, 7, 192]]);
        assert_eq!(packed, ["2x7x128", "2x2x7x16", "2x2x7x16"]);
    }
}
