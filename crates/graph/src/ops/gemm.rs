//! Gemm, com.microsoft.FusedGemm, GemmFastGelu and GemmFloat8. ONNX 1, 6, 7, 9, 11, 13; PyTorch's `nn.Linear` on two
//! axes, Keras `Dense`.
//!
//! PyTorch runs `addmm` where there is a third input and `mm` where there is none: each factor is kept where the other
//! one needs a gradient (derivatives.yaml: `addmm`, `mm`); the bias's gradient is the incoming one, summed.

use super::calls::Traced;
use super::matmul::{addmm, matmul};
use crate::kernels::TfLowering;
use crate::{Attributes, Autocast, Infer, Lowering, Op, OpError, OpSpec, Saved, Shape};
use std::sync::Arc;

/// `alpha * A' * B' + beta * C`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gemm {
    /// The contrib form's name.
    pub contrib: Option<&'static str>,
    /// Whether A is transposed.
    pub trans_a: bool,
    /// Whether B is transposed.
    pub trans_b: bool,
    /// Whether C has a factor.
    pub scaled: bool,
    /// The factors of the product and of C, where the file gives them.
    pub factors: [Option<f64>; 2],
    /// The activation of the contrib forms, and what autograd keeps of it.
    pub activation: Option<(&'static str, Saved)>,
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec { domain: "", name: "Gemm", since: &[1, 6, 7, 9, 11, 13], build: |a, _| build(a, None) },
    OpSpec {
        domain: "com.microsoft",
        name: "FusedGemm",
        since: &[1],
        build: |a, _| build(a, Some("com.microsoft.FusedGemm")),
    },
    OpSpec {
        domain: "com.microsoft",
        name: "GemmFastGelu",
        since: &[1],
        build: |_, _| {
            let (contrib, activation) = (Some("com.microsoft.GemmFastGelu"), Some(("gelu", Saved::Input(0))));
            Ok(Arc::new(Gemm { contrib, activation, ..Gemm::default() }))
        },
    },
    OpSpec {
        domain: "com.microsoft",
        name: "GemmFloat8",
        since: &[1],
        build: |a, _| build(a, Some("com.microsoft.GemmFloat8")),
    },
];

fn build(a: &mut Attributes, contrib: Option<&'static str>) -> Result<Arc<dyn Op>, OpError> {
    Ok(Arc::new(Gemm {
        contrib,
        trans_a: a.flag("transA")?,
        trans_b: a.flag("transB")?,
        scaled: a.float("beta")?.is_some_and(|beta| beta != 1.0),
        factors: [a.float("alpha")?, a.float("beta")?].map(|by| by.filter(|by| *by != 1.0)),
        activation: a.text("activation")?.and_then(|name| activation(&name)),
    }))
}

/// ATen's name of an activation, and what autograd keeps of it; `None` for the identity and unknown ones.
pub(super) fn activation(name: &str) -> Option<(&'static str, Saved)> {
    Some(match &*name.to_ascii_lowercase() {
        "relu" => ("relu", Saved::Output(0)),
        "tanh" => ("tanh", Saved::Output(0)),
        "sigmoid" => ("sigmoid", Saved::Output(0)),
        "leakyrelu" => ("leaky_relu", Saved::Input(0)),
        "clip" => ("clamp", Saved::Input(0)),
        "hardsigmoid" => ("hardsigmoid", Saved::Input(0)),
        "elu" => ("elu", Saved::Input(0)),
        "gelu" | "fastgelu" | "gelu_fast" => ("gelu", Saved::Input(0)),
        "silu" | "swish" => ("silu", Saved::Input(0)),
        _ => return None,
    })
}

