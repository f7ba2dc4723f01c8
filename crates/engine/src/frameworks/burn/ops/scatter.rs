//! Scatter, ScatterElements, ScatterND. Burn adds to what is there; what takes its place is added as the difference.

use super::Family;
use super::indexing::{Pieces, indices, pieces};
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::{Lower, from_front};
use crate::frameworks::burn::program::{Binary, Kind, Prim, Slot};
use memfit_graph::ops::scatter::{Places, Scatter};

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["Scatter", "ScatterElements"], rule: scatter_elements },
    Family { names: &["ScatterND"], rule: scatter_tuples },
];

/// Whether updates are added; else they take the place of what is there.
fn adds(l: &Lower<'_, '_>) -> Result<bool, Refusal> {
    match l.node.op.downcast::<Scatter>().map(|op| op.reduction.as_str()) {
        Some("none") => Ok(false),
        Some("add") => Ok(true),
        Some(other) => Err(format!("updates that are put together by {other}")),
        None => Err("an unknown form".into()),
    }
}

fn scatter_elements(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let adds = adds(l)?;
    let Some(Places::Elements(axis)) = l.node.op.downcast::<Scatter>().map(|op| op.places) else {
        return Err("an unknown form".into());
    };
    let (x, updates) = (l.input(0)?, l.input(2)?);
    let axis = l.axis(axis, l.rank(x))?;
    let size = l.shape(x)[axis];
    let at = indices(l, size)?;
    let y = written(l, [Prim::ScatterAdd(axis), Prim::Gather(axis)], [x, updates, at], adds)?;
    l.set(0, y);
    Ok(())
}

/// `x` with updates at these places, by the function that adds and the one that picks.
fn written(
    l: &mut Lower<'_, '_>,
    [add, pick]: [Prim; 2],
    [x, updates, at]: [Slot; 3],
    adds: bool,
) -> Result<Slot, Refusal> {
    let kind = l.kind(x);
    if kind == Kind::Bool {
        return Err("updates of truth values".into());
    }
    let mut updates = updates;
    if !adds {
        let picked = l.shape(updates);
        let old = l.call(pick, &[x, at], kind, picked);
        updates = l.binary(Binary::Sub, updates, old)?;
    }
    Ok(l.like(add, &[x, updates, at]))
}

/// Pieces of the updates in the place of the tensor's own: both joined, and picked from.
fn scatter_tuples(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let adds = adds(l)?;
    let (x, updates) = (l.input(0)?, l.input(2)?);
    let Some(places) = l.ints(1).filter(|_| !adds) else {
        let Pieces { at, pieces, rest } = pieces(l, x, 0)?;
        let (all, shape) = (l.program.ty(at).elements(), l.shape(x));
        let flat = l.reshape(x, [&[pieces], &rest[..]].concat());
        let news = l.reshape(updates, [&[all], &rest[..]].concat());
        let y = written(l, [Prim::SelectAdd(0), Prim::Select(0)], [flat, news, at], adds)?;
        let y = l.reshape(y, shape);
        l.set(0, y);
        return Ok(());
    };
    let (shape, by) = (l.shape(x), l.input_shape(1)?);
    let width = by.last().copied().filter(|width| (1..=shape.len()).contains(width));
    let width = width.ok_or("tuples of another length")?;
    let (picked, rest) = shape.split_at(width);
    let pieces = picked.iter().product::<usize>();
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for (k, tuple) in places.chunks_exact(width).enumerate() {
        let mut at = 0;
        for (index, size) in tuple.iter().zip(picked) {
            let index = usize::try_from(from_front(*index, *size))
                .ok()
                .filter(|index| index < size)
                .ok_or("a place outside")?;
            at = at * size + index;
        }
        taken.push((at, k));
    }
    let rows = move || {
        let mut rows: Vec<f64> = (0..pieces).map(|i| i as f64).collect();
        for (at, k) in &taken {
            rows[*at] = (pieces + k) as f64;
        }
        rows
    };
    let kind = l.kind(x);
    let flat = l.reshape(x, [&[pieces], rest].concat());
    let news = l.reshape(updates, [&[places.len() / width], rest].concat());
    let both = l.cat(&[flat, news], 0);
    let rows = l.table("rows", Kind::Int, vec![pieces], rows);
    let y = l.call(Prim::Select(0), &[both, rows], kind, [&[pieces], rest].concat());
    let y = l.reshape(y, shape.clone());
    l.set(0, y);
    Ok(())
}
