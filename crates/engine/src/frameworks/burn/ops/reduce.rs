//! Reductions and softmax. Burn reduces one axis at a time.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Binary, Kind, Prim, Range, Slot, Unary};
use memfit_graph::ops::arg_reduce::ArgReduce;
use memfit_graph::ops::cumulative::Cumulative;
use memfit_graph::ops::reduce::{Reduce, ReduceKind};
use memfit_graph::ops::softmax::Softmax;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        names: &[
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceStd",
            "ReduceSum",
            "ReduceSumSquare",
            "ReduceVar",
        ],
        rule: reduce,
    },
    Family { names: &["ArgMax", "ArgMin"], rule: place },
    Family { names: &["Softmax", "LogSoftmax"], rule: softmax },
    Family { names: &["CumSum"], rule: cumulative },
];

fn reduce(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Reduce>().cloned().ok_or("an unknown form")?;
    let mut x = l.input(0)?;
    if l.kind(x) == Kind::Bool {
        return Err("a reduction of truth values".into());
    }
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
    let shape = l.shape(x);
    let picks = matches!(op.kind, ReduceKind::Max | ReduceKind::Min | ReduceKind::LogSumExp);
    if picks && axes.iter().any(|axis| shape[*axis] == 0) {
        return Err("an axis without elements".into());
    }
    if !matches!(op.kind, ReduceKind::Max | ReduceKind::Min) {
        x = l.precise(x);
    }
    match op.kind {
        ReduceKind::L1 => x = l.unary(Unary::Abs, x),
        ReduceKind::L2 | ReduceKind::SumSquare => x = l.scalar(Binary::Pow, x, 2.0),
        ReduceKind::Var | ReduceKind::Std => {
            let mean = axes.iter().fold(x, |x, axis| l.reduce(Prim::MeanDim(*axis), x, *axis));
            x = l.binary(Binary::Sub, x, mean)?;
            x = l.scalar(Binary::Pow, x, 2.0);
        }
        _ => {}
    }
    // As softmax: nothing overflows where the largest is taken off before.
    let mut largest = None;
    if op.kind == ReduceKind::LogSumExp {
        let max = axes.iter().fold(x, |x, axis| l.reduce(Prim::MaxDim(*axis), x, *axis));
        x = l.binary(Binary::Sub, x, max)?;
        x = l.unary(Unary::Exp, x);
        largest = Some(max);
    }
    let elements = axes.iter().map(|axis| shape[*axis] as f64).product::<f64>();
    for axis in axes {
        let prim = match op.kind {
            ReduceKind::Mean | ReduceKind::Var | ReduceKind::Std => Prim::MeanDim(axis),
            ReduceKind::Max => Prim::MaxDim(axis),
            ReduceKind::Min => Prim::MinDim(axis),
            _ => Prim::SumDim(axis),
        };
        x = l.reduce(prim, x, axis);
    }
    if op.unbiased {
        x = l.scalar(Binary::Mul, x, elements / (elements - 1.0));
    }
    match op.kind {
        ReduceKind::L2 | ReduceKind::Std => x = l.unary(Unary::Sqrt, x),
        ReduceKind::LogSum | ReduceKind::LogSumExp => x = l.unary(Unary::Log, x),
        _ => {}
    }
    if let Some(largest) = largest {
        x = l.binary(Binary::Add, x, largest)?;
    }
    let y = l.output_shape(0).map(|shape| l.reshape(x, shape))?;
    l.set(0, y);
    Ok(())
}

/// Where the largest or smallest element is.
fn place(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<ArgReduce>().copied().ok_or("an unknown form")?;
    if op.select_last {
        return Err("the last of equal elements".into());
    }
    let x = l.input(0)?;
    let mut shape = l.shape(x);
    let axis = l.axis(op.axis, shape.len())?;
    if shape[axis] == 0 || l.kind(x) == Kind::Bool {
        return Err("no elements that have an order".into());
    }
    shape[axis] = 1;
    let prim = if op.min { Prim::ArgMin(axis) } else { Prim::ArgMax(axis) };
    let y = l.call(prim, &[x], Kind::Int, shape);
    let y = l.output_shape(0).map(|shape| l.reshape(y, shape))?;
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
    let op = l.node.op.downcast::<Cumulative>().copied().ok_or("an unknown form")?;
    let turned = |l: &mut Lower<'_, '_>, x: Slot| {
        let mut ranges: Vec<Range> =
            l.shape(x).iter().map(|n| Range { start: 0, end: *n, step: 1 }).collect();
        ranges[axis].step = -1;
        l.slice(x, ranges)
    };
    let mut y = if op.reverse { turned(l, x) } else { x };
    if op.exclusive {
        let size = l.shape(y)[axis];
        let mut pads = vec![(0, 0); l.rank(y)];
        pads[axis] = (1, 0);
        y = super::layout::pad(l, y, &pads, 0.0);
        y = l.narrow(y, axis, 0, size);
    }
    y = l.like(Prim::CumSum(axis), &[y]);
    if op.reverse {
        y = turned(l, y);
    }
    l.set(0, y);
    Ok(())
}
