//! Parts of a tensor: `x[:, 1:, None]`, `take`, `one_hot`.

use super::{Operation, Rule, operand};
use crate::arguments::Argument;
use crate::layer::Call;
use crate::spec::{self, Spec};
use memfit_graph::{DType, Dim, OpError};
use serde_json::Value;

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["GetItem"], get_item),
    (&["OneHot"], one_hot),
    (&["Take"], take),
    (&["TakeAlongAxis"], take_along),
    (&["TopK"], top_k),
    (&["Argpartition", "Argsort"], places),
];

/// One part of a key.
enum Key {
    Index,
    Slice([Option<i64>; 3]),
    New,
    Ellipsis,
}

fn key(argument: &Argument) -> Option<Key> {
    let slice = |object: &Value| {
        let at = |name: &str| match object.get(name) {
            None | Some(Value::Null) => Some(None),
            Some(value) => value.as_i64().map(Some),
        };
        Some(Key::Slice([at("start")?, at("stop")?, at("step")?]))
    };
    match argument {
        Argument::Json(Value::Null) => Some(Key::New),
        Argument::Json(value) if value.is_i64() => Some(Key::Index),
        Argument::Json(Value::String(text)) if text == "..." => Some(Key::Ellipsis),
        Argument::Json(value @ Value::Object(object)) => {
            match object.get("class_name").and_then(Value::as_str) {
                Some("__slice__") => slice(object.get("config")?),
                Some("__ellipsis__") => Some(Key::Ellipsis),
                None if object.contains_key("start") => slice(value),
                _ => None,
            }
        }
        Argument::Map(map) => {
            let plain = |(k, v): (&String, &Argument)| match v {
                Argument::Json(v) => Some((k.clone(), v.clone())),
                _ => None,
            };
            slice(&Value::Object(map.iter().map(plain).collect::<Option<_>>()?))
        }
        _ => None,
    }
}

/// The size of a slice along an axis of `dim` elements.
fn sliced(dim: &Dim, [start, stop, step]: [Option<i64>; 3]) -> Option<Dim> {
    let step = step.unwrap_or(1);
    let Some(n) = dim.known().and_then(|n| i64::try_from(n).ok()) else {
        // An open size stays only where everything is taken, but for some elements at its ends.
        let at_most = |n: i64| Some(Dim::expression(&format!("min({dim}, {n})"), u64::try_from(n).ok()));
        return match (start, stop, step) {
            (None | Some(0), None, 1 | -1) => Some(dim.clone()),
            (Some(start), None, 1) if start > 0 => Some(dim.offset(start.checked_neg()?)),
            (None | Some(0), Some(stop), 1) if stop < 0 => Some(dim.offset(stop)),
            (None | Some(0), Some(stop), 1) => at_most(stop),
            (Some(start), None, 1) => at_most(start.checked_neg()?),
            (None | Some(0), None, step) if step != 0 => {
                let step = step.unsigned_abs();
                dim.offset(i64::try_from(step - 1).ok()?).div_floor(&Dim::Known(step))
            }
            _ => None,
        };
    };
    if step == 0 {
        return None;
    }
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let at = |index: Option<i64>, default: i64| {
        let index = index.map(|i| if i < 0 { i.saturating_add(n) } else { i });
        index.map_or(default, |i| i.clamp(low, high))
    };
    let (start, stop) =
        if step > 0 { (at(start, low), at(stop, high)) } else { (at(start, high), at(stop, low)) };
    let span = if step > 0 { stop - start } else { start - stop };
    let count = span.max(0) as u64;
    Some(Dim::Known(count.div_ceil(step.unsigned_abs())))
}

fn keys(op: &Operation, call: &Call<'_>) -> Option<Vec<Key>> {
    let keys: Vec<Argument> = match op.parameter(call, 1, &["key", "slice_spec"])? {
        Argument::List(list) => list,
        Argument::Json(Value::Array(list)) => list.into_iter().map(Argument::Json).collect(),
        one => vec![one],
    };
    keys.iter().map(key).collect()
}

/// Whether what is taken are neighbours along the first axis.
pub(super) fn is_stretch(op: &Operation, call: &Call<'_>) -> bool {
    let keys = keys(op, call).unwrap_or_default();
    let is_all = |key: &Key| matches!(key, Key::Ellipsis | Key::Slice([None, None, None | Some(1)]));
    let Some((first, rest)) = keys.split_first() else { return false };
    matches!(first, Key::Index | Key::Slice([_, _, None | Some(1)])) && rest.iter().all(is_all)
}

/// How much is taken along each axis of a tensor of these sizes, `None` where it is one and the axis goes.
pub(super) fn taken(op: &Operation, call: &Call<'_>, sizes: &[u64]) -> Option<Vec<Option<u64>>> {
    let keys = keys(op, call)?;
    let used = keys.iter().filter(|key| matches!(key, Key::Index | Key::Slice(_))).count();
    let rest = sizes.len().checked_sub(used)?;
    let mut sizes = sizes.iter();
    let mut taken = Vec::new();
    for key in keys {
        match key {
            Key::New => {}
            Key::Ellipsis => taken.extend(sizes.by_ref().take(rest).copied().map(Some)),
            Key::Index => {
                sizes.next()?;
                taken.push(None);
            }
            Key::Slice(slice) => taken.push(Some(sliced(&Dim::Known(*sizes.next()?), slice)?.known()?)),
        }
    }
    Some(taken)
}

