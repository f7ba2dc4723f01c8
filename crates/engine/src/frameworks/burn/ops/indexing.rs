//! Gather, GatherElements, GatherND, OneHot, Slice, Split.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::{Lower, from_front};
use crate::frameworks::burn::program::{Binary, Compare, Kind, Prim, Range, Slot};
use memfit_graph::Value;
use memfit_graph::ops::gather::Gather;
use memfit_graph::ops::gather_elements::GatherNd;
use memfit_graph::ops::one_hot::OneHot;
use memfit_graph::ops::slice::Slice;
use memfit_graph::ops::split::Split;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["Gather"], rule: gather },
    Family { names: &["GatherElements"], rule: gather_elements },
    Family { names: &["GatherND"], rule: gather_tuples },
    Family { names: &["OneHot"], rule: one_hot },
    Family { names: &["Slice"], rule: slice },
    Family { names: &["Split"], rule: split },
];

fn gather(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    let (shape, output) = (l.shape(x), l.output_shape(0)?);
    let axis = l.axis(l.node.op.downcast::<Gather>().map_or(0, |op| op.axis), shape.len())?;
    // One index is a range, which Rust code writes as `narrow`.
    if let (Some(at), [] | [1]) = (l.number(1), &l.input_shape(1)?[..]) {
        let at = l.axis(at as i64, shape[axis])?;
        let y = l.narrow(x, axis, at, at + 1);
        let y = l.reshape(y, output);
        l.set(0, y);
        return Ok(());
    }
    let indices = indices(l, shape[axis])?;
    let by = l.shape(indices);
    let y = if shape.len() == 2 && axis == 0 && by.len() == 2 && l.kind(x).is_float() {
        l.call(Prim::Embedding, &[x, indices], Kind::FLOAT, output)
    } else {
        let count = by.iter().product();
        let flat = l.reshape(indices, vec![count]);
        let mut picked = shape;
        picked[axis] = count;
        let kind = l.kind(x);
        let y = l.call(Prim::Select(axis), &[x, flat], kind, picked);
        l.reshape(y, output)
    };
    l.set(0, y);
    Ok(())
}

/// Input 1. Burn counts from the front alone: known positions from the back are counted anew.
pub(super) fn indices(l: &mut Lower<'_, '_>, size: usize) -> Result<Slot, Refusal> {
    match l.ints(1).filter(|list| list.iter().any(|at| *at < 0)) {
        None => l.input(1),
        Some(list) => {
            let shape = l.input_shape(1)?;
            let counted = move || list.iter().map(|at| from_front(*at, size) as f64).collect();
            Ok(l.table("indices", Kind::Int, shape, counted))
        }
    }
}

fn gather_elements(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    use memfit_graph::ops::gather_elements::GatherElements;
    let x = l.input(0)?;
    let axis = l.node.op.downcast::<GatherElements>().map_or(0, |op| op.axis);
    let axis = l.axis(axis, l.rank(x))?;
    let size = l.shape(x)[axis];
    let indices = indices(l, size)?;
    let (kind, shape) = (l.kind(x), l.shape(indices));
    let y = l.call(Prim::Gather(axis), &[x, indices], kind, shape);
    l.set(0, y);
    Ok(())
}

/// A tuple of indices for each piece: one index into all pieces, which lie in one axis.
fn gather_tuples(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let batch = l.node.op.downcast::<GatherNd>().map_or(0, |op| op.batch_dims);
    let (x, output) = (l.input(0)?, l.output_shape(0)?);
    let Pieces { at, pieces, rest } = pieces(l, x, batch)?;
    let (all, kind) = (l.program.ty(at).elements(), l.kind(x));
    let flat = l.reshape(x, [&[pieces], &rest[..]].concat());
    let y = l.call(Prim::Select(0), &[flat, at], kind, [&[all], &rest[..]].concat());
    let y = l.reshape(y, output);
    l.set(0, y);
    Ok(())
}

/// What tuples of indices point to.
pub(super) struct Pieces {
    /// Indices of pieces, along one axis.
    pub(super) at: Slot,
    /// How many there are.
    pub(super) pieces: usize,
    /// The dims of one.
    pub(super) rest: Vec<usize>,
}

