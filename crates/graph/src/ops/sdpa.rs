<<<<<<< HEAD
//! Scaled dot-product attention: which kernel PyTorch takes on CUDA, and what each one keeps.
//!
//! `at::scaled_dot_product_attention` (aten/src/ATen/native/transformers/attention.cpp, cuda/sdp_utils.cpp) takes flash
//! attention for half types without a mask and heads of at most 256, memory-efficient attention for float32 or a mask
//! where every query head has its own key head, and otherwise composes the result of products and a softmax, in float32
//! throughout. The fused kernels keep queries, keys, values, the output, one float32 number a row (flash `[B, H, S]`,
//! efficient padded to 32 rows) and the random state, never the S×S weights (derivatives.yaml:
//! `_scaled_dot_product_flash_attention`, `_scaled_dot_product_efficient_attention`). They write their output and
//! gradients in the order `[B, S, H, D]`, so that joining the heads is a view. Not counted: scratch inside of a kernel.

use super::calls::Traced;
use super::matmul::matmul_as_is;
use crate::{Autocast, Call, DType, Grad, Lowering, OutDtype, Place, Saved};

/// What an attention has beside queries, keys and values.
#[derive(Clone, Debug, Default)]
pub(super) struct Sdpa {
    /// Added to the scores, or (truth values) where they count.
    pub(super) mask: Option<Traced>,
    /// The mask's dtype.
    pub(super) mask_dtype: Option<DType>,
    /// Whether a query sees no later key.
    pub(super) causal: bool,
    /// Whether weights are dropped.
    pub(super) dropout: bool,
    /// Whether something is asked for that no fused kernel does (a bound on the scores, the scores themselves).
    pub(super) composed: bool,
}

/// The kernels.
=======
//! ScaledDotProductAttention: `torch.nn.functional.scaled_dot_product_attention` on `[batch, heads, length, size]`. Made
//! by recomposition only.
//!
//! PyTorch 2.15 on CUDA (aten/src/ATen/native/transformers/attention.cpp, cuda/sdp_utils.cpp) chooses one of three
//! kernels: flash for half precision without a mask and heads of at most 256, memory-efficient otherwise, and plain
//! math where key and value heads are shared (grouped) in what flash does not take. The two fused ones keep queries,
//! keys, values, the result and one float32 log-sum-exp a row, never the probabilities (derivatives.yaml:
//! `_scaled_dot_product_flash_attention`, `_scaled_dot_product_efficient_attention`); math keeps scaled queries and keys,
//! the probabilities and a dropout mask. A boolean mask becomes a float one in each call. On autocast's
//! lower-precision list.

use super::calls::Traced;
use super::matmul::matmul;
use crate::{
    Autocast, Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved, View,
};

/// Attention of queries over keys and values; input 3 is an optional mask, boolean or added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScaledDotProductAttention {
    /// Whether the kernel itself hides later keys, without a mask.
    pub is_causal: bool,
    /// Whether probabilities are dropped while the model trains.
    pub dropout: bool,
}

/// No file holds it.
pub const SPECS: &[OpSpec] = &[];

/// What PyTorch runs.
>>>>>>> 5cae09d (Recompose linear layers, activations, norms and scaled dot-product attention)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    Flash,
    Efficient,
    Math,
}