fn get_item(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let Some(keys) = keys(op, call) else { return Ok(Vec::new()) };
    let used = keys.iter().filter(|k| matches!(k, Key::Index | Key::Slice(_))).count();
    let rest = x.rank().checked_sub(used);
    let rest = rest.ok_or_else(|| OpError::mismatch(format!("at most {} indices", x.rank()), used))?;
    let mut axes = x.dims().iter();
    let mut dims = Vec::new();
    for key in &keys {
        match key {
            Key::New => dims.push(Dim::Known(1)),
            Key::Ellipsis => dims.extend(axes.by_ref().take(rest).cloned()),
            Key::Index => {
                axes.next();
            }
            Key::Slice(slice) => {
                let Some(dim) = axes.next().and_then(|d| sliced(d, *slice)) else { return Ok(Vec::new()) };
                dims.push(dim);
            }
        }
    }
    dims.extend(axes.cloned());
    Ok(vec![x.with(dims)])
}

fn take(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    // TensorFlow's `gather` names its table.
    let table = call.arguments.get(0, "x").or_else(|| call.arguments.named.get("params"));
    let table = table.and_then(|a| a.spec(inputs, call.compute()));
    let indices = op.parameter(call, 1, &["indices"]).and_then(|a| a.spec(inputs, DType::Int32));
    let (Some(x), Some(indices)) = (table, indices) else { return Ok(Vec::new()) };
    let axis = match op.integer(call, 2, &["axis"]) {
        Some(axis) => axis,
        None if !op.config.is_object() || op.config.get("function").is_some() => 0,
        None => return Ok(vec![x.with(indices.dims().iter().cloned())]),
    };
    let axis = x.axis(axis)?;
    let middle = indices.dims();
    let (before, after) = (x.dims()[..axis].iter(), x.dims()[axis + 1..].iter());
    Ok(vec![x.with(before.chain(middle).chain(after).cloned())])
}

/// The shape of the indices (numpy.py, `TakeAlongAxis`).
fn take_along(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let both = op.operands(call, inputs, &["x", "indices"]);
    let both = both.and_then(|both| <[Spec; 2]>::try_from(both).ok());
    Ok(both.map(|[x, at]| x.with(at.dims().iter().cloned())).into_iter().collect())
}

/// The largest of the last axis, and where they were (math.py, `TopK`).
fn top_k(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let k = op.integer(call, 1, &["k"]).and_then(|k| u64::try_from(k).ok());
    let (Some(k), Some(last)) = (k, x.rank().checked_sub(1)) else { return Ok(Vec::new()) };
    let values = x.replaced(last, Dim::Known(k));
    Ok(vec![values.clone(), Spec { dtype: DType::Int32, ..values }])
}

/// Where each element goes; of all elements in one row where no axis is given.
fn places(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let flat = op.config.get("axis").is_some_and(Value::is_null);
    let y = if flat { x.with([spec::product(x.dims())?]) } else { x.clone() };
    Ok(vec![Spec { dtype: DType::Int32, ..y }])
}

fn one_hot(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let classes = op.integer(call, 1, &["num_classes", "depth"]).and_then(|n| u64::try_from(n).ok());
    let Some(classes) = classes else { return Ok(Vec::new()) };
    let axis = op.integer(call, 2, &["axis"]).unwrap_or(-1);
    let mut dims = x.dims().to_vec();
    let at = if axis == -1 { Some(dims.len()) } else { usize::try_from(axis).ok() };
    let at = at.filter(|at| *at <= dims.len()).ok_or_else(|| {
        OpError::attribute("axis", format!("-1, or an axis up to {}", x.rank()), axis.to_string())
    })?;
    dims.insert(at, Dim::Known(classes));
    let dtype = op.parameter(call, usize::MAX, &["dtype"]).and_then(|d| crate::policy::dtype(d.as_str()?));
    Ok(vec![Spec::new(dims.into_iter().collect(), dtype.unwrap_or(DType::Float32))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_count_as_python_does() {
        let count = |n, slice| sliced(&Dim::Known(n), slice).unwrap().known().unwrap();
        assert_eq!(count(10, [None, None, Some(3)]), 4);
        assert_eq!(count(10, [Some(-3), None, None]), 3);
        assert_eq!(count(10, [None, None, Some(-1)]), 10);
        assert_eq!(count(10, [Some(8), Some(2), Some(-2)]), 3);
        assert_eq!(count(10, [Some(5), Some(2), None]), 0);
        assert_eq!(count(10, [Some(i64::MIN), Some(i64::MAX), Some(i64::MAX)]), 1);
        assert_eq!(sliced(&Dim::symbol("t"), [Some(1), None, None]).unwrap().to_string(), "(t - 1)");
        assert_eq!(sliced(&Dim::symbol("t"), [None, Some(4), None]).unwrap().upper(), Some(4));
        assert!(sliced(&Dim::symbol("t"), [Some(2), Some(4), None]).is_none());
    }
}
