//! Elements put into other places, counted, or made between two numbers.
//!
//! keras/src/ops/core.py: `Scatter`, `ScatterUpdate`, `Slice`, `SliceUpdate`; keras/src/ops/math.py: `SegmentReduction`;
//! keras/src/ops/nn.py: `MultiHot`; keras/src/ops/numpy.py: `Digitize`, `SearchSorted`, `UnravelIndex`, `Histogram`, `Linspace`,
//! `Logspace`, `Geomspace`, `Select`, `Size`, `Ndim`, `Nonzero`; keras/src/ops/image.py: `MapCoordinates`, `ScaleAndTranslate`.

use super::elementwise::floating;
use super::{Operation, Rule, operand};
use crate::arguments::Argument;
use crate::layer::Call;
use crate::spec::{self, Spec};
use memfit_graph::{DType, Dim, OpError, Shape};

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["Scatter"], scatter),
    (&["ScatterUpdate", "SliceUpdate"], updated),
    (&["Slice"], slice),
    (&["SegmentMax", "SegmentMin", "SegmentProd", "SegmentSum", "SegmentReduction"], segments),
    (&["MultiHot"], multi_hot),
    (&["Digitize"], digits),
    (&["SearchSorted"], sorted),
    (&["UnravelIndex"], unravelled),
    (&["Histogram"], histogram),
    (&["Geomspace", "Linspace", "Logspace"], between),
    (&["Select"], selected),
    (&["Size"], count),
    (&["Nonzero"], nonzero),
    (&["MapCoordinates"], mapped),
    (&["ScaleAndTranslate"], scaled),
];

/// Sizes as dims; none where one is open.
fn sizes(list: Option<Vec<i64>>) -> Option<Vec<Dim>> {
    list?.into_iter().map(|n| u64::try_from(n).ok().map(Dim::Known)).collect()
}

fn scatter(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let dims = sizes(op.integers(call, 2, &["shape"]));
    let values = op.operands(call, inputs, &["indices", "values"]).and_then(|mut both| both.pop());
    Ok(dims.zip(values).map(|(dims, values)| values.with(dims)).into_iter().collect())
}

fn updated(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(op.operands(call, inputs, &["inputs"]).unwrap_or_default())
}

/// Minus one is what is left behind the start.
fn slice(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let Some(shape) = op.integers(call, 2, &["shape"]).filter(|s| s.len() == x.rank()) else {
        return Ok(Vec::new());
    };
    let start = op.integers(call, 1, &["start_indices"]).unwrap_or_default();
    let dims = shape.iter().enumerate().map(|(i, n)| match u64::try_from(*n) {
        Ok(n) => Some(Dim::Known(n)),
        Err(_) => Some(x.dims()[i].offset(start.get(i)?.checked_neg()?)),
    });
    Ok(dims.collect::<Option<Vec<_>>>().map(|dims| x.with(dims)).into_iter().collect())
}

fn segments(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = spec::input_from_rank(inputs, 0, 1)?;
    let Some(count) = op.integer(call, 2, &["num_segments"]).and_then(|n| u64::try_from(n).ok()) else {
        return Ok(Vec::new());
    };
    operand(call, inputs).map(|_| vec![x.replaced(0, Dim::Known(count))])
}

/// An axis of classes is there more, and the second is gone.
fn multi_hot(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let classes = op.integer(call, 1, &["num_classes", "num_tokens"]).and_then(|n| u64::try_from(n).ok());
    let Some(classes) = classes else { return Ok(Vec::new()) };
    let mut dims = x.dims().to_vec();
    let axis = op.integer(call, 2, &["axis"]).unwrap_or(-1);
    let at = usize::try_from(axis).map_or(dims.len(), |a| a.min(dims.len()));
    dims.insert(at, Dim::Known(classes));
    // Of a batch of single tokens nothing but the classes stays.
    dims.remove(if dims.len() == 2 { 0 } else { 1.min(dims.len() - 1) });
    Ok(vec![Spec::new(dims.into_iter().collect(), op.dtype().unwrap_or(DType::Float32))])
}

fn digits(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(vec![Spec { dtype: DType::Int32, ..operand(call, inputs)?.clone() }])
}

fn sorted(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let values = op.operands(call, inputs, &["sorted_sequence", "values"]).and_then(|mut both| both.pop());
    Ok(values.map(|v| Spec { dtype: DType::Int32, ..v }).into_iter().collect())
}

fn unravelled(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let axes = op.integers(call, 1, &["shape"]).map_or(0, |s| s.len());
    Ok(vec![x.clone(); axes])
}

/// Counts, and the edges between them.
fn histogram(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let bins = u64::try_from(op.integer(call, 1, &["bins"]).unwrap_or(10)).unwrap_or(0);
    Ok([bins, bins.saturating_add(1)].map(|n| x.with([Dim::Known(n)])).to_vec())
}

fn between(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let Some([start, stop]) =
        op.operands(call, inputs, &["start", "stop"]).and_then(|both| <[Spec; 2]>::try_from(both).ok())
    else {
        return Ok(Vec::new());
    };
    let shape = start.shape.broadcast(&stop.shape);
    let mut shape = shape.ok_or_else(|| {
        OpError::mismatch("shapes that broadcast", format!("{} and {}", start.shape, stop.shape))
    })?;
    let count = u64::try_from(op.integer(call, 2, &["num"]).unwrap_or(50)).unwrap_or(0);
    let (axis, rank) = (op.integer(call, usize::MAX, &["axis"]).unwrap_or(0), shape.rank());
    let at = usize::try_from(if axis < 0 { axis.saturating_add(rank as i64 + 1) } else { axis });
    shape.insert(at.unwrap_or(rank).min(rank), Dim::Known(count));
    Ok(vec![Spec::new(shape, floating(op.dtype().unwrap_or(start.dtype)))])
}

/// As the first choice.
fn selected(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let choices = call.arguments.get(1, "choicelist").map(Argument::tensors).unwrap_or_default();
    Ok(choices.first().and_then(|i| inputs.get(*i)).cloned().into_iter().collect())
}

fn count(_: &Operation, _: &Call<'_>, _: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(vec![Spec::new(Shape::scalar(), DType::Int32)])
}

/// Positions along each axis; how many depends on the elements.
fn nonzero(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let most = spec::product(x.dims())?.known();
    let found = Dim::unknown("nonzero", most);
    Ok(vec![Spec { dtype: DType::Int32, ..x.with([found]) }; x.rank()])
}

fn mapped(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let both = op.operands(call, inputs, &["inputs", "coordinates"]);
    let both = both.and_then(|both| <[Spec; 2]>::try_from(both).ok());
    Ok(both.map(|[x, at]| x.with(at.dims().iter().skip(1).cloned())).into_iter().collect())
}

fn scaled(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    Ok(sizes(op.integers(call, 1, &["output_shape"])).map(|dims| x.with(dims)).into_iter().collect())
}