impl Op for Gemm {
    fn name(&self) -> &str {
        self.contrib.unwrap_or("Gemm")
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let dtype = cx.dtype(0);
        if self.contrib == Some("com.microsoft.GemmFastGelu") {
            let shape = cx.shape(0).zip(cx.shape(1)).map(|(a, b)| super::matmul::product_shape(a, b));
            cx.set(0, dtype, shape.transpose()?);
            return Ok(());
        }
        let (a, b) = (cx.shape_of_rank(0, 2)?, cx.shape_of_rank(1, 2)?);
        let side = |s: &Shape, trans: bool| {
            if trans { [s[1].clone(), s[0].clone()] } else { [s[0].clone(), s[1].clone()] }
        };
        let (a, b) = (a.map(|s| side(s, self.trans_a)), b.map(|s| side(s, self.trans_b)));
        if let (Some([_, x]), Some([y, _])) = (&a, &b)
            && x.known().zip(y.known()).is_some_and(|(x, y)| x != y)
        {
            return Err(OpError::mismatch(format!("{x} rows in the second matrix"), y));
        }
        let shape: Option<Shape> = a.zip(b).map(|([m, _], [_, n])| [m, n].into_iter().collect());
        if let (Some(out), Some(c)) = (&shape, cx.shape(2))
            && (c.rank() > 2 || out.broadcast(c).is_none())
            && cx.batch().is_none()
        {
            return Err(OpError::input(2, format!("a shape that broadcasts to {out}"), format!("shape {c}")));
        }
        cx.set(0, dtype, shape);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (a, b) = (l.input(0), l.input(1));
        let out = l.out_shape(0);
        let mut y = l.matmul("MatMul", a, b, out);
        if l.has(2) {
            let c = l.input(2);
            y = if l.shape(c).len() == 1 { l.bias_add(y, c) } else { l.binary("AddV2", y, c) };
        }
        if let Some((name, _)) = self.activation {
            y = l.activation(name, y);
        }
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        // Cast before they are turned: only a parameter itself is cast once for the whole step.
        let [a, b] = [0, 1].map(|i| Traced::input(l, i).autocast(l, Autocast::Lower));
        let a = if self.trans_a { a.transpose_last(l) } else { a };
        let b = if self.trans_b { b.transpose_last(l) } else { b };
        let mut y = match Traced::optional(l, 2) {
            Some(c) if a.rank() == 2 => addmm(l, &c, &a, &b, l.out_shape(0), self.scaled),
            Some(c) => super::matmul::linear(l, &a, &b, Some(&c)),
            None => matmul(l, &a, &b),
        };
        if let Some((name, saved)) = self.activation {
            y = y.pointwise(l, name, saved);
        }
        y.bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Attributes, Binding, DType, Dim, Grad, Graph, Role, TensorState, Type, infer};

    fn gemm(a: Shape, b: Shape, attributes: Attributes) -> Result<String, String> {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, a), Role::Input);
        let w = g.add_tensor("w", Type::tensor(DType::Float32, b), Role::Initializer);
        g.inputs = vec![x];
        let y = g.push("Gemm", attributes, &[x, w], "y").unwrap();
        let inferred = infer(&g, &Binding::default()).map_err(|p| p[0].to_string())?;
        Ok(inferred.shape(y).unwrap().to_string())
    }

    #[test]
    fn transposed_sides_are_read_the_other_way_round() {
        let batch: Shape = [Dim::symbol("batch"), Dim::Known(512)].into_iter().collect();
        let trans = |name| Attributes::from([(name, Attribute::Int(1))]);
        assert_eq!(gemm(batch.clone(), Shape::from([10, 512]), trans("transB")).unwrap(), "batchx10");
        assert_eq!(gemm(Shape::from([3, 5]), Shape::from([3, 7]), trans("transA")).unwrap(), "5x7");
        assert!(gemm(batch, Shape::from([10, 512]), Attributes::default()).unwrap_err().contains("512"));
    }

    #[test]
    fn the_bias_is_not_kept_and_its_gradient_is_a_sum() {
        let state =
            |shape| TensorState { shape, dtype: DType::Float32, requires_grad: true, is_initializer: false };
        let inputs = [Some(state(&[8, 4])), Some(state(&[4, 2])), Some(state(&[2]))];
        let out = [Some(crate::OutState { shape: &[8, 2], dtype: DType::Float32 })];
        let mut l = Lowering::new(&inputs, &out, None, true);
        Gemm::default().pytorch(&mut l);
        let call = l.into_parts().0.remove(0);
        assert_eq!((call.function, &call.grads[2]), ("addmm", &Grad::Pass));
        let factor = |input, needed_by| Saved::InputFor { input, needed_by };
        assert_eq!(call.saved[..], [factor(0, 1), factor(1, 0)]);
    }
}