<<<<<<< HEAD
/// The result, `[B, S, H, D]`, of attention on values in that order; `dtype` is theirs before autocast.
pub(super) fn attention(
    l: &mut Lowering<'_>,
    [q, k, v]: [&Traced; 3],
    dtype: DType,
    options: &Sdpa,
) -> Option<Traced> {
    let casts = |d: DType| l.autocast.filter(|_| d.is_float() && d != DType::Float64).unwrap_or(d);
    let dtype = casts(dtype);
    let [batch, rows, heads, head] = q.shape[..] else { return None };
    let [_, columns, kv_heads, _] = k.shape[..] else { return None };
    let [_, _, _, value_head] = v.shape[..] else { return None };
    let aligned = |unit: u64| head % unit == 0 && value_head % unit == 0;
    let masked = options.mask.is_some();
    let kernel = match dtype {
        _ if options.composed => Kernel::Math,
        d if d.is_half() && !masked && head <= 256 && head == value_head => Kernel::Flash,
        d if d.is_half() && heads == kv_heads && aligned(8) => Kernel::Efficient,
        DType::Float32 if heads == kv_heads && aligned(4) => Kernel::Efficient,
        _ => Kernel::Math,
    };
    let [q, k, v] = [q, k, v].map(|t| t.autocast(l, Autocast::Lower));
    let scores = [batch, heads, rows, columns];
    let mask = options.mask.as_ref().map(|mask| additive(l, mask, options.mask_dtype, dtype));
    let fused = |l: &mut Lowering<'_>, name, [q, k, v]: [&Traced; 3], bias: Option<&Traced>| {
        let mut call = Call::new(name);
        for input in [q, k, v] {
            call = call.input(input.operand, Grad::New);
        }
        if let Some(bias) = bias {
            call = call.input(bias.operand, Grad::New);
        }
        let saved: Vec<Saved> = (0..call.inputs.len()).map(Saved::Input).collect();
        let head = v.shape.get(3).copied().unwrap_or(1);
        let shape = [batch, rows, heads, head];
        let statistics = if name == EFFICIENT { rows.div_ceil(32).saturating_mul(32) } else { rows };
        let (seed, offset) =
            if name == EFFICIENT { (&[][..], DType::Int64) } else { (&[2][..], DType::Uint64) };
        let call = call
            .output(&shape, OutDtype::Promoted, Place::New)
            .output(&[batch, heads, statistics], OutDtype::Is(DType::Float32), Place::New)
            .output(seed, OutDtype::Is(offset), Place::New)
            .output(&[], OutDtype::Is(offset), Place::New)
            .saves(saved.into_iter().chain((0..4).map(Saved::Output)));
        let inputs: Vec<&Traced> = [q, k, v].into_iter().chain(bias).collect();
        Traced::of(l, call, &shape, &inputs)
    };
    Some(match kernel {
        Kernel::Flash if head % 8 != 0 => {
            let width = head.next_multiple_of(8);
            let padded = [&q, &k, &v].map(|t| pad(l, t, width));
            let y = fused(l, FLASH, [&padded[0], &padded[1], &padded[2]], None);
            y.narrow(l, 3, 0, head)
        }
        Kernel::Flash => fused(l, FLASH, [&q, &k, &v], None),
        Kernel::Efficient => {
            let bias = mask.map(|mask| {
                // The kernel loads eight elements at a time: a row that is no multiple is padded and sliced back.
                let mask = match mask.shape.last() {
                    Some(columns) if columns % 8 != 0 => {
                        pad(l, &mask, (columns / 8 + 1) * 8).narrow(l, mask.rank() - 1, 0, *columns)
                    }
                    _ => mask,
                };
                mask.expand(l, &scores)
            });
            fused(l, EFFICIENT, [&q, &k, &v], bias.as_ref())
        }
        Kernel::Math => math(l, [&q, &k, &v], dtype, mask.as_ref(), options),
    })
}

const FLASH: &str = "_scaled_dot_product_flash_attention";
const EFFICIENT: &str = "_scaled_dot_product_efficient_attention";

/// A mask as a term that is added: truth values become zeros and minus infinities.
fn additive(l: &mut Lowering<'_>, mask: &Traced, dtype: Option<DType>, target: DType) -> Traced {
    if dtype == Some(DType::Bool) {
        let call = Call::new("where").input(mask.operand, Grad::None).scratch(&mask.shape, DType::Bool);
        return Traced::of(l, call.output(&mask.shape, OutDtype::Is(target), Place::New), &mask.shape, &[]);
    }
    mask.autocast(l, Autocast::Lower)
}

