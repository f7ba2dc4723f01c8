//! The same elements in another shape or order, repeated or padded.

use super::{Operation, Rule, axes_of, operand};
use crate::arguments::Argument;
use crate::layer::Call;
use crate::layers::reshape::reshaped;
use crate::spec::{self, Spec};
use memfit_graph::{DType, Dim, OpError};
use std::collections::BTreeMap;

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["BroadcastTo"], broadcast_to),
    (&["Diff"], diff),
    (&["ExpandDims"], expand_dims),
    (&["Moveaxis"], moveaxis),
    (&["Glu"], glu),
    (&["Pad"], pad),
    (&["Ravel"], ravel),
    (&["Rearrange"], rearrange),
    (&["Repeat"], repeat),
    (&["Reshape"], reshape),
    (&["Resize"], resize),
    (&["Rot90"], rot90),
    (&["Squeeze"], squeeze),
    (&["Swapaxes"], swapaxes),
    (&["Tile"], tile),
    (&["Transpose"], transpose),
    (&["View"], view),
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

/// Where each axis of the result comes from.
pub(super) fn order(op: &Operation, call: &Call<'_>, sizes: &[u64]) -> Option<Vec<usize>> {
    // Axes are told apart by their sizes, which here are their numbers.
    let numbered = Spec::new((1..=sizes.len() as u64).map(Dim::Known).collect(), DType::Float32);
    let made = match op.class.as_str() {
        "Swapaxes" => swapaxes(op, call, &[numbered]),
        "Moveaxis" => moveaxis(op, call, &[numbered]),
        _ => transpose(op, call, &[numbered]),
    };
    let made = made.ok()?.into_iter().next()?;
    made.dims().iter().map(|d| usize::try_from(d.known()?.checked_sub(1)?).ok()).collect()
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
    let is_wide = |axis: &&usize| x.dims().get(**axis).and_then(Dim::known).is_some_and(|n| n != 1);
    if let Some(axis) = axes.iter().flatten().find(is_wide) {
        return Err(OpError::mismatch(format!("one element along axis {axis}"), &x.shape));
    }
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
    let times = op.integers(call, 1, &["repeats"]);
    let times =
        times.and_then(|r| r.into_iter().map(|n| u64::try_from(n).ok()).collect::<Option<Vec<u64>>>());
    let Some(times) = times else { return Ok(Vec::new()) };
    let repeated = |dim: &Dim| match times[..] {
        [times] => spec::product(&[dim.clone(), Dim::Known(times)]),
        // Each element as often as is said of it.
        _ => times.iter().try_fold(Dim::Known(0), |sum, n| spec::sum(&sum, &Dim::Known(*n))),
    };
    match op.integer(call, 2, &["axis"]) {
        Some(axis) => {
            let axis = x.axis(axis)?;
            Ok(vec![x.replaced(axis, repeated(&x.dims()[axis])?)])
        }
        None => Ok(vec![x.with([repeated(&spec::product(x.dims())?)?])]),
    }
}

fn pad(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let widths = match op.parameter(call, 1, &["pad_width", "paddings"]) {
        Some(Argument::Json(serde_json::Value::Array(list))) => {
            list.into_iter().map(Argument::Json).collect()
        }
        Some(Argument::List(list)) => list,
        Some(number) if number.as_i64().is_some() => vec![number],
        _ => return Ok(Vec::new()),
    };
    let pairs: Option<Vec<Vec<i64>>> = widths.iter().map(Argument::ints).collect();
    // One pair, or one number, stands for every axis.
    let pairs = match pairs {
        Some(pairs) if pairs.len() == 1 => vec![pairs[0].clone(); x.rank()],
        Some(pairs) if pairs.len() == 2 && pairs.iter().all(|p| p.len() == 1) => {
            vec![pairs.concat(); x.rank()]
        }
        Some(pairs) if pairs.len() == x.rank() => pairs,
        _ => return Ok(Vec::new()),
    };
    let dims = x.dims().iter().zip(pairs).map(|(d, pair)| match pair[..] {
        [begin, end] => {
            begin.checked_add(end).map(|n| d.offset(n)).ok_or_else(|| OpError::overflow("the padding"))
        }
        [n] => n.checked_mul(2).map(|n| d.offset(n)).ok_or_else(|| OpError::overflow("the padding")),
        _ => Ok(d.clone()),
    });
    Ok(vec![x.with(dims.collect::<Result<Vec<_>, _>>()?)])
}

