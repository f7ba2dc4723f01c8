//! One tensor from many, many from one.

use super::{Operation, Rule, operand};
use crate::arguments::Argument;
use crate::layer::Call;
use crate::layers::concatenate::joined;
use crate::spec::{self, Spec};
use memfit_graph::{Dim, OpError};

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["Append"], append),
    (&["Concatenate"], concatenate),
    (&["Dstack"], behind),
    (&["Hstack"], beside),
    (&["Vstack"], below),
    (&["ArraySplit", "Dsplit", "Hsplit", "Split", "Vsplit"], split),
    (&["Meshgrid"], meshgrid),
    (&["Stack"], stack),
    (&["Unstack"], unstack),
];

fn concatenate(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let axis = op.integer(call, 1, &["axis"]).unwrap_or(0);
    // Arrays of the file stand among the tensors.
    let weak = inputs.first().map_or(call.compute(), |x| x.dtype);
    let parts: Option<Vec<Spec>> = match call.arguments.get(0, "xs") {
        Some(Argument::List(list)) => list.iter().map(|a| a.spec(inputs, weak)).collect(),
        _ => None,
    };
    Ok(vec![joined(parts.as_deref().unwrap_or(inputs), axis)?])
}

/// Along an axis, or all elements in one row.
fn append(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let both = op.operands(call, inputs, &["x1", "x2"]);
    let inputs = both.as_deref().unwrap_or(inputs);
    if let Some(axis) = op.integer(call, 2, &["axis"]) {
        return Ok(vec![joined(inputs, axis)?]);
    }
    let flat = |x: &Spec| Ok(x.with([spec::product(x.dims())?]));
    Ok(vec![joined(&inputs.iter().map(flat).collect::<Result<Vec<_>, OpError>>()?, 0)?])
}

/// Along the second axis, of vectors the first.
fn beside(_: &Operation, _: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let axis = i64::from(inputs.iter().any(|x| x.rank() > 1));
    Ok(vec![joined(inputs, axis)?])
}

/// Along the first axis; a vector is a row.
fn below(_: &Operation, _: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let row = |x: &Spec| match x.rank() {
        1 => x.with([Dim::Known(1), x.dims()[0].clone()]),
        _ => x.clone(),
    };
    Ok(vec![joined(&inputs.iter().map(row).collect::<Vec<_>>(), 0)?])
}

/// Along the third axis; a vector is a row, and a matrix one element deep.
fn behind(_: &Operation, _: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let one = || Dim::Known(1);
    let deep = |x: &Spec| match x.dims() {
        [] => x.with([one(), one(), one()]),
        [n] => x.with([one(), n.clone(), one()]),
        [m, n] => x.with([m.clone(), n.clone(), one()]),
        _ => x.clone(),
    };
    Ok(vec![joined(&inputs.iter().map(deep).collect::<Vec<_>>(), 2)?])
}

/// A grid over all vectors, once for each of them.
fn meshgrid(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let mut dims = inputs.iter().map(|x| spec::product(x.dims())).collect::<Result<Vec<_>, _>>()?;
    let rows_first = op.parameter(call, usize::MAX, &["indexing"]).is_some_and(|i| i.as_str() == Some("ij"));
    if !rows_first && dims.len() > 1 {
        dims.swap(0, 1);
    }
    Ok(inputs.iter().map(|x| x.with(dims.iter().cloned())).collect())
}

fn stack(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = spec::input(inputs, 0)?;
    let axis = op.integer(call, 1, &["axis"]).unwrap_or(0);
    let rank = x.rank() as i64 + 1;
    let at = usize::try_from(if axis < 0 { axis.saturating_add(rank) } else { axis }).ok();
    let at = at
        .filter(|a| *a <= x.rank())
        .ok_or_else(|| OpError::mismatch(format!("an axis below {rank}"), axis))?;
    let mut y = x.clone();
    y.shape.insert(at, Dim::Known(inputs.len() as u64));
    y.dtype = inputs.iter().map(|x| x.dtype).fold(x.dtype, memfit_graph::DType::promote);
    Ok(vec![y])
}

fn unstack(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let axis = x.axis(op.integer(call, 2, &["axis"]).unwrap_or(0))?;
    let Some(count) = x.dims()[axis].known().filter(|n| *n <= MOST) else { return Ok(Vec::new()) };
    let mut y = x.clone();
    y.shape.remove(axis);
    Ok(vec![y; count as usize])
}

/// How many tensors an operation may give.
const MOST: u64 = 4096;

/// Into as many parts, or at these positions; TensorFlow's function names the sizes of the parts.
fn split(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let axis = match op.class.as_str() {
        "Vsplit" => 0,
        "Hsplit" => i64::from(x.rank() > 1),
        "Dsplit" => 2,
        _ => op.integer(call, 2, &["axis"]).unwrap_or(0),
    };
    let axis = x.axis(axis)?;
    let dim = &x.dims()[axis];
    let parts = op.parameter(call, 1, &["indices_or_sections", "num_or_size_splits"]);
    let Some(parts) = parts else { return Ok(Vec::new()) };
    if let Some(count) = parts.as_i64() {
        let count = u64::try_from(count).ok().filter(|n| (1..=MOST).contains(n));
        let count = count.ok_or_else(|| OpError::mismatch(format!("1 to {MOST} parts"), "another number"))?;
        if let (Some(total), "ArraySplit") = (dim.known(), op.class.as_str()) {
            // The first parts are one larger where it does not come out even.
            let size = |i| total / count + u64::from(i < total % count);
            return Ok((0..count).map(|i| x.replaced(axis, Dim::Known(size(i)))).collect());
        }
        let part = dim.div_exact(&Dim::Known(count));
        let part = part.ok_or_else(|| OpError::mismatch(format!("a size that {count} divides"), dim))?;
        return Ok(vec![x.replaced(axis, part); count as usize]);
    }
    let (Some(positions), Some(total)) = (parts.ints(), dim.known()) else { return Ok(Vec::new()) };
    let sizes = call.arguments.named.contains_key("num_or_size_splits");
    let mut outputs = Vec::with_capacity(positions.len() + 1);
    let mut begin = 0;
    for n in positions {
        let n = u64::try_from(n).map_err(|_| OpError::mismatch("positions or sizes", n))?;
        let size = if sizes { n } else { n.min(total).saturating_sub(begin) };
        begin = if sizes { begin.saturating_add(n) } else { n.min(total) };
        outputs.push(x.replaced(axis, Dim::Known(size)));
    }
    if !sizes {
        outputs.push(x.replaced(axis, Dim::Known(total.saturating_sub(begin))));
    }
    Ok(outputs)
}
