//! Products: MatMul, Gemm, Linear, Bilinear, Einsum. burn-nn's `Linear` keeps its weight as `[in, out]`; a file that has it the other way round is
//! turned by a view, which takes no memory.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Binary, Slot};
use memfit_graph::ops::einsum::Einsum;
use memfit_graph::ops::gemm::Gemm;
use memfit_graph::ops::linear::Linear;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["MatMul"], rule: matmul },
    Family { names: &["Gemm"], rule: gemm },
    Family { names: &["Linear"], rule: linear },
    Family { names: &["Bilinear"], rule: bilinear },
    Family { names: &["Einsum"], rule: einsum },
];

fn matmul(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let (mut a, mut b) = (l.input(0)?, l.input(1)?);
    // A vector is a row on the left and a column on the right.
    if l.rank(b) == 1 {
        let size = l.shape(b)[0];
        b = l.reshape(b, vec![size, 1]);
    }
    a = l.unsqueeze_to(a, 2);
    let y = l.matmul(a, b)?;
    let y = l.output_shape(0).map(|shape| l.reshape(y, shape))?;
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
    let [alpha, beta] = op.factors;
    let y = match c {
        Some(c) if l.rank(c) != 1 || alpha.or(beta).is_some() => {
            let mut y = l.matmul(a, b)?;
            if let Some(alpha) = alpha {
                y = l.scalar(Binary::Mul, y, alpha);
            }
            let c = beta.map_or(c, |beta| l.scalar(Binary::Mul, c, beta));
            l.binary(Binary::Add, y, c)?
        }
        None if alpha.is_some() => {
            let y = l.matmul(a, b)?;
            l.scalar(Binary::Mul, y, alpha.unwrap_or(1.0))
        }
        bias => l.linear(a, b, bias),
    };
    l.set(0, y);
    Ok(())
}

/// Two products, of which the first holds a matrix for each row.
fn bilinear(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let (a, b, weight) = (l.input(0)?, l.input(1)?, l.input(2)?);
    let output = l.output_shape(0)?;
    let Ok([rows, outputs, columns]) = <[usize; 3]>::try_from(l.shape(weight)) else {
        return Err("a weight of another rank".into());
    };
    let weight = l.reshape(weight, vec![rows, outputs * columns]);
    let matrices = l.matmul(a, weight)?;
    let matrices = l.reshape(matrices, [&output[..], &[columns]].concat());
    let column = [&l.shape(b)[..], &[1]].concat();
    let b = l.reshape(b, column);
    let y = l.matmul(matrices, b)?;
    let y = l.reshape(y, output);
    l.set(0, y);
    Ok(())
}

/// A product of two: axes that both have and keep are batches, those that both have and lose are summed over. As PyTorch's `einsum`
/// makes one `bmm` of it.
fn einsum(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Einsum>().cloned().ok_or("an unknown form")?;
    if l.node.inputs.len() != 2 {
        return Err("not two operands".into());
    }
    let (a, b) = (l.input(0)?, l.input(1)?);
    let (shapes, ranks) = ([l.shape(a), l.shape(b)], [l.rank(a), l.rank(b)]);
    let (axes, output) = op.axes(&ranks).map_err(|e| e.to_string())?;
    let size = |label: usize| {
        let found = axes.iter().zip(&shapes).find_map(|(labels, shape)| {
            labels.iter().position(|other| *other == label).and_then(|at| shape.get(at).copied())
        });
        found.unwrap_or(1)
    };
    for (labels, shape) in axes.iter().zip(&shapes) {
        let twice = (1..labels.len()).any(|i| labels[..i].contains(&labels[i]));
        if twice || labels.iter().zip(shape).any(|(label, n)| size(*label) != *n) {
            return Err("diagonals or sizes of one".into());
        }
    }
    let of = |labels: &[usize], both: bool, kept: bool, other: &[usize]| -> Vec<usize> {
        let is = |label: &&usize| other.contains(label) == both && output.contains(label) == kept;
        labels.iter().filter(is).copied().collect()
    };
    let (left, right) = (&axes[0][..], &axes[1][..]);
    if !of(left, false, false, right).is_empty() || !of(right, false, false, left).is_empty() {
        return Err("sums over an axis of one operand".into());
    }
    let (batch, summed) = (of(left, true, true, right), of(left, true, false, right));
    let (rows, columns) = (of(left, false, true, right), of(right, false, true, left));
    let count = |labels: &[usize]| labels.iter().map(|label| size(*label)).product::<usize>();
    let matrix = |l: &mut Lower<'_, '_>, x: Slot, own: &[usize], order: [&[usize]; 3]| {
        let wanted = order.concat();
        let turn = wanted.iter().filter_map(|label| own.iter().position(|other| other == label)).collect();
        let turned = l.permute(x, turn);
        l.reshape(turned, order.map(count).to_vec())
    };
    let a = matrix(l, a, left, [&batch, &rows, &summed]);
    let b = matrix(l, b, right, [&batch, &summed, &columns]);
    let y = l.matmul(a, b)?;
    let made = [&batch[..], &rows, &columns].concat();
    let y = l.reshape(y, made.iter().map(|label| size(*label)).collect());
    let turn = output.iter().filter_map(|label| made.iter().position(|other| other == label)).collect();
    let y = l.permute(y, turn);
    let y = l.output_shape(0).map(|shape| l.reshape(y, shape))?;
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
