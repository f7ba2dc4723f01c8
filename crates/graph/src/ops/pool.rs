//! MaxPool, AveragePool, LpPool. ONNX 1, 2, 7, 8, 10, 11, 12, 18, 19, 22; Keras `MaxPooling*D`, `AveragePooling*D`.
//!
//! Max pooling keeps its input and an int64 index per output element, average pooling its input (derivatives.yaml:
//! `max_pool2d_with_indices`, `avg_pool2d`). Lp pooling is a composite: power, average, sign, absolute value, relu, two
//! products and a root (torch/nn/functional.py `lp_pool2d`). On none of autocast's lists, but for the powers.

use super::calls::{Traced, positive};
use super::spatial::Window;
use crate::kernels::TfLowering;
use crate::{
    Attributes, Autocast, Call, DType, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype,
    Place, Saved, Shape,
};
use std::sync::Arc;

/// Which reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// The largest element; maybe with its index.
    Max,
    /// The mean.
    Average,
    /// The p-norm.
    Lp,
}

/// A window that moves over the spatial axes and reduces what it sees.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Which reduction.
    pub kind: PoolKind,
    /// Kernel, strides, pads, dilations.
    pub window: Window,
    /// Whether an average counts what is padded.
    pub counts_pads: bool,
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "MaxPool",
        since: &[1, 8, 10, 11, 12, 22],
        build: |a, _| build(a, PoolKind::Max),
    },
    OpSpec {
        domain: "",
        name: "AveragePool",
        since: &[1, 7, 10, 11, 19, 22],
        build: |a, _| build(a, PoolKind::Average),
    },
    OpSpec {
        domain: "",
        name: "LpPool",
        since: &[1, 2, 11, 18, 22],
        build: |a, _| {
            // Opset 1 writes p as a float.
            if !a.has("p") || a.float("p").is_err() {
                positive(a, "p", 2)?;
            }
            build(a, PoolKind::Lp)
        },
    },
];

fn build(a: &Attributes, kind: PoolKind) -> Result<Arc<dyn Op>, OpError> {
    let window = Window::read(a)?;
    if window.kernel.is_none() {
        return Err(OpError::missing_attribute("kernel_shape"));
    }
    let counts_pads = a.flag("count_include_pad")?;
    Ok(Arc::new(Pool { kind, window, counts_pads }))
}

/// The shape after a window with its own kernel has moved over `x`: `first` leading axes stay.
pub(super) fn pooled_shape(window: &Window, x: &Shape, channels_last: bool) -> Result<Shape, OpError> {
    let kernel = window.kernel.as_deref().unwrap_or_default();
    let axes = kernel.len();
    if axes == 0 || x.rank() != axes + 2 {
        return Err(OpError::input(
            0,
            format!("{axes} spatial axes after batch and channels"),
            format!("shape {x}"),
        ));
    }
    let first = if channels_last { 1 } else { 2 };
    let mut shape = x.clone();
    for (i, kernel) in kernel.iter().enumerate() {
        shape.dims_mut()[first + i] = window.output(i, axes, &x[first + i], *kernel)?;
    }
    Ok(shape)
}

