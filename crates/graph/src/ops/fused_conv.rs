//! com.microsoft's FusedConv, NhwcConv and NhwcFusedConv: what an optimizer makes of Conv, an addition and an activation.
//!
//! Trained, they are the operators they were made of: the convolution keeps input and weight, the activation what its own
//! rule says.

use super::calls::{Traced, positive};
use super::conv::convolved;
use super::gemm::activation;
use super::spatial::Window;
use crate::kernels::TfLowering;
use crate::{Attributes, Autocast, Call, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved};
use std::sync::Arc;

/// A convolution with what was fused into it.
#[derive(Clone, Debug)]
pub struct FusedConv {
    /// The operator's name.
    pub name: &'static str,
    /// Kernel, strides, pads, dilations.
    pub window: Window,
    /// Channel groups.
    pub groups: u64,
    /// Whether the channels are the last axis.
    pub channels_last: bool,
    /// The activation, and what autograd keeps of it.
    pub activation: Option<(&'static str, Saved)>,
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "com.microsoft",
        name: "FusedConv",
        since: &[1],
        build: |a, _| build(a, "com.microsoft.FusedConv", false),
    },
    OpSpec {
        domain: "com.microsoft",
        name: "NhwcConv",
        since: &[1],
        build: |a, _| build(a, "com.microsoft.NhwcConv", true),
    },
    OpSpec {
        domain: "com.microsoft",
        name: "NhwcFusedConv",
        since: &[1],
        build: |a, _| build(a, "com.microsoft.NhwcFusedConv", true),
    },
];

fn build(a: &mut Attributes, name: &'static str, channels_last: bool) -> Result<Arc<dyn Op>, OpError> {
    Ok(Arc::new(FusedConv {
        name,
        window: Window::read(a)?,
        groups: positive(a, "group", 1)?,
        channels_last,
        activation: a.text("activation")?.and_then(|name| activation(&name)),
    }))
}

impl Op for FusedConv {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let shape = convolved(cx, &self.window, self.groups, [0, 1], self.channels_last)?;
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, w, shape) = (l.input(0), l.input(1), l.out_shape(0));
        let depthwise = self.groups > 1 && l.in_shape(1).get(1) == Some(&1);
        let name = if depthwise { "DepthwiseConv2dNative" } else { "Conv2D" };
        let mut y = l.convolution(name, x, w, shape);
        if l.has(2) {
            let bias = l.input(2);
            y = l.bias_add(y, bias);
        }
        if l.has(3) {
            let residual = l.input(3);
            y = l.binary("AddV2", y, residual);
        }
        if let Some((name, _)) = self.activation {
            y = l.activation(name, y);
        }
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (x, weight) = (Traced::input(l, 0), Traced::input(l, 1));
        let shape = l.out_shape(0);
        let mut call = Call::new("convolution")
            .autocast(Autocast::Lower)
            .input(x.operand, Grad::New)
            .input(weight.operand, Grad::New);
        if let Some(bias) = Traced::optional(l, 2) {
            call = call.input(bias.operand, Grad::New);
        }
        call = call.output(shape, OutDtype::Promoted, Place::New);
        let call = call.saves([Saved::Input(0), Saved::Input(1)]);
        let mut y = Traced::of(l, call, shape, &[&x, &weight]);
        if let Some(residual) = Traced::optional(l, 3) {
            y = y.add(l, &residual, shape);
        }
        if let Some((name, saved)) = self.activation {
            y = y.pointwise(l, name, saved);
        }
        y.bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Binding, DType, Graph, Role, Shape, Type, infer};

    #[test]
    fn channels_may_come_last() {
        let spec = SPECS.iter().find(|s| s.name == "NhwcFusedConv").unwrap();
        let attributes = Attributes::from([("activation", Attribute::Text("Relu".into()))]);
        let op = spec.build(attributes, 1).unwrap();
        assert_eq!(op.downcast::<FusedConv>().unwrap().activation, Some(("relu", Saved::Output(0))));
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([2, 9, 7, 3])), Role::Input);
        let w = g.add_tensor("w", Type::tensor(DType::Float32, Shape::from([8, 3, 3, 3])), Role::Initializer);
        let y = g.add_tensor("y", Type::Unknown, Role::Intermediate);
        g.inputs = vec![x];
        g.add_node("conv", op, vec![Some(x), Some(w)], vec![Some(y)]);
        assert_eq!(infer(&g, &Binding::default()).unwrap().shape(y), Some(&Shape::from([2, 7, 5, 8])));
    }
}
