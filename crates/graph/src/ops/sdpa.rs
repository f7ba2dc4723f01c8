//! Scaled dot-product attention: which kernel PyTorch takes on CUDA, and what each one keeps.
//!
//! `at::scaled_dot_product_attention` (aten/src/ATen/native/transformers/attention.cpp, cuda/sdp_utils.cpp) takes flash
//! attention for half types without a mask and heads of at most 256, from Ampere on; memory-efficient attention for float32 or a mask,
//! and before Ampere for float16, where every query head has its own key head; and otherwise composes the result of products and a
//! softmax, in float32 throughout. (Hopper's cuDNN attention keeps what flash attention keeps.) The fused kernels keep queries, keys,
//! values, the output, one float32 number a row (flash `[B, H, S]`,
//! efficient padded to 32 rows) and the random state, never the S×S weights (derivatives.yaml:
//! `_scaled_dot_product_flash_attention`, `_scaled_dot_product_efficient_attention`). Flash lays its output
//! and gradients out like queries, keys and values (`empty_like`), efficient in the order `[B, S, H, D]`. Not counted: scratch inside of a kernel.

use super::calls::Traced;
use super::matmul::matmul_as_is;
use crate::{Autocast, Call, DType, Grad, Lowering, OutDtype, Place, Saved};

/// What an attention has beside queries, keys and values.
#[derive(Clone, Debug, Default)]
pub struct Sdpa {
    /// Added to the scores, or (truth values) where they count.
    pub mask: Option<Traced>,
    /// The mask's dtype.
    pub mask_dtype: Option<DType>,
    /// Whether a query sees no later key.
    pub causal: bool,
    /// Whether weights are dropped.
    pub dropout: bool,
    /// Whether something is asked for that no fused kernel does (a bound on the scores, the scores themselves, values
    /// that are not of rank 4).
    pub composed: bool,
    /// Whether one head or one batch of keys is for all of the queries', which no fused kernel takes.
    pub broadcast: bool,
    /// Whether the scores are bounded by a tanh.
    pub capped: bool,
}

/// The kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    Flash,
    Efficient,
    Math,
}

/// The first card with flash attention, and the one where none is known.
const AMPERE: (u32, u32) = (8, 0);
/// The first with tensor cores.
const VOLTA: (u32, u32) = (7, 0);

/// Whether flash attention runs (sdp_utils.cpp, `can_use_flash_attention`, 2.15).
fn takes_flash(
    card: (u32, u32),
    dtype: DType,
    [head, value_head]: [u64; 2],
    [rows, columns]: [u64; 2],
    options: &Sdpa,
    training: bool,
) -> bool {
    // `check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120`
    let is_small = matches!(card, (8, 6..=9) | (12, _));
    let is_too_wide = is_small && training && (head > 192 && head <= 224 || head > 224 && options.dropout);
    card >= AMPERE
        && dtype.is_half()
        && options.mask.is_none()
        && head <= 256
        && head == value_head
        && !(options.causal && rows != columns)
        && !is_too_wide
}

/// Whether memory-efficient attention runs (sdp_utils.cpp, `can_use_mem_efficient_attention`, `minimum_gemm_alignment`). Of shared key
/// heads 2.15 says that it takes them (torch/nn/functional.py, `scaled_dot_product_attention`); releases before it do not, nor do the
/// reference numbers.
fn takes_efficient(card: (u32, u32), dtype: DType, heads: [u64; 2]) -> bool {
    let unit = match dtype {
        DType::Float16 | DType::Bfloat16 if card >= AMPERE => 8,
        DType::Float16 if card >= VOLTA => 8,
        DType::Float32 if card >= AMPERE => 4,
        DType::Float16 | DType::Float32 => 1,
        _ => return false,
    };
    heads.iter().all(|head| head.is_multiple_of(unit))
}

