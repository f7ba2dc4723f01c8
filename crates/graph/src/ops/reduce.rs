//! ReduceL1, ReduceL2, ReduceLogSum, ReduceLogSumExp, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum, ReduceSumSquare.
//! ONNX 1, 11, 12, 13, 18, 20, 28; Keras `keras.ops.sum`, `mean`, `max`, …, `GlobalAveragePooling1D`.
//!
//! derivatives.yaml (PyTorch 2.15): `sum` keeps nothing and its gradient is the incoming one expanded, without a copy; `mean`
//! divides that, which makes a tensor; `amax`, `norm`, `logsumexp` and `prod` keep input and result, `max` along one axis the
//! positions (`value_selecting_reduction_backward`), `var` the input, `std` the result too. Under autocast `sum`, `prod` and
//! `norm` accumulate in float32 and give float32 without a cast of their input (`fp32_set_opt_dtype`: they get a `dtype` argument),
//! `logsumexp`, `log` and `pow` cast it.

use super::reduction::{self, Axes};
use crate::kernels::TfLowering;
use crate::shape::normalize_axis;
use crate::{
    Autocast, Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, View,
};
use std::sync::Arc;

/// Which reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ReduceKind {
    L1,
    L2,
    LogSum,
    LogSumExp,
    Max,
    Mean,
    Min,
    Prod,
    Sum,
    SumSquare,
    /// The variance. No file holds it: exporters write it in pieces, recomposition puts it back, with its axes listed.
    Var,
    /// The standard deviation, likewise.
    Std,
}

/// A reduction along axes, which the attribute or input 1 gives.
#[derive(Clone, Debug)]
pub struct Reduce {
    /// Which one.
    pub kind: ReduceKind,
    /// Where they go and what stays.
    pub axes: Axes,
    /// Whether positions are found beside the values: `torch.max(x, dim)` rather than `torch.amax(x, dim)`.
    pub with_positions: bool,
    /// Whether a variance is divided by one element less: an estimate from a sample.
    pub unbiased: bool,
}

macro_rules! reduce {
    ($($name:literal $since:tt $kind:ident;)*) => {
        /// How each of them is found.
        pub const SPECS: &[OpSpec] = &[$(OpSpec {
            domain: "",
            name: $name,
            since: &$since,
            build: |a, _| {
                let axes = Axes::read(a)?;
                Ok(Arc::new(Reduce { kind: ReduceKind::$kind, axes, with_positions: false, unbiased: false }))
            },
        }),*];

        impl ReduceKind {
            fn name(self) -> &'static str {
                match self {
                    $(ReduceKind::$kind => $name,)*
                    ReduceKind::Var => "ReduceVar",
                    ReduceKind::Std => "ReduceStd",
                }
            }
        }
    };
}

reduce! {
    "ReduceL1"        [1, 11, 13, 18]         L1;
    "ReduceL2"        [1, 11, 13, 18]         L2;
    "ReduceLogSum"    [1, 11, 13, 18, 28]     LogSum;
    "ReduceLogSumExp" [1, 11, 13, 18, 28]     LogSumExp;
    "ReduceMax"       [1, 11, 12, 13, 18, 20] Max;
    "ReduceMean"      [1, 11, 13, 18]         Mean;
    "ReduceMin"       [1, 11, 12, 13, 18, 20] Min;
    "ReduceProd"      [1, 11, 13, 18]         Prod;
    "ReduceSum"       [1, 11, 13]             Sum;
    "ReduceSumSquare" [1, 11, 13, 18]         SumSquare;
}

impl Reduce {
    /// `whole` with ones in place of the listed axes, of all where none is listed.
    fn kept(&self, whole: &[u64]) -> Vec<u64> {
        let listed = self.axes.listed.iter().flatten();
        let axes: Vec<_> = listed.filter_map(|axis| normalize_axis(*axis, whole.len())).collect();
        let goes = |k: &usize| axes.is_empty() || axes.contains(k);
        (0..whole.len()).map(|k| if goes(&k) { 1 } else { whole[k] }).collect()
    }
}