/// The tuples of input 1 into `x`, each sample's into its own.
pub(super) fn pieces(l: &mut Lower<'_, '_>, x: Slot, batch: usize) -> Result<Pieces, Refusal> {
    let indices = l.input(1)?;
    let (shape, by) = (l.shape(x), l.shape(indices));
    let (Some(&width), last) = (by.last(), by.len().saturating_sub(1)) else {
        return Err("indices without an axis".into());
    };
    if batch.saturating_add(width) > shape.len() || width == 0 || l.kind(indices) != Kind::Int {
        return Err("tuples of another length".into());
    }
    let (samples, picked, rest) = (&shape[..batch], &shape[batch..batch + width], &shape[batch + width..]);
    let inner = |k: usize| picked[k + 1..].iter().product::<usize>();
    let mut at = None;
    for k in 0..width {
        let mut one = l.narrow(indices, last, k, k + 1);
        if inner(k) != 1 {
            one = l.scalar(Binary::Mul, one, inner(k) as f64);
        }
        at = Some(match at {
            None => one,
            Some(at) => l.binary(Binary::Add, at, one)?,
        });
    }
    let mut at = at.ok_or("tuples of another length")?;
    let (count, each) = (samples.iter().product::<usize>(), picked.iter().product::<usize>());
    let all = l.program.ty(at).elements();
    if count > 1 {
        // Where each sample's pieces begin.
        at = l.reshape(at, vec![count, all / count]);
        let begins = move || (0..count).map(|i| (i * each) as f64).collect();
        let begins = l.table("samples", Kind::Int, vec![count, 1], begins);
        at = l.binary(Binary::Add, at, begins)?;
    }
    let at = l.reshape(at, vec![all]);
    Ok(Pieces { at, pieces: count * each, rest: rest.to_vec() })
}

/// Where an index is that of a row: one value there, another elsewhere.
fn one_hot(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let axis = l.node.op.downcast::<OneHot>().map_or(-1, |op| op.axis);
    let output = l.output_shape(0)?;
    let axis = l.axis(axis, output.len())?;
    let values = l.value(2).and_then(Value::floats).ok_or("values that are not known")?;
    let &[off, on] = &values[..] else { return Err("other than two values".into()) };
    let x = l.input(0)?;
    let x = l.convert(x, Kind::Int);
    let depth = output[axis];
    // What counts from the back counts anew.
    let back = l.compare_scalar(Compare::Lower, x, 0.0);
    let front = l.scalar(Binary::Add, x, depth as f64);
    let x = l.like(Prim::MaskWhere, &[x, back, front]);
    let with = |size: usize| {
        let mut shape = output.clone();
        shape[axis] = size;
        shape
    };
    let x = l.reshape(x, with(1));
    let mut along = vec![1; output.len()];
    along[axis] = depth;
    let rows = l.table("rows", Kind::Int, along, move || (0..depth).map(|i| i as f64).collect());
    let hot = l.compare(Compare::Equal, x, rows)?;
    let kind = l.output_kind(0);
    let y = l.full(kind, output, off);
    let y = l.like(Prim::MaskFill(on), &[y, hot]);
    l.set(0, y);
    Ok(())
}

fn slice(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Slice>().cloned().ok_or("an unknown form")?;
    let x = l.input(0)?;
    let shape = l.shape(x);
    let unknown = || "a range that is not known".to_owned();
    let starts = op.starts.or_else(|| l.ints(1)).ok_or_else(unknown)?;
    let ends = op.ends.or_else(|| l.ints(2)).ok_or_else(unknown)?;
    let axes = op.axes.or_else(|| l.ints(3)).unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = l.ints(4).unwrap_or_else(|| vec![1; starts.len()]);
    let mut ranges: Vec<Range> = shape.iter().map(|n| Range { start: 0, end: *n, step: 1 }).collect();
    for (((start, end), axis), step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let axis = l.axis(*axis, shape.len())?;
        let size = shape[axis] as i64;
        if *step < 0 && size > 0 {
            // From `start` down to the element after `end`; Burn walks a range from its end.
            let at = |n: i64, low: i64| (if n < 0 { n.saturating_add(size) } else { n }).clamp(low, size - 1);
            let (start, end) = (at(*start, 0), at(*end, -1));
            ranges[axis] = Range {
                start: (end + 1).min(start + 1) as usize,
                end: (start + 1) as usize,
                step: isize::try_from(*step).map_err(|_| unknown())?,
            };
            continue;
        }
        let clamped = |n: i64| (if n < 0 { n.saturating_add(size) } else { n }).clamp(0, size);
        let (start, end) = (clamped(*start), clamped(*end));
        ranges[axis] = Range {
            start: start as usize,
            end: end.max(start) as usize,
            step: isize::try_from(*step).map_err(|_| unknown())?,
        };
    }
    let y = l.slice(x, ranges);
    l.set(0, y);
    Ok(())
}

fn split(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    let axis = l.axis(l.node.op.downcast::<Split>().map_or(0, |op| op.axis), l.rank(x))?;
    let mut from = 0;
    for j in 0..l.node.outputs.len() {
        let size = l.output_shape(j)?.get(axis).copied().ok_or("a part without that axis")?;
        if l.wants(j) {
            let part = l.narrow(x, axis, from, from.saturating_add(size));
            l.set(j, part);
        }
        from = from.saturating_add(size);
    }
    Ok(())
}
