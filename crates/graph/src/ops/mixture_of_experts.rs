//! com.microsoft's MoE and QMoE: each token goes through a few of many feed-forward layers.
//!
//! PyTorch models loop over experts with the tokens that were sent to each: over all experts that is `k` copies of every
//! token, kept by the first layer, its activation and the second layer, and by the product with the routing weights.
//! The quantised form has no gradient.

use super::calls::{Traced, positive};
use super::gemm::activation;
use super::quantize::without_gradient;
use crate::{
    Attributes, Autocast, Call, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved, elements,
};
use std::sync::Arc;

/// Experts of two layers, the first maybe gated.
#[derive(Clone, Debug)]
pub struct MixtureOfExperts {
    /// Whether the weights are integers.
    pub quantized: bool,
    /// How many experts a token goes to.
    pub k: u64,
    /// The activation between the layers.
    pub activation: String,
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec { domain: "com.microsoft", name: "MoE", since: &[1], build: |a, _| build(a, false) },
    OpSpec { domain: "com.microsoft", name: "QMoE", since: &[1], build: |a, _| build(a, true) },
];

fn build(a: &mut Attributes, quantized: bool) -> Result<Arc<dyn Op>, OpError> {
    let activation = a.text("activation_type")?.unwrap_or_else(|| "relu".into());
    Ok(Arc::new(MixtureOfExperts { quantized, k: positive(a, "k", 1)?, activation }))
}

impl Op for MixtureOfExperts {
    fn name(&self) -> &str {
        if self.quantized { "com.microsoft.QMoE" } else { "com.microsoft.MoE" }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?.clone();
        cx.require(1)?;
        cx.require(2)?;
        cx.require(if self.quantized { 5 } else { 4 })?;
        cx.set_type(0, x);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        if self.quantized {
            return without_gradient(l, "quantized");
        }
        let x = Traced::input(l, 0);
        let (Some(hidden), &[_, wide, _]) = (x.shape.last().copied(), l.shape(2)) else { return };
        let tokens = elements(&x.shape[..x.rank() - 1]).saturating_mul(self.k);
        // The tokens of each expert, gathered; over all experts as many as were sent.
        let rows = [tokens, hidden];
        let call = Call::new("index").input(x.operand, Grad::New);
        let sent = Traced::of(l, call.output(&rows, OutDtype::Like(0), Place::New), &rows, &[&x]);
        let layer = |l: &mut Lowering<'_>, x: &Traced, weight: usize, bias: usize, width: u64| {
            let factor = |input, needed_by| Saved::InputFor { input, needed_by };
            let weight = Traced::input(l, weight);
            let mut call = Call::new("addmm")
                .autocast(Autocast::Lower)
                .input(x.operand, Grad::New)
                .input(weight.operand, Grad::New)
                .saves([factor(0, 1), factor(1, 0)]);
            if let Some(bias) = Traced::optional(l, bias) {
                call = call.input(bias.operand, Grad::New);
            }
            let shape = [tokens, width];
            Traced::of(l, call.output(&shape, OutDtype::Promoted, Place::New), &shape, &[x, &weight])
        };
        let first = layer(l, &sent, 2, 3, wide);
        let gated = self.activation == "swiglu" || self.activation == "geglu";
        let inner = if l.state(6).is_some() {
            let up = layer(l, &sent, 6, 7, wide);
            first.pointwise(l, "silu", Saved::Input(0)).mul(l, &up, &first.shape)
        } else if gated {
            let (gate, up) = (first.narrow(l, 1, 0, wide / 2), first.narrow(l, 1, wide / 2, wide / 2));
            let shape = gate.shape.clone();
            gate.pointwise(l, "silu", Saved::Input(0)).mul(l, &up, &shape)
        } else {
            match activation(&self.activation) {
                Some((name, saved)) => first.pointwise(l, name, saved),
                None => first,
            }
        };
        let second = layer(l, &inner, 4, 5, hidden);
        // Weighted by the router's softmax and added up into a tensor of zeros.
        let router = Traced::input(l, 1);
        let softmax = Call::new("_softmax").input(router.operand, Grad::New).saves([Saved::Output(0)]);
        let shape = router.shape.clone();
        let weights =
            Traced::of(l, softmax.output(&shape, OutDtype::Like(0), Place::New), &shape, &[&router]);
        let call = Call::new("mul")
            .input(second.operand, Grad::Pointwise)
            .input(weights.operand, Grad::New)
            .saves([Saved::Input(0), Saved::Input(1)]);
        let weighted =
            Traced::of(l, call.output(&rows, OutDtype::Like(0), Place::Pointwise), &rows, &[&second]);
        let call = Call::new("index_add").input(weighted.operand, Grad::New);
        l.finish(call.output(&x.shape, OutDtype::Like(0), Place::New));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, OutState, TensorState};

    #[test]
    fn every_token_is_kept_once_for_each_of_its_experts() {
        let state = |shape| {
            Some(TensorState { shape, dtype: DType::Float32, requires_grad: true, is_initializer: false })
        };
        let inputs =
            [state(&[2, 5, 8][..]), state(&[10, 4]), state(&[4, 32, 8]), None, state(&[4, 8, 16]), None];
        let outputs = [Some(OutState { shape: &[2, 5, 8], dtype: DType::Float32 })];
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        let op = MixtureOfExperts { quantized: false, k: 2, activation: "swiglu".into() };
        op.pytorch(&mut l);
        let calls = l.into_parts().0;
        assert_eq!(calls[0].outputs[0].shape[..], [20, 8]);
        assert_eq!(calls[1].outputs[0].shape[..], [20, 32]);
        assert_eq!(calls.last().unwrap().outputs[0].shape[..], [2, 5, 8]);
    }
}