/// Differences of neighbours, `n` times over.
fn diff(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let axis = x.axis(op.integer(call, 2, &["axis"]).unwrap_or(-1))?;
    let fewer = op.integer(call, 1, &["n"]).unwrap_or(1).checked_neg().unwrap_or(0);
    Ok(vec![x.replaced(axis, x.dims()[axis].offset(fewer))])
}

/// One half, times the sigmoid of the other.
fn glu(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let axis = x.axis(op.integer(call, 1, &["axis"]).unwrap_or(-1))?;
    let half = x.dims()[axis].div_exact(&Dim::Known(2));
    Ok(half.map(|half| x.replaced(axis, half)).into_iter().collect())
}

/// The axes of one side of a pattern, each a list of names: `b (h w) c`.
fn axes_of_pattern(side: &str) -> Vec<Vec<&str>> {
    let mut axes = Vec::new();
    for (i, part) in side.split(['(', ')']).enumerate() {
        let names = part.split_whitespace();
        // What stands between brackets is one axis.
        if i % 2 == 1 { axes.push(names.collect()) } else { axes.extend(names.map(|n| vec![n])) }
    }
    axes
}

/// Axes named, split, merged and put in another order (keras/src/ops/einops.py).
fn rearrange(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let pattern =
        call.arguments.get(1, "pattern").and_then(Argument::as_str).and_then(|p| p.split_once("->"));
    let Some((from, to)) = pattern.map(|(from, to)| (axes_of_pattern(from), axes_of_pattern(to))) else {
        return Ok(Vec::new());
    };
    if from.len() != x.rank() {
        return Err(OpError::mismatch(format!("{} axes", from.len()), &x.shape));
    }
    let given = |name: &str| Some(Dim::Known(u64::try_from(call.arguments.named.get(name)?.as_i64()?).ok()?));
    let mut sizes: BTreeMap<&str, Dim> = BTreeMap::new();
    for (names, dim) in from.iter().zip(x.dims()) {
        let known: Vec<Dim> = names.iter().filter_map(|n| given(n)).collect();
        let rest = dim.div_exact(&spec::product(&known)?);
        for name in names {
            let Some(size) = given(name).or(rest.clone()) else { return Ok(Vec::new()) };
            sizes.insert(name, size);
        }
    }
    let dim = |names: &Vec<&str>| names.iter().map(|n| sizes.get(n).cloned()).collect::<Option<Vec<Dim>>>();
    let Some(dims) = to.iter().map(dim).collect::<Option<Vec<_>>>() else { return Ok(Vec::new()) };
    Ok(vec![x.with(dims.iter().map(|names| spec::product(names)).collect::<Result<Vec<_>, _>>()?)])
}

/// Turned by quarters: after an odd number of them the axes have changed places.
fn rot90(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let axes = axes_of(x, &op.integers(call, 2, &["axes"]).unwrap_or_else(|| vec![0, 1]))?;
    let mut dims = x.dims().to_vec();
    if let ([a, b], true) = (&axes[..], op.integer(call, 1, &["k"]).unwrap_or(1) % 2 != 0) {
        dims.swap(*a, *b);
    }
    Ok(vec![x.with(dims)])
}

/// The same bytes in another dtype.
fn view(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let dtype = op.dtype().unwrap_or(x.dtype);
    if dtype.bits() == x.dtype.bits() {
        return Ok(vec![Spec { dtype, ..x.clone() }]);
    }
    let bits = spec::product(&[x.last()?.clone(), Dim::Known(x.dtype.bits())])?;
    let last = bits.div_exact(&Dim::Known(dtype.bits()));
    Ok(last.map(|n| Spec { dtype, ..x.replaced(x.rank() - 1, n) }).into_iter().collect())
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
