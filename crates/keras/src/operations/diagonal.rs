//! Diagonals of matrices, and matrices of diagonals.
//!
//! keras/src/ops/numpy.py: `Diag`, `Diagflat`, `Diagonal`, `Trace`, `Vander`.

use super::{Operation, Rule, operand};
use crate::layer::Call;
use crate::spec::{self, Spec};
use memfit_graph::{Dim, OpError};

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["Diag"], diag),
    (&["Diagflat"], flat),
    (&["Diagonal"], diagonal),
    (&["Trace"], trace),
    (&["Vander"], powers),
];

/// How many elements a diagonal has that begins `offset` columns to the right.
fn length(rows: &Dim, columns: &Dim, offset: i64) -> Option<Dim> {
    let (Some(a), Some(b)) = (rows.known(), columns.known()) else {
        return Some(Dim::unknown(
            &format!("diagonal({rows}, {columns}, {offset})"),
            rows.upper().or(columns.upper()),
        ));
    };
    let (rows, columns) = (i128::from(a), i128::from(b));
    let offset = i128::from(offset);
    let left = if offset > 0 { rows.min(columns - offset) } else { columns.min(rows + offset) };
    u64::try_from(left.max(0)).ok().map(Dim::Known)
}

fn square(x: &Spec, side: &Dim, offset: i64) -> Result<Vec<Spec>, OpError> {
    let side = spec::sum(side, &Dim::Known(offset.unsigned_abs()))?;
    Ok(vec![x.with([side.clone(), side])])
}

fn diag(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let offset = op.integer(call, 1, &["k"]).unwrap_or(0);
    match x.dims() {
        [side] => square(x, side, offset),
        [rows, columns] => Ok(length(rows, columns, offset).map(|n| x.with([n])).into_iter().collect()),
        _ => Err(OpError::mismatch("a vector or a matrix", &x.shape)),
    }
}

fn flat(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    square(x, &spec::product(x.dims())?, op.integer(call, 1, &["k"]).unwrap_or(0))
}

/// The two axes that make the matrices.
fn axes(op: &Operation, call: &Call<'_>, x: &Spec) -> Result<[usize; 2], OpError> {
    let axis = |position, name, default| x.axis(op.integer(call, position, &[name]).unwrap_or(default));
    Ok([axis(2, "axis1", 0)?, axis(3, "axis2", 1)?])
}

fn without(x: &Spec, axes: [usize; 2]) -> Vec<Dim> {
    let kept = x.dims().iter().enumerate().filter(|(i, _)| !axes.contains(i));
    kept.map(|(_, d)| d.clone()).collect()
}

fn diagonal(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let axes = axes(op, call, x)?;
    let offset = op.integer(call, 1, &["offset"]).unwrap_or(0);
    let size = length(&x.dims()[axes[0]], &x.dims()[axes[1]], offset);
    Ok(size.map(|n| x.with(without(x, axes).into_iter().chain([n]))).into_iter().collect())
}

/// Small whole numbers are summed as `int32`.
fn trace(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let y = x.with(without(x, axes(op, call, x)?));
    Ok(vec![Spec { dtype: super::reduction::summed(x.dtype), ..y }])
}

/// Powers of a vector's elements, as many as it has where the call does not say.
fn powers(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let count = op.integer(call, 1, &["N"]).map(|n| u64::try_from(n).map(Dim::Known)).transpose();
    let count = count.map_err(|_| OpError::mismatch("a number of powers", "a negative number"))?;
    let last = x.last()?.clone();
    Ok(vec![x.with(x.dims().iter().cloned().chain([count.unwrap_or(last)]))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagonals_end_at_the_shorter_side() {
        let size = |rows, columns, offset| {
            length(&Dim::Known(rows), &Dim::Known(columns), offset).unwrap().known().unwrap()
        };
        assert_eq!(size(3, 5, 0), 3);
        assert_eq!(size(3, 5, 1), 3);
        assert_eq!(size(3, 5, 4), 1);
        assert_eq!(size(3, 5, -2), 1);
        assert_eq!(size(3, 5, i64::MIN), 0);
    }
}