impl Op for Reduce {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let axes = self.axes.resolve(cx)?;
        let shape = self.axes.shape(cx, axes.as_deref())?;
        cx.set(0, cx.dtype(0), shape);
        if let (Some(value), Some(axes)) = (cx.value(0), axes)
            && let Some(folded) = reduction::fold(value, &axes, self.axes.keep_dims, self.kind)
        {
            cx.set_value(0, folded);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, part) = (l.input(0), l.out_shape(0));
        if l.in_shape(0) == part {
            return l.bind(0, x);
        }
        let y = match self.kind {
            ReduceKind::Sum => l.reduce("Sum", x, part),
            ReduceKind::Mean => l.reduce("Mean", x, part),
            ReduceKind::Max => l.reduce("Max", x, part),
            ReduceKind::Min => l.reduce("Min", x, part),
            ReduceKind::Prod => l.reduce("Prod", x, part),
            ReduceKind::L1 => {
                let absolute = l.unary("Abs", x);
                l.reduce("Sum", absolute, part)
            }
            ReduceKind::L2 | ReduceKind::SumSquare => {
                let square = l.unary("Square", x);
                let sum = l.reduce("Sum", square, part);
                if self.kind == ReduceKind::L2 { l.unary("Sqrt", sum) } else { sum }
            }
            ReduceKind::LogSum => {
                let sum = l.reduce("Sum", x, part);
                l.unary("Log", sum)
            }
            // The maximum is taken off first, and passes no gradient.
            ReduceKind::LogSumExp => {
                let max = l.reduce("Max", x, part);
                let max = l.stop(max);
                let centred = l.binary("Sub", x, max);
                let exp = l.unary("Exp", centred);
                let sum = l.reduce("Sum", exp, part);
                let log = l.unary("Log", sum);
                l.binary("AddV2", log, max)
            }
            // tf.math.reduce_variance, reduce_std
            ReduceKind::Var | ReduceKind::Std => {
                let kept = self.kept(l.in_shape(0));
                let mean = l.reduce("Mean", x, &kept);
                let centred = l.binary("Sub", x, mean);
                let square = l.unary("Square", centred);
                let variance = l.reduce("Mean", square, part);
                if self.kind == ReduceKind::Std { l.unary("Sqrt", variance) } else { variance }
            }
        };
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (whole, part) = (l.shape(0), l.out_shape(0));
        let all = l.state(1).is_none() && self.axes.listed.as_ref().is_none_or(Vec::is_empty);
        if all && self.axes.noop_when_empty {
            let alias = Call::new("alias").input(Operand::Input(0), Grad::Unview);
            return l.finish(alias.output(part, OutDtype::Like(0), Place::View(0, View::Alias)));
        }
        // A reduction that takes a `dtype`: float32 under autocast whatever half it reads.
        let raised = l.autocast.is_some() && l.dtype(0).is_half();
        let total = if raised { OutDtype::Is(DType::Float32) } else { OutDtype::Promoted };
        let reduce = |name, grad, dtype| {
            Call::new(name).input(Operand::Input(0), grad).output(part, dtype, Place::New)
        };
        let keeps_both = |call: Call| call.saves([Saved::Input(0), Saved::Output(0)]);
        let like_input = |call: Call| call.backward_scratch(whole, OutDtype::Promoted);
        let mask = |call: Call| call.backward_scratch(whole, OutDtype::Is(DType::Bool));
        match self.kind {
            ReduceKind::Sum => l.finish(reduce("sum", Grad::Expand, total)),
            ReduceKind::Mean => l.finish(reduce("mean", Grad::New, OutDtype::Promoted)),
            // evenly_distribute_backward: three masks
            ReduceKind::Max | ReduceKind::Min if all => {
                let name = if self.kind == ReduceKind::Max { "max" } else { "min" };
                l.finish(mask(mask(mask(keeps_both(reduce(name, Grad::New, OutDtype::Promoted))))));
            }
            ReduceKind::Max | ReduceKind::Min if self.with_positions => {
                let name = if self.kind == ReduceKind::Max { "max" } else { "min" };
                let call = reduce(name, Grad::New, OutDtype::Promoted);
                l.finish(call.output(part, OutDtype::Is(DType::Int64), Place::New).saves([Saved::Output(1)]));
            }
            // scale_grad_by_count: (grad / mask.sum(dims)) * mask
            ReduceKind::Max | ReduceKind::Min => {
                let name = if self.kind == ReduceKind::Max { "amax" } else { "amin" };
                let call = mask(keeps_both(reduce(name, Grad::New, OutDtype::Promoted)));
                l.finish(
                    call.backward_scratch(part, OutDtype::Is(DType::Int64))
                        .backward_scratch(part, OutDtype::Promoted),
                );
            }
            // prod_backward: grad * (result / input), after a look for zeros
            ReduceKind::Prod => l.finish(mask(like_input(keeps_both(reduce("prod", Grad::New, total))))),
            // linalg_vector_norm_backward: self.sgn() * grad; (self / result).masked_fill_(result == 0, 0) * grad
            ReduceKind::L1 => {
                l.finish(like_input(keeps_both(reduce("linalg_vector_norm", Grad::New, total))));
            }
            ReduceKind::L2 => {
                let call = like_input(keeps_both(reduce("linalg_vector_norm", Grad::New, total)));
                l.finish(call.backward_scratch(part, OutDtype::Is(DType::Bool)));
            }
            // forward: (self - maxes).exp_(); logsumexp_backward: grad * (self - result).exp()
            ReduceKind::LogSumExp => {
                let call = keeps_both(reduce("logsumexp", Grad::New, OutDtype::Promoted));
                let dtype = if raised { DType::Float32 } else { l.dtype(0) };
                l.finish(like_input(like_input(call.autocast(Autocast::Fp32).scratch(whole, dtype))));
            }
            ReduceKind::LogSum => {
                let sum = l.call(reduce("sum", Grad::Expand, total));
                l.finish(
                    Call::new("log")
                        .autocast(Autocast::Fp32)
                        .input(sum, Grad::Pointwise)
                        .output(part, OutDtype::Promoted, Place::Pointwise)
                        .saves([Saved::Input(0)]),
                );
            }
            // std_backward: grad / (result * 2); var_backward: 2 / n * grad * (self - self.mean(dim, true))
            ReduceKind::Var => {
                let call = reduce("var", Grad::New, OutDtype::Promoted).saves([Saved::Input(0)]);
                l.finish(like_input(call).backward_scratch(part, OutDtype::Promoted));
            }
            ReduceKind::Std => {
                let call = like_input(keeps_both(reduce("std", Grad::New, OutDtype::Promoted)));
                l.finish(
                    call.backward_scratch(part, OutDtype::Promoted)
                        .backward_scratch(part, OutDtype::Promoted),
                );
            }
            // pow_backward: grad * (2 * self.pow(1))
            ReduceKind::SumSquare => {
                let square =
                    Call::new("pow").autocast(Autocast::Fp32).input(Operand::Input(0), Grad::Pointwise);
                let square =
                    square.output(whole, OutDtype::Promoted, Place::Pointwise).saves([Saved::Input(0)]);
                let square = l.call(like_input(like_input(square)));
                l.finish(Call::new("sum").input(square, Grad::Expand).output(
                    part,
                    OutDtype::Promoted,
                    Place::New,
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{calls, float};
    use crate::{Attribute, Attributes, OutState, TensorState};

    #[test]
    fn a_sum_costs_nothing_backward_and_a_mean_a_tensor() {
        let axes = || Attributes::from([("axes", Attribute::Ints(vec![1]))]);
        let lower = |op| calls(op, 11, axes(), &[float(&[2, 3])], 1);
        assert_eq!((&lower("ReduceSum")[0].grads[0], lower("ReduceSum")[0].saved.len()), (&Grad::Expand, 0));
        assert_eq!(lower("ReduceMean")[0].grads[0], Grad::New);
        assert_eq!(lower("ReduceMax")[0].saved[..], [Saved::Input(0), Saved::Output(0)]);
        let variance = |kind| {
            let axes = Axes { listed: Some(vec![1]), keep_dims: true, noop_when_empty: false };
            let state = TensorState {
                shape: &[2, 3],
                dtype: DType::Float32,
                requires_grad: true,
                is_initializer: false,
            };
            let (inputs, outputs) =
                ([Some(state)], [Some(OutState { shape: &[2, 1], dtype: DType::Float32 })]);
            let mut l = Lowering::new(&inputs, &outputs, None, true);
            Reduce { kind, axes, with_positions: false, unbiased: false }.pytorch(&mut l);
            l.into_parts().0.remove(0)
        };
        assert_eq!(variance(ReduceKind::Var).saved[..], [Saved::Input(0)]);
        assert_eq!(variance(ReduceKind::Std).saved[..], [Saved::Input(0), Saved::Output(0)]);
        let squares = lower("ReduceSumSquare");
        assert_eq!(squares[0].outputs[0].shape[..], [2, 3]);
        assert_eq!(squares[1].outputs[0].shape[..], [2, 1]);
    }
}
