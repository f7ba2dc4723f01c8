//! SoftmaxCrossEntropyLoss (ONNX 12, 13) and NegativeLogLikelihoodLoss (12, 13, 22): `F.cross_entropy`, `F.nll_loss`.
//!
//! `log_softmax` keeps its output; `nll_loss` keeps its input, the targets, the class weights and one scalar
//! (derivatives.yaml: `_log_softmax`, `nll_loss`, `nll_loss2d`). Inside of `cross_entropy` the softmax stays in the
//! logits' dtype (it is given explicitly, aten/src/ATen/native/LossNLL.cpp), so under autocast half logits are
//! normalised in half precision, and the loss, on the fp32 list, keeps a float32 copy beside.

use super::calls::Traced;
use crate::{
    Attributes, Autocast, Call, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved,
    Shape,
};
use std::sync::Arc;

/// The negative logarithm of the probability of the labelled class.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy {
    /// Whether input 0 holds scores rather than log-probabilities.
    pub softmax: bool,
    /// Whether the result is one number a label.
    pub per_label: bool,
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec { domain: "", name: "SoftmaxCrossEntropyLoss", since: &[12, 13], build: |a, _| build(a, true) },
    OpSpec {
        domain: "",
        name: "NegativeLogLikelihoodLoss",
        since: &[12, 13, 22],
        build: |a, _| build(a, false),
    },
];

fn build(a: &mut Attributes, softmax: bool) -> Result<Arc<dyn Op>, OpError> {
    let per_label = match a.text("reduction")?.as_deref() {
        None | Some("mean" | "sum") => false,
        Some("none") => true,
        Some(other) => return Err(OpError::attribute("reduction", "none, mean or sum", other)),
    };
    Ok(Arc::new(CrossEntropy { softmax, per_label }))
}

impl Op for CrossEntropy {
    fn name(&self) -> &str {
        if self.softmax { "SoftmaxCrossEntropyLoss" } else { "NegativeLogLikelihoodLoss" }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let scores = cx.require(0)?.clone();
        cx.require(1)?;
        if let (Some(x), Some(labels)) = (scores.shape(), cx.shape(1)) {
            let mut expected = x.clone();
            let fits = x.rank() >= 2 && labels.rank() + 1 == x.rank() && {
                expected.remove(1);
                expected.broadcast(labels).is_some_and(|both| both.rank() == labels.rank())
            };
            if !fits && cx.batch().is_none() {
                let expected = format!("labels for scores of shape {x}, without its classes");
                return Err(OpError::input(1, expected, format!("shape {labels}")));
            }
        }
        let labels = || cx.shape(1).cloned();
        let shape = if self.per_label { labels() } else { Some(Shape::scalar()) };
        cx.set(0, cx.dtype(0), shape);
        cx.set_type(1, scores);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let mut x = Traced::input(l, 0);
        if self.softmax {
            let shape = x.shape.clone();
            let call = Call::new("_log_softmax").input(x.operand, Grad::New).saves([Saved::Output(0)]);
            x = Traced::of(l, call.output(&shape, OutDtype::Like(0), Place::New), &shape, &[&x]);
            if l.wants(1) {
                l.bind(1, x.operand);
            }
        }
        let name = if x.rank() > 2 { "nll_loss2d" } else { "nll_loss" };
        let mut call = Call::new(name)
            .autocast(Autocast::Fp32)
            .input(x.operand, Grad::New)
            .input(Operand::Input(1), Grad::None)
            .saves([Saved::Input(0), Saved::Input(1)]);
        if l.state(2).is_some() {
            call = call.input(Operand::Input(2), Grad::None).saves([Saved::Input(2)]);
        }
        let call = call
            .output(l.out_shape(0), OutDtype::Like(0), Place::New)
            .output(&[], OutDtype::Like(0), Place::New)
            .saves([Saved::Output(1)]);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, In, float};
    use super::*;
    use crate::{Attribute, DType, Type};

    fn labels(dims: &[u64]) -> In {
        In::Typed(Type::tensor(DType::Int64, Shape::from(dims)))
    }

    #[test]
    fn the_reduction_decides_the_shape() {
        let reduction = |r: &str| Attributes::from([("reduction", Attribute::Text(r.into()))]);
        let shape = |attributes, y: In| {
            testing::shape("SoftmaxCrossEntropyLoss", 13, attributes, &[float(&[8, 21, 5, 6]), y])
        };
        assert_eq!(shape(reduction("none"), labels(&[8, 5, 6])).unwrap(), "8x5x6");
        assert_eq!(shape(reduction("mean"), labels(&[8, 5, 6])).unwrap(), "scalar");
        assert!(shape(reduction("max"), labels(&[8, 5, 6])).is_err());
        assert!(shape(reduction("mean"), labels(&[8, 5])).unwrap_err().contains("labels"));
    }

    #[test]
    fn log_probabilities_targets_and_one_scalar_are_kept() {
        let inputs = [float(&[8, 10]), labels(&[8])];
        let calls = testing::calls("SoftmaxCrossEntropyLoss", 13, Attributes::default(), &inputs, 1);
        assert_eq!(calls[0].saved[..], [Saved::Output(0)]);
        assert_eq!(calls[0].autocast, Autocast::Keep);
        assert_eq!(calls[1].saved[..], [Saved::Input(0), Saved::Input(1), Saved::Output(1)]);
        assert_eq!(calls[1].autocast, Autocast::Fp32);
    }
}
