//! Reductions, softmax, cumulative sums, arguments of extremes.

use super::Family;
use crate::python::line::{At, Refusal, truth, tuple};
use memfit_graph::ops::arg_reduce::ArgReduce;
use memfit_graph::ops::cumulative::Cumulative;
use memfit_graph::ops::reduce::{Reduce, ReduceKind};
use memfit_graph::ops::softmax::Softmax;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        names: &[
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceStd",
            "ReduceSum",
            "ReduceSumSquare",
            "ReduceVar",
        ],
        rule: reduce,
    },
    Family { names: &["Softmax", "LogSoftmax"], rule: softmax },
    Family { names: &["CumSum"], rule: cumulative },
    Family { names: &["ArgMax", "ArgMin"], rule: arg },
];

fn reduce(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<Reduce>()?;
    let rank = at.rank(0)?;
    let given = match (&op.axes.listed, at.id(1)) {
        (Some(axes), _) => axes.clone(),
        (None, None) => Vec::new(),
        (None, Some(_)) => at.ints(1).ok_or("axes that are not known")?,
    };
    if given.is_empty() && op.axes.noop_when_empty {
        let x = at.on_device(0)?;
        at.set(x);
        return Ok(());
    }
    let axes = match &given[..] {
        [] => (0..rank).collect(),
        given => given.iter().map(|axis| at.axis(*axis, rank)).collect::<Result<Vec<_>, _>>()?,
    };
    let keep = truth(op.axes.keep_dims);
    let over = tuple(&axes);
    let x = at.on_device(0)?;
    at.set(match op.kind {
        ReduceKind::Mean => format!("{x}.mean({over}, keepdim={keep})"),
        ReduceKind::Sum => format!("{x}.sum({over}, keepdim={keep})"),
        ReduceKind::SumSquare => format!("{x}.pow(2).sum({over}, keepdim={keep})"),
        ReduceKind::Max if axes.len() == 1 => format!("{x}.max({}, keepdim={keep}).values", axes[0]),
        ReduceKind::Min if axes.len() == 1 => format!("{x}.min({}, keepdim={keep}).values", axes[0]),
        ReduceKind::Max => format!("{x}.amax({over}, keepdim={keep})"),
        ReduceKind::Min => format!("{x}.amin({over}, keepdim={keep})"),
        ReduceKind::Prod if axes.len() == 1 => format!("{x}.prod({}, keepdim={keep})", axes[0]),
        ReduceKind::LogSumExp => format!("{x}.logsumexp({over}, keepdim={keep})"),
        ReduceKind::Var | ReduceKind::Std => {
            let (name, correction) =
                (if op.kind == ReduceKind::Var { "var" } else { "std" }, u8::from(op.unbiased));
            format!("{x}.{name}({over}, correction={correction}, keepdim={keep})")
        }
        ReduceKind::L1 => format!("{x}.norm(1, {over}, keepdim={keep})"),
        ReduceKind::L2 => format!("{x}.norm(2, {over}, keepdim={keep})"),
        _ => return Err("a reduction over several axes".into()),
    });
    Ok(())
}

fn softmax(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<Softmax>()?;
    let shape = at.shape(0)?;
    let axis = at.axis(op.axis, shape.len())?;
    let x = at.on_device(0)?;
    let call = if op.log { "F.log_softmax" } else { "F.softmax" };
    at.set(if op.flattens && axis + 1 != shape.len() {
        let flat = [shape[..axis].iter().product::<u64>(), shape[axis..].iter().product()];
        format!("{call}({x}.reshape({}), 1).reshape({})", tuple(&flat), tuple(&shape))
    } else if op.in_float32 {
        format!("{call}({x}, {axis}, dtype=torch.float32).to({x}.dtype)")
    } else {
        format!("{call}({x}, {axis})")
    });
    Ok(())
}

fn cumulative(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<Cumulative>()?;
    if op.exclusive || op.reverse {
        return Err("exclusive or from the end".into());
    }
    let axis = at.number(1).ok_or("an axis that is not known")? as i64;
    let x = at.on_device(0)?;
    at.set(format!("torch.{}({x}, {axis})", if op.product { "cumprod" } else { "cumsum" }));
    Ok(())
}

fn arg(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<ArgReduce>()?;
    let keep = truth(op.keep_dims);
    let x = at.on_device(0)?;
    let call = if op.min { "argmin" } else { "argmax" };
    at.set(format!("{x}.{call}({}, keepdim={keep})", op.axis));
    Ok(())
}
