//! GlobalAveragePool, GlobalMaxPool, GlobalLpPool. ONNX 1, 2, 22; Keras `GlobalAveragePooling*D`, `GlobalMaxPooling*D`.
//!
//! PyTorch exports these from adaptive pooling to one element: the average is `mean`, which keeps nothing and whose
//! gradient is expanded and divided; the maximum keeps its input and int64 indices (derivatives.yaml: `mean.dim`,
//! `adaptive_max_pool2d`; aten/src/ATen/native/AdaptiveAveragePooling.cpp takes `mean` for a size of one).

use super::calls::Traced;
use super::pool::{PoolKind, average, lp_root, ones, pow};
use crate::kernels::TfLowering;
use crate::{Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved};
use std::sync::Arc;

/// Reduces all spatial axes to one element each.
#[derive(Clone, Copy, Debug)]
pub struct GlobalPool {
    /// Which reduction.
    pub kind: PoolKind,
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "GlobalAveragePool",
        since: &[1, 22],
        build: |_, _| Ok(Arc::new(GlobalPool { kind: PoolKind::Average })),
    },
    OpSpec {
        domain: "",
        name: "GlobalMaxPool",
        since: &[1, 22],
        build: |_, _| Ok(Arc::new(GlobalPool { kind: PoolKind::Max })),
    },
    OpSpec {
        domain: "",
        name: "GlobalLpPool",
        since: &[1, 2, 22],
        build: |_, _| Ok(Arc::new(GlobalPool { kind: PoolKind::Lp })),
    },
];

impl Op for GlobalPool {
    fn name(&self) -> &str {
        match self.kind {
            PoolKind::Average => "GlobalAveragePool",
            PoolKind::Max => "GlobalMaxPool",
            PoolKind::Lp => "GlobalLpPool",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let shape = match cx.shape(0) {
            Some(x) if x.rank() < 2 => {
                return Err(OpError::input(0, "batch and channels", format!("shape {x}")));
            }
            shape => shape.map(ones),
        };
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.input(0);
        let name = if self.kind == PoolKind::Max { "Max" } else { "Mean" };
        let x = if self.kind == PoolKind::Lp { l.unary("Pow", x) } else { x };
        let out = l.out_shape(0);
        let y = l.reduce(name, x, out);
        let y = if self.kind == PoolKind::Lp { l.unary("Pow", y) } else { y };
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let out = l.out_shape(0);
        match self.kind {
            PoolKind::Average => {
                let call = Call::new("mean").input(Operand::Input(0), Grad::New);
                l.finish(call.output(out, OutDtype::Like(0), Place::New));
            }
            PoolKind::Max => {
                let call = Call::new("adaptive_max_pool2d")
                    .input(Operand::Input(0), Grad::New)
                    .output(out, OutDtype::Like(0), Place::New)
                    .output(out, OutDtype::Is(DType::Int64), Place::New)
                    .saves([Saved::Input(0), Saved::Output(1)]);
                l.finish(call);
            }
            PoolKind::Lp => {
                let x = Traced::input(l, 0);
                let power = pow(l, &x);
                let mean = average(l, &power, out);
                lp_root(l, &mean).bind(l, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, Binding, Dim, Graph, Lowering, Role, Shape, Type, infer};

    #[test]
    fn spatial_axes_become_one_and_the_mean_keeps_nothing() {
        let mut g = Graph::default();
        let shape: Shape = [Dim::symbol("b"), 8.into(), Dim::symbol("h"), 7.into()].into_iter().collect();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, shape), Role::Input);
        g.inputs = vec![x];
        let y = g.push("GlobalAveragePool", Attributes::default(), &[x], "y").unwrap();
        assert_eq!(infer(&g, &Binding::default()).unwrap().shape(y).unwrap().to_string(), "bx8x1x1");
        let mut l = Lowering::new(&[], &[], None, true);
        GlobalPool { kind: PoolKind::Average }.pytorch(&mut l);
        assert!(l.into_parts().0[0].saved.is_empty());
    }
}
