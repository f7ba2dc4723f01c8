//! Linear algebra on the last two axes.
//!
//! keras/src/ops/linalg.py, `compute_output_spec` of each class.

use super::{Operation, Rule, operand};
use crate::layer::Call;
use crate::spec::{self, Spec};
use memfit_graph::{DType, Dim, OpError};

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["Cholesky", "CholeskyInverse", "Inv"], same),
    (&["Det", "Logdet", "LogDet"], number),
    (&["MatrixRank"], rank),
    (&["Slogdet", "SLogDet"], sign_and_number),
    (&["Eig", "Eigh"], vectors),
    (&["Pinv"], turned),
    (&["LuFactor"], factors),
    (&["QR", "Qr"], qr),
    (&["SVD"], svd),
    (&["Solve", "SolveTriangular"], solved),
    (&["Lstsq"], least_squares),
];

/// What it is called on, as batches of matrices: the dims of the batch, rows, columns.
fn matrices<'a>(call: &Call<'_>, inputs: &'a [Spec]) -> Result<(&'a Spec, &'a [Dim], Dim, Dim), OpError> {
    let x = operand(call, inputs)?;
    match x.dims() {
        [batch @ .., rows, columns] => Ok((x, batch, rows.clone(), columns.clone())),
        _ => Err(OpError::mismatch("matrices", &x.shape)),
    }
}

/// The dims of a batch, then these.
fn batched(x: &Spec, batch: &[Dim], dims: &[&Dim]) -> Spec {
    x.with(batch.iter().chain(dims.iter().copied()).cloned())
}

fn shorter(rows: &Dim, columns: &Dim) -> Dim {
    match (rows.known(), columns.known()) {
        (Some(a), Some(b)) => Dim::Known(a.min(b)),
        (Some(_), None) => columns.clone(),
        _ => rows.clone(),
    }
}

fn same(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(vec![matrices(call, inputs)?.0.clone()])
}

fn number(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (x, batch, ..) = matrices(call, inputs)?;
    Ok(vec![batched(x, batch, &[])])
}

fn rank(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(number(op, call, inputs)?.into_iter().map(|y| Spec { dtype: DType::Int32, ..y }).collect())
}

fn sign_and_number(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let one = number(op, call, inputs)?;
    Ok([one.clone(), one].concat())
}

/// Values and vectors; those of a matrix that is not symmetric are complex.
fn vectors(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (x, batch, rows, _) = matrices(call, inputs)?;
    let both = vec![batched(x, batch, &[&rows]), x.clone()];
    let dtype = if op.class == "Eig" { DType::Complex64 } else { x.dtype };
    Ok(both.into_iter().map(|y| Spec { dtype, ..y }).collect())
}

fn turned(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (x, batch, rows, columns) = matrices(call, inputs)?;
    Ok(vec![batched(x, batch, &[&columns, &rows])])
}

/// Both factors in one matrix, and the order of the rows.
fn factors(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (x, batch, rows, columns) = matrices(call, inputs)?;
    let order = batched(x, batch, &[&shorter(&rows, &columns)]);
    Ok(vec![x.clone(), Spec { dtype: DType::Int32, ..order }])
}

fn qr(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (x, batch, rows, columns) = matrices(call, inputs)?;
    let complete = op.parameter(call, 1, &["mode"]).is_some_and(|m| m.as_str() == Some("complete"));
    let inner = if complete { rows.clone() } else { shorter(&rows, &columns) };
    Ok(vec![batched(x, batch, &[&rows, &inner]), batched(x, batch, &[&inner, &columns])])
}

fn svd(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (x, batch, rows, columns) = matrices(call, inputs)?;
    let flag =
        |position, name| op.parameter(call, position, &[name]).and_then(|a| a.as_bool()).unwrap_or(true);
    let inner = shorter(&rows, &columns);
    let values = batched(x, batch, &[&inner]);
    if !flag(2, "compute_uv") {
        return Ok(vec![values]);
    }
    let (left, right) = if flag(1, "full_matrices") { (&rows, &columns) } else { (&inner, &inner) };
    Ok(vec![batched(x, batch, &[&rows, left]), values, batched(x, batch, &[right, &columns])])
}

/// As the right-hand side.
fn solved(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(op.operands(call, inputs, &["a", "b"]).and_then(|mut both| both.pop()).into_iter().collect())
}

fn least_squares(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let Some([a, b]) = op.operands(call, inputs, &["a", "b"]).and_then(|o| <[Spec; 2]>::try_from(o).ok())
    else {
        return Ok(Vec::new());
    };
    let unknowns = spec::input_from_rank(std::slice::from_ref(&a), 0, 1)?.last()?.clone();
    Ok(vec![a.with([unknowns].into_iter().chain(b.dims().iter().skip(1).cloned()))])
}
