//! Gather, GatherElements, Slice, Split.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Kind, Prim, Range};
use memfit_graph::ops::gather::Gather;
use memfit_graph::ops::slice::Slice;
use memfit_graph::ops::split::Split;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["Gather"], rule: gather },
    Family { names: &["GatherElements"], rule: gather_elements },
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
    let indices = l.input(1)?;
    let by = l.shape(indices);
    let y = if shape.len() == 2 && axis == 0 && by.len() == 2 {
        l.call(Prim::Embedding, &[x, indices], Kind::Float, output)
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

fn gather_elements(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    use memfit_graph::ops::gather_elements::GatherElements;
    let (x, indices) = (l.input(0)?, l.input(1)?);
    let axis = l.node.op.downcast::<GatherElements>().map_or(0, |op| op.axis);
    let axis = l.axis(axis, l.rank(x))?;
    let (kind, shape) = (l.kind(x), l.shape(indices));
    let y = l.call(Prim::Gather(axis), &[x, indices], kind, shape);
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
        if *step <= 0 {
            return Err("a range that runs backward".into());
        }
        let size = shape[axis] as i64;
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
            let part = l.narrow(x, axis, from, from + size);
            l.set(j, part);
        }
        from += size;
    }
    Ok(())
}
