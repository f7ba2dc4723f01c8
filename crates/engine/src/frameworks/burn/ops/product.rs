//! Products: MatMul, Gemm, Linear. burn-nn's `Linear` keeps its weight as `[in, out]`; a file that has it the other way round is
//! turned by a view, which takes no memory.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::Binary;
use memfit_graph::ops::gemm::Gemm;
use memfit_graph::ops::linear::Linear;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["MatMul"], rule: matmul },
    Family { names: &["Gemm"], rule: gemm },
    Family { names: &["Linear"], rule: linear },
];

fn matmul(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let (a, b) = (l.input(0)?, l.input(1)?);
    let y = l.matmul(a, b)?;
    l.set(0, y);
    Ok(())
}

fn gemm(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Gemm>().copied().ok_or("an unknown form")?;
    if op.activation.is_some() {
        return Err("an activation inside of it".into());
    }
    let (mut a, mut b) = (l.input(0)?, l.input(1)?);
    if op.trans_a {
        a = l.swap(a, 0, 1);
    }
    if op.trans_b {
        b = l.swap(b, 0, 1);
    }
    let c = l.optional(2)?;
    let y = match c {
        Some(c) if l.rank(c) != 1 => {
            let y = l.matmul(a, b)?;
            l.binary(Binary::Add, y, c)?
        }
        bias => l.linear(a, b, bias),
    };
    l.set(0, y);
    Ok(())
}

fn linear(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let (x, mut weight) = (l.input(0)?, l.input(1)?);
    if l.node.op.downcast::<Linear>().is_some_and(|op| op.out_first) {
        weight = l.swap(weight, 0, 1);
    }
    let bias = l.optional(2)?;
    let y = if l.rank(x) < 2 {
        let wide = l.unsqueeze_to(x, 2);
        let y = l.linear(wide, weight, bias);
        l.output_shape(0).map(|shape| l.reshape(y, shape))?
    } else {
        l.linear(x, weight, bias)
    };
    l.set(0, y);
    Ok(())
}
