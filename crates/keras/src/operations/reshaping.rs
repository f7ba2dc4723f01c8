//! The same elements in another shape or order, repeated or padded.

use super::{Operation, Rule, axes_of, operand};
use crate::arguments::Argument;
use crate::layer::Call;
use crate::layers::reshape::reshaped;
use crate::spec::{self, Spec};
use memfit_graph::{Dim, OpError};

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["BroadcastTo"], broadcast_to),
    (&["ExpandDims"], expand_dims),
    (&["Moveaxis"], moveaxis),
    (&["Pad"], pad),
    (&["Ravel"], ravel),
    (&["Repeat"], repeat),
    (&["Reshape"], reshape),
    (&["Resize"], resize),
    (&["Squeeze"], squeeze),
    (&["Swapaxes"], swapaxes),
    (&["Tile"], tile),
    (&["Transpose"], transpose),
];

fn reshape(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    // A target that holds tensors (a batch size) is not known.
    let target = op.integers(call, 1, &["newshape", "shape"]);
    let Some(target) = target else { return Ok(Vec::new()) };
    let target: Vec<Option<i64>> = target.into_iter().map(|n| (n >= 0).then_some(n)).collect();
    // An open size at the front stands for the batch where the rest fits.
    Ok(vec![x.with(reshaped(x.dims(), &target)?)])
}

fn ravel(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    Ok(vec![x.with([spec::product(x.dims())?])])
}

fn transpose(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let axes = match op.integers(call, 1, &["axes", "perm"]) {
        Some(axes) => axes_of(x, &axes)?,
        None => (0..x.rank()).rev().collect(),
    };
    if axes.len() != x.rank() {
        return Err(OpError::mismatch(format!("{} axes", x.rank()), format!("{}", axes.len())));
    }
    Ok(vec![x.with(axes.into_iter().map(|a| x.dims()[a].clone()))])
}

fn swapaxes(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let axis = |position, name| op.integer(call, position, &[name]).map(|a| x.axis(a)).transpose();
    let (Some(a), Some(b)) = (axis(1, "axis1")?, axis(2, "axis2")?) else { return Ok(Vec::new()) };
    let mut dims = x.dims().to_vec();
    dims.swap(a, b);
    Ok(vec![x.with(dims)])
}

fn moveaxis(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let axes = |position, name| op.integers(call, position, &[name]).map(|a| axes_of(x, &a)).transpose();
    let (Some(from), Some(to)) = (axes(1, "source")?, axes(2, "destination")?) else { return Ok(Vec::new()) };
    let mut order: Vec<usize> = (0..x.rank()).filter(|i| !from.contains(i)).collect();
    let mut moves: Vec<(usize, usize)> = to.into_iter().zip(from).collect();
    moves.sort_unstable();
    for (to, from) in moves {
        order.insert(to.min(order.len()), from);
    }
    Ok(vec![x.with(order.into_iter().map(|a| x.dims()[a].clone()))])
}

fn expand_dims(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let Some(axes) = op.integers(call, 1, &["axis"]) else { return Ok(Vec::new()) };
    let rank = (x.rank() + axes.len()) as i64;
    let mut axes: Vec<i64> =
        axes.into_iter().map(|a| if a < 0 { a.saturating_add(rank) } else { a }).collect();
    axes.sort_unstable();
    let mut y = x.clone();
    for axis in axes {
        let at = usize::try_from(axis).ok().filter(|a| *a <= y.rank());
        let at = at.ok_or_else(|| OpError::mismatch(format!("an axis below {rank}"), axis))?;
        y.shape.insert(at, Dim::Known(1));
    }
    Ok(vec![y])
}

fn squeeze(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let axes = op.integers(call, 1, &["axis"]).map(|a| axes_of(x, &a)).transpose()?;
    let goes = |i: usize, d: &Dim| axes.as_ref().map_or(d.known() == Some(1), |axes| axes.contains(&i));
    let kept = x.dims().iter().enumerate().filter(|(i, d)| !goes(*i, d));
    Ok(vec![x.with(kept.map(|(_, d)| d.clone()).collect::<Vec<_>>())])
}

fn broadcast_to(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let shape = op.integers(call, 1, &["shape"]);
    let dims = shape.and_then(|s| {
        s.into_iter().map(|n| u64::try_from(n).ok().map(Dim::Known)).collect::<Option<Vec<_>>>()
    });
    Ok(dims.map(|dims| x.with(dims)).into_iter().collect())
}

fn tile(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let repeats = op.integers(call, 1, &["repeats", "multiples"]);
    let repeats =
        repeats.and_then(|r| r.into_iter().map(|n| u64::try_from(n).ok()).collect::<Option<Vec<u64>>>());
    let Some(repeats) = repeats else { return Ok(Vec::new()) };
    let rank = x.rank().max(repeats.len());
    let dim = |i: usize| (i + x.rank()).checked_sub(rank).map_or(Dim::Known(1), |i| x.dims()[i].clone());
    let times = |i: usize| (i + repeats.len()).checked_sub(rank).map_or(1, |i| repeats[i]);
    let dims =
        (0..rank).map(|i| spec::product(&[dim(i), Dim::Known(times(i))])).collect::<Result<Vec<_>, _>>()?;
    Ok(vec![x.with(dims)])
}

fn repeat(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let times = op.integer(call, 1, &["repeats"]).and_then(|n| u64::try_from(n).ok());
    let (Some(times), Some(axis)) = (times, op.integer(call, 2, &["axis"])) else { return Ok(Vec::new()) };
    let axis = x.axis(axis)?;
    Ok(vec![x.replaced(axis, spec::product(&[x.dims()[axis].clone(), Dim::Known(times)])?)])
}

fn pad(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let widths = match op.parameter(call, 1, &["pad_width", "paddings"]) {
        Some(Argument::Json(serde_json::Value::Array(list))) => {
            list.into_iter().map(Argument::Json).collect()
        }
        Some(Argument::List(list)) => list,
        _ => return Ok(Vec::new()),
    };
    let pairs: Option<Vec<Vec<i64>>> = widths.iter().map(Argument::ints).collect();
    let Some(pairs) = pairs.filter(|p| p.len() == x.rank()) else { return Ok(Vec::new()) };
    let dims = x.dims().iter().zip(pairs).map(|(d, pair)| match pair[..] {
        [begin, end] => {
            begin.checked_add(end).map(|n| d.offset(n)).ok_or_else(|| OpError::overflow("the padding"))
        }
        _ => Ok(d.clone()),
    });
    Ok(vec![x.with(dims.collect::<Result<Vec<_>, _>>()?)])
}

/// An image of another size, channels last unless it says otherwise.
fn resize(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let size = op.integers(call, 1, &["size"]).filter(|s| s.len() == 2);
    let first = op.parameter(call, usize::MAX, &["data_format"]);
    let first = first.is_some_and(|f| f.as_str() == Some("channels_first"));
    let (Some(size), true) = (size, x.rank() >= 3) else { return Ok(Vec::new()) };
    let at = x.rank() - if first { 2 } else { 3 };
    let mut y = x.clone();
    for (i, n) in size.into_iter().enumerate() {
        let n = u64::try_from(n).map_err(|_| OpError::mismatch("a size", n))?;
        y = y.replaced(at + i, Dim::Known(n));
    }
    Ok(vec![y])
}
