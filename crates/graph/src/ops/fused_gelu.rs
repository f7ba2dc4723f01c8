//! com.microsoft's Gelu, BiasGelu, FastGelu, QuickGelu and BiasSplitGelu.
//!
//! An optimizer made them of an addition and a gelu (or `x * sigmoid(alpha * x)`); trained, they are these again: the
//! addition keeps nothing, gelu its input (derivatives.yaml: `gelu`), and the split form multiplies one half by the gelu of
//! the other.

use super::calls::Traced;
use super::swiglu::swish;
use crate::kernels::TfLowering;
use crate::{Attributes, Infer, Lowering, Op, OpError, OpSpec, Saved};
use std::sync::Arc;

/// A gelu with what was fused into it.
#[derive(Clone, Copy, Debug)]
pub struct FusedGelu {
    /// The operator's name.
    pub name: &'static str,
    /// The factor in the sigmoid of the quick form.
    pub quick: Option<f64>,
    /// Whether half of the features gates the other half.
    pub split: bool,
}

const fn spec(name: &'static str, build: crate::Build) -> OpSpec {
    OpSpec { domain: "com.microsoft", name, since: &[1], build }
}

fn plain(name: &'static str) -> Result<Arc<dyn Op>, OpError> {
    Ok(Arc::new(FusedGelu { name, quick: None, split: false }))
}

fn quick(a: &Attributes) -> Result<Arc<dyn Op>, OpError> {
    let quick = Some(a.float("alpha")?.unwrap_or(1.702));
    Ok(Arc::new(FusedGelu { name: "com.microsoft.QuickGelu", quick, split: false }))
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    spec("Gelu", |_, _| plain("com.microsoft.Gelu")),
    spec("BiasGelu", |_, _| plain("com.microsoft.BiasGelu")),
    spec("FastGelu", |_, _| plain("com.microsoft.FastGelu")),
    spec("QuickGelu", |a, _| quick(a)),
    spec("BiasSplitGelu", |_, _| {
        Ok(Arc::new(FusedGelu { name: "com.microsoft.BiasSplitGelu", quick: None, split: true }))
    }),
];

impl Op for FusedGelu {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?;
        let mut shape = x.shape().cloned();
        if let (Some(shape), true) = (&mut shape, self.split) {
            let last = shape.dims_mut().last_mut();
            let last = last.ok_or_else(|| OpError::input(0, "at least one axis", "a scalar"))?;
            *last = last.div_floor(&2.into()).ok_or_else(|| OpError::overflow("half of the features"))?;
        }
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let mut x = l.input(0);
        if l.has(1) {
            let bias = l.input(1);
            x = l.binary("AddV2", x, bias);
        }
        let y = if self.split {
            let shape = l.out_shape(0).to_vec();
            let value = l.split(x, &[shape.clone(), shape]);
            let gate = l.output(value, 1);
            let gate = l.gelu(gate, false);
            l.binary("Mul", value, gate)
        } else if self.quick.is_some() {
            l.silu(x)
        } else {
            l.gelu(x, false)
        };
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let mut x = Traced::input(l, 0);
        if let Some(bias) = Traced::optional(l, 1) {
            let shape = x.shape.clone();
            x = x.add(l, &bias, &shape);
        }
        let y = match (self.split, self.quick) {
            (true, _) => {
                let (axis, half) = (x.rank().saturating_sub(1), x.shape.last().map_or(0, |n| n / 2));
                let (value, gate) = (x.narrow(l, axis, 0, half), x.narrow(l, axis, half, half));
                let gate = gate.pointwise(l, "gelu", Saved::Input(0));
                value.mul(l, &gate, &gate.shape)
            }
            (false, Some(alpha)) => swish(l, &x, alpha == 1.0),
            (false, None) => x.pointwise(l, "gelu", Saved::Input(0)),
        };
        y.bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, DType, OutState, TensorState};

    fn calls(name: &str, shapes: &[&[u64]], out: &[u64]) -> Vec<Call> {
        let op = crate::find_op("com.microsoft", name, 1).unwrap().build(Attributes::default(), 1).unwrap();
        let state = |s| {
            Some(TensorState { shape: s, dtype: DType::Float32, requires_grad: true, is_initializer: false })
        };
        let inputs: Vec<_> = shapes.iter().copied().map(state).collect();
        let outputs = [Some(OutState { shape: out, dtype: DType::Float32 })];
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        op.pytorch(&mut l);
        l.into_parts().0
    }

    #[test]
    fn the_sum_is_kept_and_the_bias_is_not() {
        let bias = calls("BiasGelu", &[&[2, 5, 8], &[8]], &[2, 5, 8]);
        let kept: Vec<_> = bias.iter().map(|c| (c.function, c.saved.len())).collect();
        assert_eq!(kept, [("add", 0), ("gelu", 1)]);
        let split = calls("BiasSplitGelu", &[&[2, 5, 8], &[8]], &[2, 5, 4]);
        let names: Vec<_> = split.iter().map(|c| c.function).collect();
        assert_eq!(names, ["add", "slice", "slice", "gelu", "mul"]);
        assert_eq!(split[4].outputs[0].shape[..], [2, 5, 4]);
        let quick = calls("QuickGelu", &[&[2, 8]], &[2, 8]);
        assert_eq!(quick.iter().map(|c| c.function).collect::<Vec<_>>(), ["mul", "sigmoid", "mul"]);
    }
}
