//! Products of matrices and vectors: `matmul`, `dot`, `einsum`, `tensordot`, `outer`. One side may be an array that the file holds.
//!
//! keras/src/ops/numpy.py: `Matmul`, `Dot`, `Einsum`, `Inner`, `Outer`, `Vdot`, `Kron`, `Tensordot`, `Cross`; keras/src/ops/math.py:
//! `CDist`; keras/src/ops/nn.py: `DotProductAttention`.

use super::{Operation, Rule};
use crate::arguments::Argument;
use crate::layer::Call;
use crate::spec::{self, Spec};
use memfit_graph::{DType, Dim, OpError, Shape};
use std::collections::BTreeMap;

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["CDist"], distances),
    (&["Cross"], cross),
    (&["Dot"], dot),
    (&["DotProductAttention"], attention),
    (&["Einsum"], einsum),
    (&["Inner"], inner),
    (&["Kron"], kron),
    (&["Matmul"], matmul),
    (&["Outer"], outer),
    (&["Tensordot"], tensordot),
    (&["Vdot"], number),
];

fn check(a: &Dim, b: &Dim) -> Result<(), OpError> {
    match (a.known(), b.known()) {
        (Some(a), Some(b)) if a != b => {
            Err(OpError::mismatch("as many columns as rows", format!("{a} and {b}")))
        }
        _ => Ok(()),
    }
}

