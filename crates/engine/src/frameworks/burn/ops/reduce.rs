//! Reductions and softmax. Burn reduces one axis at a time.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Binary, Prim, Unary};
use memfit_graph::ops::reduce::{Reduce, ReduceKind};
use memfit_graph::ops::softmax::Softmax;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        names: &["ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare"],
        rule: reduce,
    },
    Family { names: &["Softmax", "LogSoftmax"], rule: softmax },
    Family { names: &["CumSum"], rule: cumulative },
];

fn reduce(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Reduce>().cloned().ok_or("an unknown form")?;
    let mut x = l.input(0)?;
    let rank = l.rank(x);
    let given = match (op.axes.listed, l.id(1)) {
        (Some(axes), _) => axes,
        (None, None) => Vec::new(),
        (None, Some(_)) => l.ints(1).ok_or("axes that are not known")?,
    };
    let axes = if given.is_empty() && !op.axes.noop_when_empty {
        (0..rank).collect()
    } else {
        given.iter().map(|a| l.axis(*a, rank)).collect::<Result<Vec<_>, _>>()?
    };
    if matches!(op.kind, ReduceKind::L2 | ReduceKind::SumSquare) {
        x = l.scalar(Binary::Pow, x, 2.0);
    }
    for axis in axes {
        let prim = match op.kind {
            ReduceKind::Mean => Prim::MeanDim(axis),
            ReduceKind::Max => Prim::MaxDim(axis),
            ReduceKind::Min => Prim::MinDim(axis),
            _ => Prim::SumDim(axis),
        };
        x = l.reduce(prim, x, axis);
    }
    if op.kind == ReduceKind::L2 {
        x = l.unary(Unary::Sqrt, x);
    }
    let y = l.output_shape(0).map(|shape| l.reshape(x, shape))?;
    l.set(0, y);
    Ok(())
}

fn softmax(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Softmax>().copied().ok_or("an unknown form")?;
    let x = l.input(0)?;
    let shape = l.shape(x);
    let axis = l.axis(op.axis, shape.len())?;
    let y = if op.flattens && axis + 1 != shape.len() {
        let flat = l.reshape(x, vec![shape[..axis].iter().product(), shape[axis..].iter().product()]);
        let y = l.softmax(flat, 1, op.log)?;
        l.reshape(y, shape)
    } else {
        l.softmax(x, axis, op.log)?
    };
    l.set(0, y);
    Ok(())
}

fn cumulative(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    let axis = l.number(1).ok_or("an axis that is not known")?;
    let axis = l.axis(axis as i64, l.rank(x))?;
    let y = l.like(Prim::CumSum(axis), &[x]);
    l.set(0, y);
    Ok(())
}