/// The last axis padded to `width`.
fn pad(l: &mut Lowering<'_>, x: &Traced, width: u64) -> Traced {
    let mut shape = x.shape.clone();
    if let Some(last) = shape.last_mut() {
        *last = width;
    }
    let call = Call::new("constant_pad_nd").input(x.operand, Grad::New);
    Traced::of(l, call.output(&shape, OutDtype::Like(0), Place::New), &shape, &[x])
}

/// `_scaled_dot_product_attention_math`: half values are cast up and the result down again.
fn math(
    l: &mut Lowering<'_>,
    inputs: [&Traced; 3],
    dtype: DType,
    mask: Option<&Traced>,
    options: &Sdpa,
) -> Traced {
    let cast = |l: &mut Lowering<'_>, x: &Traced, to: DType| {
        let call = Call::new("_to_copy").input(x.operand, Grad::Pointwise);
        Traced::of(l, call.output(&x.shape, OutDtype::Is(to), Place::Pointwise), &x.shape, &[x])
    };
    let [q, k, v] = inputs.map(|x| {
        let x = x.transpose(l, 1, 2);
        if dtype.is_half() { cast(l, &x, DType::Float32) } else { x }
    });
    let q = q.scale(l, "mul");
    let repeats = q.shape[1].checked_div(k.shape[1]).unwrap_or(1);
    let [k, v] = [k, v].map(|x| repeat_heads(l, &x, repeats));
    let keys = k.transpose_last(l).scale(l, "mul");
    let mut scores = matmul_as_is(l, &q, &keys);
    let accumulated = if dtype.is_half() { DType::Float32 } else { dtype };
    let causal = (options.causal && mask.is_none()).then(|| {
        let shape = [scores.shape[2], scores.shape[3]];
        let call = Call::new("where").scratch(&shape, DType::Bool);
        Traced::of(l, call.output(&shape, OutDtype::Is(accumulated), Place::New), &shape, &[])
    });
    if let Some(mask) = causal.as_ref().or(mask) {
        let call = Call::new("add_").input(scores.operand, Grad::Pass).input(mask.operand, Grad::Pass);
        let shape = scores.shape.clone();
        let call = call.output(&shape, OutDtype::Like(0), Place::InPlace(0));
        scores = Traced::of(l, call, &shape, &[&scores, mask]);
    }
    if options.composed {
        scores = scores.pointwise(l, "tanh", Saved::Output(0)).scale(l, "mul");
    }
    let shape = scores.shape.clone();
    let softmax = Call::new("_safe_softmax").input(scores.operand, Grad::New).scratch(&shape, DType::Bool);
    let softmax = softmax.output(&shape, OutDtype::Like(0), Place::New).saves([Saved::Output(0)]);
    let mut weights = Traced::of(l, softmax, &shape, &[&scores]);
    if options.dropout && l.training {
=======
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

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let [q, k, v] = [0, 1, 2].map(|i| Traced::input(l, i));
        let mask = Traced::optional(l, 3).map(|mask| (mask, l.dtype(3) == DType::Bool));
        let dtype = l.lower_dtype(0);
        attention(l, [q, k, v], mask, dtype, *self).bind(l, 0);
    }
}

/// The calls of one attention over values of rank 4; a mask comes with whether it is boolean. `dtype` is that of the
/// queries after autocast.
pub(super) fn attention(
    l: &mut Lowering<'_>,
    qkv: [Traced; 3],
    mask: Option<(Traced, bool)>,
    dtype: DType,
    config: ScaledDotProductAttention,
) -> Traced {
    let qkv = qkv.map(|t| t.autocast(l, Autocast::Lower));
    let mask = mask.map(|(mask, is_bool)| match is_bool {
        true => additive(l, &mask, dtype),
        false => mask.autocast(l, Autocast::Lower),
    });
    let config = ScaledDotProductAttention { dropout: config.dropout && l.training, ..config };
    match kernel(&qkv, mask.is_some(), dtype) {
        Kernel::Flash => flash(l, &qkv),
        Kernel::Efficient => efficient(l, &qkv, mask),
        Kernel::Math => math(l, &qkv, mask, dtype, config),
    }
}

