//! Reductions over axes: all of them where none is given, gone or kept with one element.

use super::elementwise::floating;
use super::{Operation, Rule, axes_of, operand};
use crate::layer::Call;
use crate::spec::Spec;
use memfit_graph::{DType, Dim, OpError};

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["Amax", "Amin", "Max", "Min", "Prod", "Ptp", "Sum", "Nanmax", "Nanmin", "Nanprod", "Nansum"], same),
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
];

fn reduced(op: &Operation, call: &Call<'_>, x: &Spec, keeps: bool) -> Result<Vec<Dim>, OpError> {
    let axes = match op.integers(call, 1, &["axis", "axes"]) {
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