/// The result, `[B, S, H, D]`, of attention on values in that order; `dtype` is theirs before autocast.
pub fn attention(
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
    let card = l.capability.unwrap_or(AMPERE);
    let kernel = if options.composed || options.broadcast {
        Kernel::Math
    } else if takes_flash(card, dtype, [head, value_head], [rows, columns], options, l.training) {
        Kernel::Flash
    } else if heads == kv_heads && takes_efficient(card, dtype, [head, value_head]) {
        Kernel::Efficient
    } else {
        Kernel::Math
    };
    let [q, k, v] = [q, k, v].map(|t| t.autocast(l, Autocast::Lower));
    let scores = [batch, heads, rows, columns];
    let mask = options.mask.as_ref().map(|mask| additive(l, mask, options.mask_dtype, dtype));
    let fused = |l: &mut Lowering<'_>, name, [q, k, v]: [&Traced; 3], bias: Option<&Traced>| {
        let mut call = Call::new(name);
        for input in [q, k, v] {
            call = call.input(input.operand, if name == FLASH { Grad::Like } else { Grad::New });
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
            .output(&shape, OutDtype::Promoted, if name == FLASH { Place::Pointwise } else { Place::New })
            .output(&[batch, heads, statistics], OutDtype::Is(DType::Float32), Place::New)
            .output(seed, OutDtype::Is(offset), Place::New)
            .output(&[], OutDtype::Is(offset), Place::New)
            .saves(saved.into_iter().chain((0..4).map(Saved::Output)));
        let heads = (heads, kv_heads);
        let call = workspace(call, dtype, [batch, rows, columns], heads, head);
        let inputs: Vec<&Traced> = [q, k, v].into_iter().chain(bias).collect();
        Traced::of(l, call, &shape, &inputs)
    };
    Some(match kernel {
        Kernel::Flash if head % 8 != 0 => {
            let width = head.checked_next_multiple_of(8).unwrap_or(head);
            let padded = [&q, &k, &v].map(|t| pad(l, t, width));
            let y = fused(l, FLASH, [&padded[0], &padded[1], &padded[2]], None);
            y.narrow(l, 3, 0, head)
        }
        Kernel::Flash => fused(l, FLASH, [&q, &k, &v], None),
        Kernel::Efficient => {
            let bias = mask.map(|mask| {
                // The kernel loads eight elements at a time: a row that is no multiple is padded and sliced back.
                let mask = match mask.shape.last() {
                    Some(columns) if columns % 8 != 0 => pad(
                        l,
                        &mask,
                        columns.checked_next_multiple_of(8).unwrap_or(*columns),
                    )
                    .narrow(l, mask.rank() - 1, 0, *columns),
                    _ => mask,
                };
                mask.expand(l, &scores)
            });
            fused(l, EFFICIENT, [&q, &k, &v], bias.as_ref())
        }
        Kernel::Math => math(l, [&q, &k, &v], dtype, mask.as_ref(), options),
    })
}

/// What the backward kernels allocate for themselves: flash a float32 gradient of the queries and one number a row, and
/// keys' and values' gradients for every query head (flash_api.cpp, `mha_bwd`); efficient one number a row, for half types a
/// float32 gradient of the queries (kernel_backward.h, `workspace_elements_gq`), for float32 the product of output and
/// gradient, from which those numbers are summed (attention_backward.cu, `delta`).
fn workspace(
    call: Call,
    dtype: DType,
    [batch, rows, columns]: [u64; 3],
    (heads, kv_heads): (u64, u64),
    head: u64,
) -> Call {
    let up = |n: u64, unit: u64| n.div_ceil(unit).saturating_mul(unit);
    let float = OutDtype::Is(DType::Float32);
    if call.function == FLASH {
        let rows = up(rows, 128);
        let width = if head <= 192 { up(head, 32) } else { 256 };
        let call = call
            .backward_workspace(&[batch, heads, rows], float)
            .backward_workspace(&[batch, rows, heads, width], float);
        return if heads == kv_heads {
            call
        } else {
            let expanded = [batch, columns, heads, head];
            call.backward_workspace(&expanded, OutDtype::Like(1))
                .backward_workspace(&expanded, OutDtype::Like(2))
        };
    }
    let call = call.backward_workspace(&[batch, heads, rows], float);
    let accumulated =
        if dtype.is_half() { [batch, heads, up(rows, 64), up(head, 32)] } else { [batch, rows, heads, head] };
    call.backward_workspace(&accumulated, float)
}