fn kernel([q, k, v]: &[Traced; 3], masked: bool, dtype: DType) -> Kernel {
    let half = matches!(dtype, DType::Float16 | DType::Bfloat16);
    let sizes = [q, v].map(|t| t.shape.last().copied().unwrap_or(1));
    let grouped = q.shape.get(1) != k.shape.get(1);
    let aligned = sizes.iter().all(|d| d % if half { 8 } else { 4 } == 0);
    if q.rank() != 4 || dtype == DType::Float64 {
        Kernel::Math
    } else if half && !masked && sizes[0] <= 256 && sizes[0] == sizes[1] {
        Kernel::Flash
    } else if grouped || !aligned {
        Kernel::Math
    } else {
        Kernel::Efficient
    }
}

/// `convert_boolean_attn_mask`: zero where a key is seen, minus infinity where it is not.
fn additive(l: &mut Lowering<'_>, mask: &Traced, dtype: DType) -> Traced {
    let call = Call::new("where").input(mask.operand, Grad::None);
    Traced::of(l, call.output(&mask.shape, OutDtype::Is(dtype), Place::New), &mask.shape, &[])
}

/// The last axis rounded up to a multiple of 8 by a padded copy.
fn padded(l: &mut Lowering<'_>, t: &Traced) -> Traced {
    let mut shape = t.shape.clone();
    match shape.last_mut() {
        Some(last) if *last % 8 != 0 => *last = last.next_multiple_of(8),
        _ => return t.clone(),
    }
    let call = Call::new("constant_pad_nd").input(t.operand, Grad::New);
    Traced::of(l, call.output(&shape, OutDtype::Like(0), Place::New), &shape, &[t])
}

/// The first `length` elements of the last axis.
fn shortened(l: &mut Lowering<'_>, t: &Traced, length: u64) -> Traced {
    let Some(axis) = t.rank().checked_sub(1) else { return t.clone() };
    let mut shape = t.shape.clone();
    shape[axis] = length;
    let call = Call::new("slice").input(t.operand, Grad::Unview);
    let view = Place::View(0, View::Slice { axis, start: 0, step: 1 });
    Traced::of(l, call.output(&shape, OutDtype::Like(0), view), &shape, &[t])
}

/// `[batch, length, heads, size]`, which is how the fused kernels lay out results and gradients.
fn by_length(l: &mut Lowering<'_>, t: &Traced) -> Traced {
    t.transpose(l, 1, 2)
}

fn flash(l: &mut Lowering<'_>, qkv: &[Traced; 3]) -> Traced {
    let size = qkv[0].shape.last().copied().unwrap_or(1);
    let [q, k, v] = [0, 1, 2].map(|i| {
        let t = padded(l, &qkv[i]);
        by_length(l, &t)
    });
    let rows = [q.shape[0], q.shape[2], q.shape[1]];
    let call = Call::new("_scaled_dot_product_flash_attention")
        .input(q.operand, Grad::New)
        .input(k.operand, Grad::New)
        .input(v.operand, Grad::New)
        .output(&q.shape, OutDtype::Like(0), Place::New)
        .output(&rows, OutDtype::Is(DType::Float32), Place::New)
        .output(&[2], OutDtype::Is(DType::Uint64), Place::New)
        .output(&[], OutDtype::Is(DType::Uint64), Place::New)
        .saves((0..3).map(Saved::Input))
        .saves((0..4).map(Saved::Output));
    let out = Traced::of(l, call, &q.shape.clone(), &[&q, &k, &v]);
    let out = if out.shape[3] == size { out } else { shortened(l, &out, size) };
    by_length(l, &out)
}

