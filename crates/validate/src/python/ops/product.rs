//! Products: MatMul, Gemm, Linear, Einsum.

use super::Family;
use crate::python::line::{At, Refusal};
use crate::python::quoted;
use memfit_graph::ops::einsum::Einsum;
use memfit_graph::ops::gemm::Gemm;
use memfit_graph::ops::linear::Linear;
use memfit_graph::ops::matmul::MatMul;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["MatMul"], rule: matmul },
    Family { names: &["Gemm"], rule: gemm },
    Family { names: &["Linear"], rule: linear },
    Family { names: &["Einsum"], rule: einsum },
];

fn matmul(at: &mut At<'_>) -> Result<(), Refusal> {
    if at.node.op.downcast::<MatMul>().is_some_and(|op| op.fused.is_some()) {
        return Err("fused with its neighbours".into());
    }
    let (a, b) = (at.on_device(0)?, at.on_device(1)?);
    at.set(format!("{a} @ {b}"));
    Ok(())
}

/// `F.linear` where it is one, so that a bias is added inside of the product.
fn gemm(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<Gemm>()?;
    if op.activation.is_some() {
        return Err("an activation inside of it".into());
    }
    let (a, b, bias) = (at.on_device(0)?, at.on_device(1)?, at.optional(2)?);
    let a = if op.trans_a { format!("{a}.t()") } else { a };
    let vector = at.id(2).is_none() || at.rank(2)? == 1;
    at.set(match (vector, op.trans_b) {
        (true, true) => format!("F.linear({a}, {b}, {bias})"),
        (true, false) => format!("F.linear({a}, {b}.t(), {bias})"),
        (false, true) => format!("torch.addmm({bias}, {a}, {b}.t())"),
        (false, false) => format!("torch.addmm({bias}, {a}, {b})"),
    });
    Ok(())
}

fn linear(at: &mut At<'_>) -> Result<(), Refusal> {
    let (x, weight, bias) = (at.on_device(0)?, at.on_device(1)?, at.optional(2)?);
    let out_first = at.node.op.downcast::<Linear>().is_some_and(|op| op.out_first);
    let weight = if out_first { weight } else { format!("{weight}.t()") };
    at.set(format!("F.linear({x}, {weight}, {bias})"));
    Ok(())
}

fn einsum(at: &mut At<'_>) -> Result<(), Refusal> {
    let equation = quoted(&at.op::<Einsum>()?.equation());
    let operands = (0..at.node.inputs.len()).map(|i| at.on_device(i)).collect::<Result<Vec<_>, _>>()?;
    at.set(format!("torch.einsum({equation}, {})", operands.join(", ")));
    Ok(())
}
