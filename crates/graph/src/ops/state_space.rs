//! LinearAttention and CausalConvWithState. ONNX 27; the layers of recurrent language models (Mamba, Gated DeltaNet).
//!
//! The convolution is depthwise over the input with its state in front: `cat` and `convolution`, which keeps the joined
//! input and the weight, then silu, which keeps its input (derivatives.yaml). Linear attention has no kernel of PyTorch's
//! own; what a library keeps for it is bounded from above.

use super::calls::{Traced, positive};
use crate::{Autocast, Call, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved, Shape};
use std::sync::Arc;

/// A recurrence over keys and values, read by queries.
#[derive(Clone, Copy, Debug)]
pub struct LinearAttention {
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
}

/// A depthwise convolution over past and present.
#[derive(Clone, Copy, Debug)]
pub struct CausalConv {
    /// Whether silu follows.
    pub silu: bool,
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "LinearAttention",
        since: &[27],
        build: |a, _| {
            for name in ["q_num_heads", "kv_num_heads"] {
                if !a.has(name) {
                    return Err(OpError::missing_attribute(name));
                }
            }
            let heads = positive(a, "q_num_heads", 1)?;
            Ok(Arc::new(LinearAttention { heads, kv_heads: positive(a, "kv_num_heads", 1)? }))
        },
    },
    OpSpec {
        domain: "",
        name: "CausalConvWithState",
        since: &[27],
        build: |a, _| {
            let silu = matches!(a.text("activation")?.as_deref(), Some("silu" | "swish"));
            Ok(Arc::new(CausalConv { silu }))
        },
    },
];

impl Op for LinearAttention {
    fn name(&self) -> &str {
        "LinearAttention"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        for i in 0..3 {
            cx.require(i)?;
        }
        let dtype = cx.dtype(0);
        let inputs = (cx.shape_of_rank(0, 3)?, cx.shape_of_rank(1, 3)?, cx.shape_of_rank(2, 3)?);
        let state_dtype = if cx.has(3) { cx.dtype(3) } else { dtype };
        let (Some(q), Some(k), Some(v)) = inputs else {
            cx.set(0, dtype, None);
            cx.set(1, state_dtype, cx.shape(3).cloned());
            return Ok(());
        };
        let head = |i: usize, width: &Dim| {
            let head = width.div_exact(&Dim::Known(self.kv_heads));
            head.or_else(|| width.known().is_none().then(|| cx.fresh_dim(&format!("head{i}"), None)))
                .ok_or_else(|| {
                    OpError::input(i, format!("{} equal heads", self.kv_heads), format!("{width} features"))
                })
        };
        let (key, value) = (head(1, &k[2])?, head(2, &v[2])?);
        let width = value.mul(&Dim::Known(self.heads)).ok_or_else(|| OpError::overflow("the heads"))?;
        let state: Shape = [q[0].clone(), self.kv_heads.into(), key, value].into_iter().collect();
        cx.set(0, dtype, Some([q[0].clone(), q[1].clone(), width].into_iter().collect()));
        cx.set(1, state_dtype, Some(state));
        Ok(())
    }
}

impl Op for CausalConv {
    fn name(&self) -> &str {
        "CausalConvWithState"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?.clone();
        cx.require(1)?;
        let (shape, weight) = (cx.shape_of_rank(0, 3)?, cx.shape_of_rank(1, 3)?);
        let state = shape.zip(weight).map(|(x, w)| {
            let rows = w[2].offset(-1);
            [x[0].clone(), x[1].clone(), rows].into_iter().collect::<Shape>()
        });
        cx.set(1, cx.dtype(0), state.or_else(|| cx.shape(3).cloned()));
        cx.set_type(0, x);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (mut x, weight) = (Traced::input(l, 0), Traced::input(l, 1));
        let shape = x.shape.clone();
        let [batch, channels, rows] = shape[..] else { return };
        let past = weight.shape.get(2).copied().unwrap_or(1).saturating_sub(1);
        let joined = [batch, channels, rows.saturating_add(past)];
        let call = match Traced::optional(l, 3) {
            Some(state) => Call::new("cat").input(state.operand, Grad::Narrow).input(x.operand, Grad::Narrow),
            None => Call::new("constant_pad_nd").input(x.operand, Grad::New),
        };
        x = Traced::of(l, call.output(&joined, OutDtype::Promoted, Place::New), &joined, &[&x]);
        if l.wants(1) {
            x.narrow(l, 2, rows, past).bind(l, 1);
        }
        let mut call = Call::new("convolution")
            .autocast(Autocast::Lower)
            .input(x.operand, Grad::New)
            .input(weight.operand, Grad::New);
        if let Some(bias) = Traced::optional(l, 2) {
            call = call.input(bias.operand, Grad::New);
        }
        let call =
            call.output(&shape, OutDtype::Promoted, Place::New).saves([Saved::Input(0), Saved::Input(1)]);
        let mut y = Traced::of(l, call, &shape, &[&x, &weight]);
        if self.silu {
            y = y.pointwise(l, "silu", Saved::Input(0));
        }
        y.bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, float, symbolic};
    use crate::{Attribute, Attributes};

    #[test]
    fn states_have_the_size_of_what_they_remember() {
        let inputs = [symbolic(&["b", "64", "t"]), float(&[64, 1, 4])];
        let out = testing::run("CausalConvWithState", 27, Attributes::default(), &inputs, 2).unwrap();
        assert_eq!(out[1].0.shape().unwrap().to_string(), "bx64x3");
        let heads =
            Attributes::from([("q_num_heads", Attribute::Int(4)), ("kv_num_heads", Attribute::Int(2))]);
        let inputs = [symbolic(&["b", "t", "32"]), symbolic(&["b", "t", "16"]), symbolic(&["b", "t", "12"])];
        let out = testing::run("LinearAttention", 27, heads, &inputs, 2).unwrap();
        let shapes: Vec<_> = out.iter().map(|(ty, _)| ty.shape().unwrap().to_string()).collect();
        assert_eq!(shapes, ["bxtx24", "bx2x8x6"]);
    }

    #[test]
    fn the_joined_input_is_kept() {
        let inputs = [float(&[2, 64, 10]), float(&[64, 1, 4])];
        let calls = testing::calls("CausalConvWithState", 27, Attributes::default(), &inputs, 1);
        assert_eq!(calls[0].outputs[0].shape[..], [2, 64, 13]);
        assert_eq!(calls[1].inputs[0], crate::Operand::Result { call: 0, output: 0 });
    }
}