fn efficient(l: &mut Lowering<'_>, qkv: &[Traced; 3], mask: Option<Traced>) -> Traced {
    let bias = mask.map(|mask| {
        let length = mask.shape.last().copied().unwrap_or(1);
        let mask = match padded(l, &mask) {
            wide if wide.shape == mask.shape => wide,
            wide => shortened(l, &wide, length),
        };
        let heads = &qkv[0].shape[..3];
        mask.expand(l, &[heads, &[qkv[1].shape[2]]].concat())
    });
    let [q, k, v] = [0, 1, 2].map(|i| by_length(l, &qkv[i]));
    let shape = [&q.shape[..3], &v.shape[3..]].concat();
    let needs_grad = [&q, &k, &v].into_iter().chain(bias.as_ref()).any(|t| t.requires_grad);
    let rows = if needs_grad { q.shape[1].next_multiple_of(32) } else { 0 };
    let mut call = Call::new("_scaled_dot_product_efficient_attention")
        .input(q.operand, Grad::New)
        .input(k.operand, Grad::New)
        .input(v.operand, Grad::New);
    if let Some(bias) = &bias {
        call = call.input(bias.operand, Grad::New);
    }
    let inputs = call.inputs.len();
    let call = call
        .output(&shape, OutDtype::Like(0), Place::New)
        .output(&[q.shape[0], q.shape[2], rows], OutDtype::Is(DType::Float32), Place::New)
        .output(&[], OutDtype::Is(DType::Int64), Place::New)
        .output(&[], OutDtype::Is(DType::Int64), Place::New)
        .saves((0..inputs).map(Saved::Input))
        .saves((0..4).map(Saved::Output));
    let sources: Vec<&Traced> = [&q, &k, &v].into_iter().chain(bias.as_ref()).collect();
    let out = Traced::of(l, call, &shape, &sources);
    by_length(l, &out)
}

/// `_scaled_dot_product_attention_math`: float32 throughout, whatever comes in.
fn math(
    l: &mut Lowering<'_>,
    qkv: &[Traced; 3],
    mask: Option<Traced>,
    dtype: DType,
    config: ScaledDotProductAttention,
) -> Traced {
    let half = matches!(dtype, DType::Float16 | DType::Bfloat16);
    let cast = |l: &mut Lowering<'_>, t: &Traced, to: DType| {
        let call = Call::new("_to_copy").input(t.operand, Grad::Pointwise);
        Traced::of(l, call.output(&t.shape, OutDtype::Is(to), Place::Pointwise), &t.shape, &[t])
    };
    let [q, k, v] = [0, 1, 2].map(|i| if half { cast(l, &qkv[i], DType::Float32) } else { qkv[i].clone() });
    let accumulated = if half { DType::Float32 } else { dtype };
    let q = q.scale(l, "mul");
    let mask = if config.is_causal { Some(causal(l, &q, &k, accumulated)) } else { mask };
    let (k, v) = (repeated(l, &q, &k), repeated(l, &q, &v));
    let k = k.transpose_last(l).scale(l, "mul");
    let mut scores = matmul(l, &q, &k);
    let shape = scores.shape.clone();
    if let Some(mask) = &mask {
        let call = Call::new("add_").input(scores.operand, Grad::Pass).input(mask.operand, Grad::Pass);
        let call = call.output(&shape, OutDtype::Like(0), Place::InPlace(0));
        scores = Traced::of(l, call, &shape, &[&scores, mask]);
    }
    // `_safe_softmax` looks for rows that see nothing; it runs wherever there is a mask.
    let mut call = Call::new(if mask.is_some() { "_safe_softmax" } else { "_softmax" })
        .input(scores.operand, Grad::New)
        .output(&shape, OutDtype::Like(0), Place::New)
        .saves([Saved::Output(0)]);
    if mask.is_some() {
        call = call.scratch(&shape, accumulated).scratch(&shape, DType::Bool);
    }
    let mut weights = Traced::of(l, call, &shape, &[&scores]);
    if config.dropout {
>>>>>>> 5cae09d (Recompose linear layers, activations, norms and scaled dot-product attention)
        let call = Call::new("native_dropout")
            .input(weights.operand, Grad::Pointwise)
            .output(&shape, OutDtype::Like(0), Place::Pointwise)
            .output(&shape, OutDtype::Is(DType::Bool), Place::New)
            .saves([Saved::Output(1)]);
        weights = Traced::of(l, call, &shape, &[&weights]);
    }