/// Both sides; TensorFlow's functions name them otherwise.
fn sides(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<(Spec, Spec), OpError> {
    let named = [["x1", "x2"], ["a", "b"], ["x", "y"]];
    let mut both =
        named.iter().find_map(|names| op.operands(call, inputs, names)).unwrap_or_else(|| inputs.to_vec());
    both.truncate(2);
    match <[Spec; 2]>::try_from(both) {
        Ok([a, b]) => Ok((a, b)),
        Err(found) => Err(OpError::MissingInput { index: found.len() }),
    }
}

/// The dtype of a product.
fn promoted(a: &Spec, b: &Spec) -> DType {
    a.dtype.promote(b.dtype)
}

/// The dtype of a sum of products: of 8-bit numbers it is `int32`.
fn summed(a: &Spec, b: &Spec) -> DType {
    if a.dtype == DType::Int8 && b.dtype == DType::Int8 { DType::Int32 } else { promoted(a, b) }
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
    let (a, b) = sides(op, call, inputs)?;
    let both = [turned(&a, "transpose_a"), turned(&b, "transpose_b")];
    let (a, b) = (spec::input_from_rank(&both, 0, 1)?, spec::input_from_rank(&both, 1, 1)?);
    let split = |s: &Spec| s.dims().split_at(s.rank().saturating_sub(2)).0.iter().cloned().collect::<Shape>();
    let (left, right) = (split(a), split(b));
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
    Ok(vec![Spec::new(dims.into_iter().collect(), summed(a, b))])
}

/// Over the last axis of the first and the last but one of the second; axes of both stay. A number scales.
fn dot(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (a, b) = sides(op, call, inputs)?;
    if a.rank() == 0 || b.rank() == 0 {
        return Ok(vec![scaled(&a, &b)]);
    }
    let over = b.rank().saturating_sub(2);
    check(a.last()?, &b.dims()[over])?;
    let left = a.dims()[..a.rank() - 1].iter();
    let right = b.dims().iter().enumerate().filter(|(i, _)| *i != over).map(|(_, d)| d);
    let dims: Shape = left.chain(right).cloned().collect();
    Ok(vec![Spec::new(dims, promoted(&a, &b))])
}

/// A tensor times a number.
fn scaled(a: &Spec, b: &Spec) -> Spec {
    Spec { dtype: promoted(a, b), ..if a.rank() == 0 { b.clone() } else { a.clone() } }
}

/// Over the last axes of both.
fn inner(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (a, b) = sides(op, call, inputs)?;
    if a.rank() == 0 || b.rank() == 0 {
        return Ok(vec![scaled(&a, &b)]);
    }
    check(a.last()?, b.last()?)?;
    let left = a.dims()[..a.rank() - 1].iter();
    let dims: Shape = left.chain(&b.dims()[..b.rank() - 1]).cloned().collect();
    Ok(vec![Spec::new(dims, promoted(&a, &b))])
}

/// All elements of one with all of the other.
fn outer(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (a, b) = sides(op, call, inputs)?;
    let dims = [spec::product(a.dims())?, spec::product(b.dims())?];
    Ok(vec![Spec::new(dims.into_iter().collect(), promoted(&a, &b))])
}

fn number(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (a, b) = sides(op, call, inputs)?;
    Ok(vec![Spec::new(Shape::scalar(), promoted(&a, &b))])
}

/// One tensor in the place of each element of the other.
fn kron(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (a, b) = sides(op, call, inputs)?;
    let rank = a.rank().max(b.rank());
    let dim =
        |x: &Spec, i: usize| (i + x.rank()).checked_sub(rank).map_or(Dim::Known(1), |i| x.dims()[i].clone());
    let dims = (0..rank).map(|i| spec::product(&[dim(&a, i), dim(&b, i)])).collect::<Result<_, _>>()?;
    Ok(vec![Spec::new(dims, promoted(&a, &b))])
}

/// Of vectors of three elements, or of two, whose product is a number.
fn cross(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (mut a, mut b) = sides(op, call, inputs)?;
    let at = |name: &str| op.integer(call, usize::MAX, &["axis", name]).unwrap_or(-1);
    let sizes = [(&mut a, "axisa"), (&mut b, "axisb")].map(|(x, name)| Ok(x.shape.remove(x.axis(at(name))?)));
    let sizes: Vec<Dim> = sizes.into_iter().collect::<Result<_, OpError>>()?;
    let mut shape = a.shape.broadcast(&b.shape);
    if let Some(shape) = shape.as_mut().filter(|_| sizes.contains(&Dim::Known(3))) {
        let rank = shape.rank() as i64 + 1;
        let axis = at("axisc");
        let axis = usize::try_from(if axis < 0 { axis.saturating_add(rank) } else { axis });
        shape.insert(axis.unwrap_or(0).min(shape.rank()), Dim::Known(3));
    }
    Ok(shape.map(|shape| Spec::new(shape, promoted(&a, &b))).into_iter().collect())
}

/// Between all rows of one and all of the other.
fn distances(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (a, b) = sides(op, call, inputs)?;
    let (Some((_, left)), Some((_, right))) = (a.dims().split_last(), b.dims().split_last()) else {
        return Ok(Vec::new());
    };
    let dims = left.iter().chain(right.last()).cloned().collect();
    Ok(vec![Spec::new(dims, super::elementwise::floating(promoted(&a, &b)))])
}

/// Over so many axes, or over these of each.
fn tensordot(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (a, b) = sides(op, call, inputs)?;
    let pairs: Option<Vec<Vec<i64>>> = match op.parameter(call, 2, &["axes"]) {
        None => Some(vec![vec![-2, -1], vec![0, 1]]),
        Some(Argument::Json(serde_json::Value::Array(list))) => {
            list.into_iter().map(|v| Argument::Json(v).ints()).collect()
        }
        Some(Argument::List(list)) => list.iter().map(Argument::ints).collect(),
        Some(count) => {
            count.as_i64().map(|n| vec![(-n.clamp(0, 64)..0).collect(), (0..n.clamp(0, 64)).collect()])
        }
    };
    let Some([left, right]) = pairs.and_then(|p| <[Vec<i64>; 2]>::try_from(p).ok()) else {
        return Ok(Vec::new());
    };
    let (left, right) = (super::axes_of(&a, &left)?, super::axes_of(&b, &right)?);
    for (i, j) in left.iter().zip(&right) {
        check(&a.dims()[*i], &b.dims()[*j])?;
    }
    let kept = |x: &Spec, gone: &[usize]| -> Vec<Dim> {
        x.dims().iter().enumerate().filter(|(i, _)| !gone.contains(i)).map(|(_, d)| d.clone()).collect()
    };
    let dims = kept(&a, &left).into_iter().chain(kept(&b, &right)).collect();
    Ok(vec![Spec::new(dims, promoted(&a, &b))])
}

/// `...` stands for the axes that letters leave over, which broadcast.
fn einsum(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let equation = op.parameter(call, 0, &["subscripts", "equation"]);
    let equation: Option<String> =
        equation.and_then(|e| Some(e.as_str()?.chars().filter(|c| !c.is_whitespace()).collect()));
    let Some(equation) = equation else { return Ok(Vec::new()) };
    let (left, output) =
        equation.split_once("->").map_or((&*equation, None), |(left, right)| (left, Some(right)));
    let terms: Vec<&str> = left.split(',').collect();
    // The equation is the first argument of TensorFlow's function, and a parameter of Keras' operation.
    let given = call.arguments.positional.iter().filter(|a| a.as_str().is_none());
    let weak = inputs.first().map_or(call.compute(), |x| x.dtype);
    let given: Option<Vec<Spec>> = given.map(|a| a.spec(inputs, weak)).collect();
    let inputs = given.filter(|g| g.len() == terms.len()).unwrap_or_else(|| inputs.to_vec());
    if terms.len() != inputs.len() {
        return Err(OpError::mismatch(format!("{} operands", terms.len()), inputs.len()));
    }
    let mut sizes: BTreeMap<char, Dim> = BTreeMap::new();
    let mut rest = Shape::scalar();
    for (i, (term, input)) in terms.iter().zip(&inputs).enumerate() {
        let wrong =
            || OpError::input(i, format!("an operand for `{term}`"), format!("shape {}", input.shape));
        let (before, after) = term.split_once("...").unwrap_or((term, ""));
        let (front, back) = (before.chars().count(), after.chars().count());
        let over = input.rank().checked_sub(front + back).filter(|n| *n == 0 || term.contains("..."));
        let end = front + over.ok_or_else(wrong)?;
        let middle: Shape = input.dims()[front..end].iter().cloned().collect();
        rest = rest.broadcast(&middle).ok_or_else(wrong)?;
        let named = input.dims()[..front].iter().chain(&input.dims()[end..]);
        for (letter, dim) in before.chars().chain(after.chars()).zip(named) {
            let slot = sizes.entry(letter).or_insert_with(|| dim.clone());
            if slot.known().is_none_or(|n| n == 1) {
                *slot = dim.clone();
            }
        }
    }
    // Where the output is not written out, it has the letters that stand once, in alphabetical order.
    let once = |c: &char| left.chars().filter(|l| l == c).count() == 1;
    let implied = || {
        format!(
            "{}{}",
            if left.contains("...") { "..." } else { "" },
            sizes.keys().filter(|c| once(c)).collect::<String>()
        )
    };
    let output = output.map_or_else(implied, str::to_owned);
    let (before, after) = output.split_once("...").unwrap_or((&output, ""));
    let named = |letters: &str| letters.chars().map(|c| sizes.get(&c).cloned()).collect::<Option<Vec<Dim>>>();
    let (Some(before), Some(after)) = (named(before), named(after)) else {
        return Err(OpError::attribute("subscripts", "letters that operands have", output));
    };
    let middle = if output.contains("...") { rest.dims() } else { &[] };
    let dims = before.iter().chain(middle).chain(&after).cloned().collect();
    let dtype = match &inputs[..] {
        [a, b] => summed(a, b),
        _ => inputs.iter().map(|s| s.dtype).reduce(DType::promote).unwrap_or(call.compute()),
    };
    Ok(vec![Spec::new(dims, dtype)])
}

fn attention(_: &Operation, _: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(vec![spec::input(inputs, 0)?.clone()])
}