/// The mask of scores that a module makes of a padding mask, `[batch, 1, rows, columns]` of truth values.
pub(super) fn padding_mask(l: &mut Lowering<'_>, q: &Traced, k: &Traced) -> Option<Traced> {
    let shape = [*q.shape.first()?, 1, *q.shape.get(1)?, *k.shape.get(1)?];
    let call = Call::new("and").output(&shape, OutDtype::Is(DType::Bool), Place::New);
    Some(Traced::of(l, call, &shape, &[]))
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
    let repeats = if options.broadcast { 1 } else { q.shape[1].checked_div(k.shape[1]).unwrap_or(1) };
    let [k, v] = [k, v].map(|x| repeat_heads(l, &x, repeats));
    let keys = k.transpose_last(l).scale(l, "mul");
    let mut scores = matmul_as_is(l, &q, &keys);
    let accumulated = if dtype.is_half() { DType::Float32 } else { dtype };
    let causal = (options.causal && mask.is_none()).then(|| {
        let extent = |axis| scores.shape.get(axis).copied().unwrap_or(1);
        let shape = [extent(2), extent(3)];
        let call = Call::new("where").scratch(&shape, DType::Bool);
        Traced::of(l, call.output(&shape, OutDtype::Is(accumulated), Place::New), &shape, &[])
    });
    if let Some(mask) = causal.as_ref().or(mask) {
        let call = Call::new("add_").input(scores.operand, Grad::Pass).input(mask.operand, Grad::Pass);
        let shape = scores.shape.clone();
        let call = call.output(&shape, OutDtype::Like(0), Place::InPlace(0));
        scores = Traced::of(l, call, &shape, &[&scores, mask]);
    }
    if options.capped {
        scores = scores.pointwise(l, "tanh", Saved::Output(0)).scale(l, "mul");
    }
    let shape = scores.shape.clone();
    let softmax = Call::new("_safe_softmax").input(scores.operand, Grad::New).scratch(&shape, DType::Bool);
    let softmax = softmax
        .output(&shape, OutDtype::Like(0), Place::New)
        .saves([Saved::Output(0)])
        .backward_workspace(&shape, OutDtype::Like(0));
    let mut weights = Traced::of(l, softmax, &shape, &[&scores]);
    if options.dropout && l.training {
        let call = Call::new("native_dropout")
            .input(weights.operand, Grad::Pointwise)
            .output(&shape, OutDtype::Like(0), Place::Pointwise)
            .output(&shape, OutDtype::Is(DType::Bool), Place::New)
            .saves([Saved::Output(1)]);
        weights = Traced::of(l, call, &shape, &[&weights]);
    }
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorState;

    fn calls(shapes: [[u64; 4]; 3], dtype: DType, options: &Sdpa, autocast: Option<DType>) -> Vec<Call> {
        let state = |shape| Some(TensorState { shape, dtype, requires_grad: true, is_initializer: false });
        let inputs = [state(&shapes[0][..]), state(&shapes[1]), state(&shapes[2])];
        let mut l = Lowering::new(&inputs, &[], autocast, true);
        let [q, k, v] = [0, 1, 2].map(|i| Traced::input(&l, i));
        attention(&mut l, [&q, &k, &v], dtype, options).unwrap();
        l.into_parts().0
    }

    #[test]
    fn fused_kernels_depend_on_the_card() {
        let flash =
            |card, head, options: &Sdpa| takes_flash(card, DType::Float16, [head; 2], [64; 2], options, true);
        let [turing, ampere, ada] = [(7, 5), (8, 0), (8, 9)];
        let (plain, drops) = (Sdpa::default(), Sdpa { dropout: true, ..Sdpa::default() });
        assert_eq!([turing, ampere, ada].map(|card| flash(card, 64, &plain)), [false, true, true]);
        assert_eq!([200, 256].map(|head| flash(ada, head, &plain)), [false, true]);
        assert_eq!([ampere, ada].map(|card| flash(card, 256, &drops)), [true, false]);
        let causal = Sdpa { causal: true, ..Sdpa::default() };
        assert!(!takes_flash(ampere, DType::Float16, [64; 2], [64, 32], &causal, true));
        // Before Ampere there is no kernel for bfloat16, and before Volta none that wants heads of whole vectors.
        let efficient = |card, dtype, head| takes_efficient(card, dtype, [head; 2]);
        assert_eq!([turing, ampere].map(|card| efficient(card, DType::Bfloat16, 64)), [false, true]);
        assert_eq!(
            [(6, 1), turing, ampere].map(|card| efficient(card, DType::Float16, 33)),
            [true, false, false]
        );
        assert_eq!([turing, ampere].map(|card| efficient(card, DType::Float32, 33)), [true, false]);
    }

    const SELF: [[u64; 4]; 3] = [[2, 50, 3, 32]; 3];

    #[test]
    fn float32_is_efficient_and_half_is_flash() {
        let efficient = calls(SELF, DType::Float32, &Sdpa::default(), None);
        assert_eq!(efficient.len(), 1);
        assert_eq!(efficient[0].outputs[1].shape[..], [2, 3, 64]);
        assert_eq!(efficient[0].saved.len(), 7);
        let flash = calls(SELF, DType::Float32, &Sdpa::default(), Some(DType::Bfloat16));
        let kernel = flash.last().unwrap();
        assert_eq!((kernel.function, &kernel.outputs[1].shape[..]), (FLASH, &[2, 3, 50][..]));
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
    }
}