<<<<<<< HEAD
    let y = matmul_as_is(l, &weights, &v);
    let y = if dtype.is_half() { cast(l, &y, dtype) } else { y };
    y.transpose(l, 1, 2)
}

/// Each head of `[B, H, S, D]` repeated: an expanded view that is then copied.
fn repeat_heads(l: &mut Lowering<'_>, x: &Traced, repeats: u64) -> Traced {
    if repeats <= 1 {
        return x.clone();
    }
    let [batch, heads, rows, head] = x.shape[..] else { return x.clone() };
    let grouped = x.reshape(l, &[batch, heads, 1, rows, head]);
    let expanded = grouped.expand(l, &[batch, heads, repeats, rows, head]);
    expanded.copy(l).reshape(l, &[batch, heads.saturating_mul(repeats), rows, head])
=======
    if !half {
        return matmul(l, &weights, &v);
    }
    // The probabilities are returned too, in the caller's dtype, and dropped.
    cast(l, &weights, dtype);
    let out = matmul(l, &weights, &v);
    cast(l, &out, dtype)
}

/// `ones(L, S).tril()` as an added mask.
fn causal(l: &mut Lowering<'_>, q: &Traced, k: &Traced, dtype: DType) -> Traced {
    let length = |t: &Traced| t.rank().checked_sub(2).map_or(1, |axis| t.shape[axis]);
    let shape = [length(q), length(k)];
    let square = |l: &mut Lowering<'_>, call: Call| {
        Traced::of(l, call.output(&shape, OutDtype::Is(DType::Bool), Place::New), &shape, &[])
    };
    let ones = square(l, Call::new("ones"));
    let lower = square(l, Call::new("tril").input(ones.operand, Grad::None));
    additive(l, &lower, dtype)
}

/// Grouped keys or values, once for each query head.
fn repeated(l: &mut Lowering<'_>, q: &Traced, t: &Traced) -> Traced {
    let (&[_, heads, ..], &[batch, groups, length, size]) = (&q.shape[..], &t.shape[..]) else {
        return t.clone();
    };
    if heads == groups || groups == 0 {
        return t.clone();
    }
    let wide = t.reshape(l, &[batch, groups, 1, length, size]);
    let wide = wide.expand(l, &[batch, groups, heads / groups, length, size]).copy(l);
    wide.reshape(l, &[batch, heads, length, size])
>>>>>>> 5cae09d (Recompose linear layers, activations, norms and scaled dot-product attention)
}

#[cfg(test)]
mod tests {
    use super::*;
<<<<<<< HEAD
    use crate::TensorState;

    fn calls(shapes: [[u64; 4]; 3], dtype: DType, options: &Sdpa, autocast: Option<DType>) -> Vec<Call> {
        let state = |shape| Some(TensorState { shape, dtype, requires_grad: true, is_initializer: false });
        let inputs = [state(&shapes[0][..]), state(&shapes[1]), state(&shapes[2])];
        let mut l = Lowering::new(&inputs, &[], autocast, true);
        let [q, k, v] = [0, 1, 2].map(|i| Traced::input(&l, i));
        attention(&mut l, [&q, &k, &v], dtype, options).unwrap();
        l.into_parts().0
    }

    const SELF: [[u64; 4]; 3] = [[2, 50, 3, 32]; 3];

    #[test]
    fn float32_is_efficient_and_half_is_flash() {
        let efficient = calls(SELF, DType::Float32, &Sdpa::default(), None);
        assert_eq!(efficient.len(), 1);
        assert_eq!(efficient[0].outputs[1].shape, [2, 3, 64]);
        assert_eq!(efficient[0].saved.len(), 7);
        let flash = calls(SELF, DType::Float32, &Sdpa::default(), Some(DType::Bfloat16));
        let kernel = flash.last().unwrap();
        assert_eq!((kernel.function, &kernel.outputs[1].shape), (FLASH, &vec![2, 3, 50]));
        let narrow = calls([[2, 50, 3, 33]; 3], DType::Float16, &Sdpa::default(), None);
        assert_eq!(narrow.iter().map(|c| c.function).collect::<Vec<_>>()[3..], [FLASH, "slice"]);
    }