impl Op for Pool {
    fn name(&self) -> &str {
        match self.kind {
            PoolKind::Max => "MaxPool",
            PoolKind::Average => "AveragePool",
            PoolKind::Lp => "LpPool",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let shape = match cx.shape(0) {
            Some(x) => Some(pooled_shape(&self.window, x, false)?),
            None => None,
        };
        cx.set(0, cx.dtype(0), shape.clone());
        cx.set(1, DType::Int64, shape);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.input(0);
        let (shape, deep) = (l.out_shape(0), l.in_shape(0).len() > 4);
        let y = match (self.kind, deep) {
            (PoolKind::Max, false) => l.pool("MaxPool", x, shape),
            (PoolKind::Max, true) => l.pool("MaxPool3D", x, shape),
            (PoolKind::Average, false) => l.pool("AvgPool", x, shape),
            (PoolKind::Average, true) => l.pool("AvgPool3D", x, shape),
            (PoolKind::Lp, _) => {
                let power = l.unary("Pow", x);
                let mean = l.pool("AvgPool", power, shape);
                l.unary("Pow", mean)
            }
        };
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        match self.kind {
            PoolKind::Max => {
                let call = Call::new("max_pool2d_with_indices")
                    .input(Operand::Input(0), Grad::New)
                    .output(l.out_shape(0), OutDtype::Like(0), Place::New)
                    .output(l.out_shape(0), OutDtype::Is(DType::Int64), Place::New)
                    .saves([Saved::Input(0), Saved::Output(1)]);
                let y = l.call(call);
                l.bind(0, y);
                if let (Operand::Result { call, .. }, true) = (y, l.wants(1)) {
                    l.bind(1, Operand::Result { call, output: 1 });
                }
            }
            PoolKind::Average => {
                let x = Traced::input(l, 0);
                average(l, &x, l.out_shape(0)).bind(l, 0);
            }
            PoolKind::Lp => {
                let x = Traced::input(l, 0);
                let y = l.out_shape(0);
                let power = pow(l, &x);
                let mean = average(l, &power, y);
                lp_root(l, &mean).bind(l, 0);
            }
        }
    }
}

/// `avg_pool`: keeps its input.
pub(super) fn average(l: &mut Lowering<'_>, x: &Traced, shape: &[u64]) -> Traced {
    let call = Call::new("avg_pool2d").input(x.operand, Grad::New).saves([Saved::Input(0)]);
    Traced::of(l, call.output(shape, OutDtype::Like(0), Place::New), shape, &[x])
}

/// `pow` with a number: keeps its input; on autocast's fp32 list.
pub(super) fn pow(l: &mut Lowering<'_>, x: &Traced) -> Traced {
    let call = Call::new("pow").autocast(Autocast::Fp32).input(x.operand, Grad::Pointwise);
    let call = call.saves([Saved::Input(0)]).output(&x.shape, OutDtype::Promoted, Place::Pointwise);
    Traced::of(l, call, &x.shape, &[x])
}

/// `(sign(x) * relu(abs(x)) * k) ** (1 / p)`, as `lp_pool` ends.
pub(super) fn lp_root(l: &mut Lowering<'_>, x: &Traced) -> Traced {
    let sign = x.scale(l, "sign");
    let abs = x.pointwise(l, "abs", Saved::Input(0)).pointwise(l, "relu", Saved::Output(0));
    let scaled = sign.mul(l, &abs, &x.shape).scale(l, "mul");
    pow(l, &scaled)
}

/// Whether a spatial size is one, so that a window over it is the identity; for callers that reduce all of it.
pub(super) fn ones(x: &Shape) -> Shape {
    let dims = x.dims().iter().enumerate();
    dims.map(|(i, d)| if i < 2 { d.clone() } else { Dim::Known(1) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Binding, Graph, OutState, Role, TensorState, Type, infer};

    #[test]
    fn an_index_is_kept_for_every_output() {
        let x = TensorState {
            shape: &[2, 64, 112, 112],
            dtype: DType::Float32,
            requires_grad: true,
            is_initializer: false,
        };
        let (inputs, outputs) =
            ([Some(x)], [Some(OutState { shape: &[2, 64, 56, 56], dtype: DType::Float32 })]);
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        Pool { kind: PoolKind::Max, window: Window::default(), counts_pads: false }.pytorch(&mut l);
        let call = l.into_parts().0.remove(0);
        assert_eq!(call.saved[..], [Saved::Input(0), Saved::Output(1)]);
        assert_eq!(call.outputs[1].dtype, OutDtype::Is(DType::Int64));
    }

    #[test]
    fn a_kernel_of_another_rank_is_an_error() {
        let kernel = |k: Vec<i64>| Attributes::from([("kernel_shape", Attribute::Ints(k))]);
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([1, 3, 32, 32])), Role::Input);
        g.inputs = vec![x];
        let y = g.push("AveragePool", kernel(vec![2, 2]), &[x], "y").unwrap();
        assert_eq!(infer(&g, &Binding::default()).unwrap().shape(y), Some(&Shape::from([1, 3, 31, 31])));
        g.push("MaxPool", kernel(vec![2]), &[x], "z").unwrap();
        assert!(infer(&g, &Binding::default()).unwrap_err()[0].message.contains("1 spatial axes"));
        assert!(g.push("MaxPool", Attributes::default(), &[x], "z").is_err());
        for op in ["MaxPool", "AveragePool", "LpPool", "Conv"] {
            let error = g.push(op, kernel(vec![0, 2]), &[x], "z").unwrap_err().to_string();
            assert!(error.contains("`kernel_shape`: expected positive numbers"), "{op}: {error}");
        }
    }
}
