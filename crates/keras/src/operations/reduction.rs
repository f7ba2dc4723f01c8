//! Reductions over axes: all of them where none is given, gone or kept with one element.

use super::elementwise::floating;
use super::{Operation, Rule, axes_of, operand};
use crate::layer::Call;
use crate::spec::Spec;
use memfit_graph::{DType, Dim, OpError};

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["Amax", "Amin", "Max", "Min", "Ptp", "Nanmax", "Nanmin"], same),
    (&["Nanprod", "Nansum", "Prod", "Sum"], sum),
    (
        &[
            "Average",
            "Logsumexp",
            "Mean",
            "Median",
            "Nanmean",
            "Nanmedian",
            "Nanstd",
            "Nanvar",
            "Norm",
            "Std",
            "Var",
            "EuclideanNorm",
        ],
        float,
    ),
    (&["All", "Any"], truth),
    (&["Argmax", "Argmin", "CountNonzero", "Nanargmax", "Nanargmin"], index),
    (&["Moments"], moments),
    (&["Nanpercentile", "Nanquantile", "Percentile", "Quantile"], quantile),
    (&["Trapezoid"], trapezoid),
];

fn reduced(op: &Operation, call: &Call<'_>, x: &Spec, keeps: bool) -> Result<Vec<Dim>, OpError> {
    over(op, call, x, op.integers(call, 1, &["axis", "axes"]), keeps)
}

/// The dims without these axes, or with one element along each.
fn over(
    op: &Operation,
    call: &Call<'_>,
    x: &Spec,
    axes: Option<Vec<i64>>,
    keeps: bool,
) -> Result<Vec<Dim>, OpError> {
    let axes = match axes {
        Some(axes) => axes_of(x, &axes)?,
        None => (0..x.rank()).collect(),
    };
    let keeps = keeps || op.flag(call, usize::MAX, &["keepdims"]);
    let dims = x.dims().iter().enumerate();
    let dims = dims.filter_map(|(i, d)| match (axes.contains(&i), keeps) {
        (true, true) => Some(Dim::Known(1)),
        (true, false) => None,
        (false, _) => Some(d.clone()),
    });
    Ok(dims.collect())
}

fn same(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    Ok(vec![x.with(reduced(op, call, x, false)?)])
}

/// The dtype of a sum: small whole numbers become `int32` or `uint32` (keras/src/ops/numpy.py, `Sum`).
pub(super) fn summed(dtype: DType) -> DType {
    match dtype {
        DType::Bool | DType::Int8 | DType::Int16 => DType::Int32,
        DType::Uint8 | DType::Uint16 => DType::Uint32,
        other => other,
    }
}

fn sum(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    Ok(vec![Spec { dtype: op.dtype().unwrap_or(summed(x.dtype)), ..x.with(reduced(op, call, x, false)?) }])
}

/// For a list of them an axis more, in front.
fn quantile(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let Some([x, q]) =
        op.operands(call, inputs, &["x", "q"]).and_then(|both| <[Spec; 2]>::try_from(both).ok())
    else {
        return Ok(Vec::new());
    };
    let axes = op.integers(call, usize::MAX, &["axis"]);
    let dims = q.dims().iter().cloned().chain(over(op, call, &x, axes, false)?);
    Ok(vec![Spec { dtype: floating(x.dtype), ..x.with(dims) }])
}

/// An integral along one axis.
fn trapezoid(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let axes = vec![op.integer(call, usize::MAX, &["axis"]).unwrap_or(-1)];
    Ok(vec![Spec { dtype: floating(x.dtype), ..x.with(over(op, call, x, Some(axes), false)?) }])
}

fn float(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    Ok(vec![Spec { dtype: floating(x.dtype), ..x.with(reduced(op, call, x, false)?) }])
}

fn truth(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    Ok(vec![Spec { dtype: DType::Bool, ..x.with(reduced(op, call, x, false)?) }])
}

fn index(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    Ok(vec![Spec { dtype: DType::Int32, ..x.with(reduced(op, call, x, false)?) }])
}

fn moments(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let y = x.with(reduced(op, call, x, false)?);
    Ok(vec![y.clone(), y])
}
