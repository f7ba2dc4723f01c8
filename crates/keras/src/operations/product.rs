//! Products of matrices: `matmul`, `dot`, `einsum`.

use super::{Operation, Rule};
use crate::layer::Call;
use crate::spec::{self, Spec};
use memfit_graph::{Dim, OpError, Shape};
use std::collections::BTreeMap;

pub(super) const RULES: &[(&[&str], Rule)] =
    &[(&["Dot"], dot), (&["Einsum"], einsum), (&["Matmul"], matmul), (&["DotProductAttention"], attention)];

fn check(a: &Dim, b: &Dim) -> Result<(), OpError> {
    match (a.known(), b.known()) {
        (Some(a), Some(b)) if a != b => {
            Err(OpError::mismatch("as many columns as rows", format!("{a} and {b}")))
        }
        _ => Ok(()),
    }
}

fn matmul(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let turned = |spec: &Spec, name: &str| {
        let mut dims = spec.dims().to_vec();
        if op.flag(call, usize::MAX, &[name]) && dims.len() >= 2 {
            let last = dims.len() - 1;
            dims.swap(last - 1, last);
        }
        spec.with(dims)
    };
    let a = turned(spec::input_from_rank(inputs, 0, 1)?, "transpose_a");
    let b = turned(spec::input_from_rank(inputs, 1, 1)?, "transpose_b");
    let split = |s: &Spec| s.dims().split_at(s.rank().saturating_sub(2)).0.iter().cloned().collect::<Shape>();
    let (left, right) = (split(&a), split(&b));
    let batch = left.broadcast(&right);
    let batch =
        batch.ok_or_else(|| OpError::mismatch("batches that broadcast", format!("{left} and {right}")))?;
    let mut dims = batch.dims().to_vec();
    check(a.last()?, &b.dims()[b.rank().saturating_sub(2)])?;
    if a.rank() >= 2 {
        dims.push(a.dims()[a.rank() - 2].clone());
    }
    if b.rank() >= 2 {
        dims.push(b.last()?.clone());
    }
    Ok(vec![Spec::new(dims.into_iter().collect(), a.dtype.promote(b.dtype))])
}

/// Over the last axis of the first and the last but one of the second; axes of both stay.
fn dot(_: &Operation, _: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (a, b) = (spec::input_from_rank(inputs, 0, 1)?, spec::input_from_rank(inputs, 1, 1)?);
    let over = b.rank().saturating_sub(2);
    check(a.last()?, &b.dims()[over])?;
    let left = a.dims()[..a.rank() - 1].iter();
    let right = b.dims().iter().enumerate().filter(|(i, _)| *i != over).map(|(_, d)| d);
    let dims: Shape = left.chain(right).cloned().collect();
    Ok(vec![Spec::new(dims, a.dtype.promote(b.dtype))])
}

fn einsum(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let equation = op.parameter(call, 0, &["subscripts", "equation"]);
    let equation: Option<String> =
        equation.and_then(|e| Some(e.as_str()?.chars().filter(|c| !c.is_whitespace()).collect()));
    // An ellipsis, or an output that is not written out, is left to what the file recorded.
    let Some(equation) = equation.filter(|e| !e.contains("...")) else { return Ok(Vec::new()) };
    let Some((left, output)) = equation.split_once("->") else { return Ok(Vec::new()) };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != inputs.len() {
        return Err(OpError::mismatch(format!("{} operands", terms.len()), inputs.len()));
    }
    let mut sizes: BTreeMap<char, Dim> = BTreeMap::new();
    for (i, (term, input)) in terms.iter().zip(inputs).enumerate() {
        if term.chars().count() != input.rank() {
            return Err(OpError::input(
                i,
                format!("an operand for `{term}`"),
                format!("shape {}", input.shape),
            ));
        }
        for (letter, dim) in term.chars().zip(input.dims()) {
            let slot = sizes.entry(letter).or_insert_with(|| dim.clone());
            if slot.known().is_none_or(|n| n == 1) {
                *slot = dim.clone();
            }
        }
    }
    let dims: Option<Shape> = output.chars().map(|c| sizes.get(&c).cloned()).collect();
    let dims = dims.ok_or_else(|| OpError::attribute("subscripts", "letters that operands have", output))?;
    let dtype = inputs.iter().map(|s| s.dtype).reduce(memfit_graph::DType::promote);
    Ok(vec![Spec::new(dims, dtype.unwrap_or(call.compute()))])
}

fn attention(_: &Operation, _: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(vec![spec::input(inputs, 0)?.clone()])
}
