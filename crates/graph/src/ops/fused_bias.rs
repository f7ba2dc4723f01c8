//! com.microsoft's BiasAdd, BiasSoftmax, BiasDropout, BitmaskDropout and BitmaskBiasDropout.
//!
//! Additions with a softmax or a dropout between: the softmax keeps its output and is on autocast's fp32 list, dropout
//! keeps one byte an element (derivatives.yaml: `_softmax`, `native_dropout`), whatever onnxruntime packs its mask to.

use super::calls::Traced;
use crate::{
    Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Shape,
};
use std::sync::Arc;

/// What is done to the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusedBias {
    /// Nothing: input, bias and residual are added.
    Add,
    /// A softmax.
    Softmax,
    /// Dropout, then a residual is added.
    Dropout,
    /// The same without a bias, its mask packed to bits.
    BitmaskDropout,
    /// The same with a bias.
    BitmaskBiasDropout,
}

const fn spec(name: &'static str, build: crate::Build) -> OpSpec {
    OpSpec { domain: "com.microsoft", name, since: &[1], build }
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    spec("BiasAdd", |_, _| Ok(Arc::new(FusedBias::Add))),
    spec("BiasSoftmax", |_, _| Ok(Arc::new(FusedBias::Softmax))),
    spec("BiasDropout", |_, _| Ok(Arc::new(FusedBias::Dropout))),
    spec("BitmaskDropout", |_, _| Ok(Arc::new(FusedBias::BitmaskDropout))),
    spec("BitmaskBiasDropout", |_, _| Ok(Arc::new(FusedBias::BitmaskBiasDropout))),
];

impl FusedBias {
    /// The positions of a residual and of the dropout ratio.
    fn slots(self) -> (Option<usize>, Option<usize>) {
        match self {
            FusedBias::Add => (Some(2), None),
            FusedBias::Softmax => (None, None),
            FusedBias::Dropout | FusedBias::BitmaskBiasDropout => (Some(2), Some(3)),
            FusedBias::BitmaskDropout => (None, Some(1)),
        }
    }
}

impl Op for FusedBias {
    fn name(&self) -> &str {
        match self {
            FusedBias::Add => "com.microsoft.BiasAdd",
            FusedBias::Softmax => "com.microsoft.BiasSoftmax",
            FusedBias::Dropout => "com.microsoft.BiasDropout",
            FusedBias::BitmaskDropout => "com.microsoft.BitmaskDropout",
            FusedBias::BitmaskBiasDropout => "com.microsoft.BitmaskBiasDropout",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?.clone();
        match self {
            FusedBias::Dropout => cx.set(1, DType::Bool, x.shape().cloned()),
            FusedBias::BitmaskDropout | FusedBias::BitmaskBiasDropout => {
                let words = x.shape().and_then(Shape::elements).map(|n| n.div_ceil(32));
                let words = words.map_or_else(|| cx.fresh_dim("words", None), Into::into);
                cx.set(1, DType::Uint32, Some([words].into_iter().collect()));
            }
            FusedBias::Add | FusedBias::Softmax => {}
        }
        cx.set_type(0, x);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let mut x = Traced::input(l, 0);
        let shape = x.shape.clone();
        let (residual, ratio) = self.slots();
        if *self != FusedBias::BitmaskDropout
            && let Some(bias) = Traced::optional(l, 1)
        {
            x = x.add(l, &bias, &shape);
        }
        if *self == FusedBias::Softmax {
            // Autocast sets the result's dtype and leaves the input as it is.
            let dtype = l.autocast.map_or(OutDtype::Like(0), |_| OutDtype::Is(DType::Float32));
            let call = Call::new("_softmax").input(x.operand, Grad::New).saves([Saved::Output(0)]);
            x = Traced::of(l, call.output(&shape, dtype, Place::New), &shape, &[&x]);
        }
        let drops = |ratio: usize| l.value(ratio).and_then(|v| v.single()?.as_f64()) != Some(0.0);
        if let Some(ratio) = ratio
            && l.training
            && l.state(ratio).is_some()
            && drops(ratio)
        {
            let call = Call::new("native_dropout")
                .input(x.operand, Grad::Pointwise)
                .output(&shape, OutDtype::Like(0), Place::Pointwise)
                .output(&shape, OutDtype::Is(DType::Bool), Place::New)
                .saves([Saved::Output(1)]);
            x = Traced::of(l, call, &shape, &[&x]);
            if let (Operand::Result { call, .. }, true) =
                (x.operand, *self == FusedBias::Dropout && l.wants(1))
            {
                l.bind(1, Operand::Result { call, output: 1 });
            }
        }
        if let Some(residual) = residual.and_then(|i| Traced::optional(l, i)) {
            x = x.add(l, &residual, &shape);
        }
        x.bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OutState, TensorState, Value};

    #[test]
    fn dropout_keeps_a_byte_an_element() {
        let shape: &[u64] = &[2, 8];
        let state = |shape, requires_grad| {
            Some(TensorState { shape, dtype: DType::Float32, requires_grad, is_initializer: false })
        };
        let inputs = [state(shape, true), state(&[8], true), state(shape, true), state(&[], false)];
        let outputs = [Some(OutState { shape, dtype: DType::Float32 })];
        let names = |ratio: f64, training| {
            let ratio = Value::scalar(DType::Float32, ratio);
            let values = [None, None, None, Some(&ratio)];
            let mut l = Lowering::new(&inputs, &outputs, None, training).with_values(&values);
            FusedBias::Dropout.pytorch(&mut l);
            l.into_parts().0.iter().map(|c| c.function).collect::<Vec<_>>()
        };
        assert_eq!(names(0.1, true), ["add", "native_dropout", "add"]);
        assert_eq!(names(0.0, true), ["add", "add"]);
        assert_eq!(names(0.1, false), ["add", "add"]);
    }
}