    #[test]
    fn grouped_heads_in_float32_are_composed() {
        let grouped = [[2, 50, 4, 32], [2, 50, 2, 32], [2, 50, 2, 32]];
        let names = |c: &[Call]| c.iter().map(|c| c.function).collect::<Vec<_>>();
        let math = calls(grouped, DType::Float32, &Sdpa { causal: true, ..Sdpa::default() }, None);
        assert_eq!(names(&math).iter().filter(|n| **n == "clone").count(), 2);
        assert!(names(&math).contains(&"_safe_softmax"));
        let flash = calls(grouped, DType::Bfloat16, &Sdpa { causal: true, ..Sdpa::default() }, None);
        assert_eq!(names(&flash), [FLASH]);
=======
    use crate::{OutState, TensorState};

    /// The calls for `heads` query heads over `groups` key heads of size 64 and length 100.
    fn calls(dtype: DType, groups: u64, mask: Option<DType>, config: ScaledDotProductAttention) -> Vec<Call> {
        let (q, kv) = ([2, 8, 100, 64], [2, groups, 100, 64]);
        let state =
            |shape, dtype| Some(TensorState { shape, dtype, requires_grad: true, is_initializer: false });
        let mask = mask.and_then(|dtype| state(&[2, 1, 100, 100], dtype));
        let inputs = [state(&q, dtype), state(&kv, dtype), state(&kv, dtype), mask];
        let outputs = [Some(OutState { shape: &q, dtype })];
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        config.pytorch(&mut l);
        l.into_parts().0
    }

    fn names(calls: &[Call]) -> Vec<&str> {
        let views = ["permute", "reshape", "expand", "slice"];
        calls.iter().map(|c| c.function).filter(|f| !views.contains(f)).collect()
    }

    #[test]
    fn dtype_mask_and_groups_choose_the_kernel() {
        let plain = ScaledDotProductAttention::default();
        let (full, half, boolean) = (DType::Float32, DType::Bfloat16, Some(DType::Bool));
        let flash = ["_scaled_dot_product_flash_attention"];
        let efficient = ["_scaled_dot_product_efficient_attention"];
        assert_eq!(names(&calls(half, 8, None, plain)), flash);
        assert_eq!(names(&calls(half, 2, None, plain)), flash);
        assert_eq!(names(&calls(full, 8, None, plain)), efficient);
        let masked = ["where", "constant_pad_nd", "_scaled_dot_product_efficient_attention"];
        assert_eq!(names(&calls(half, 8, boolean, plain)), masked);
        let math = calls(full, 2, None, ScaledDotProductAttention { is_causal: true, dropout: true });
        assert_eq!(
            names(&math),
            [
                "mul",
                "ones",
                "tril",
                "where",
                "clone",
                "clone",
                "mul",
                "bmm",
                "add_",
                "_safe_softmax",
                "native_dropout",
                "bmm"
            ]
        );
    }

    #[test]
    fn fused_kernels_keep_no_probabilities() {
        let calls = calls(DType::Float32, 8, None, ScaledDotProductAttention::default());
        let kernel = calls.iter().find(|c| !c.saved.is_empty()).unwrap();
        assert_eq!(kernel.saved.len(), 7);
        assert_eq!(kernel.outputs[0].shape, [2, 100, 8, 64]);
        assert_eq!(kernel.outputs[1].shape, [2, 8, 128]);
    }

    #[test]
    fn a_mask_of_odd_length_is_padded_once() {
        let calls = calls(DType::Float32, 8, Some(DType::Float32), ScaledDotProductAttention::default());
        let pad = calls.iter().find(|c| c.function == "constant_pad_nd").unwrap();
        assert_eq!(pad.outputs[0].shape, [2, 1, 100, 104]);
>>>>>>> 5cae09d (Recompose linear layers, activations, norms and scaled dot-product attention)
    }
}
