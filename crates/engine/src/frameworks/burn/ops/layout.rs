//! What changes the shape: Reshape and its relatives, Transpose, Concat, Expand, Tile, Pad, Identity.

use super::Family;
use crate::frameworks::burn::builder::{MOST, Refusal};
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Range, Slot};
use memfit_graph::ops::concat::Concat;
use memfit_graph::ops::constant_of_shape::ConstantOfShape;
use memfit_graph::ops::depth_space::DepthSpace;
use memfit_graph::ops::pad::{Pad, PadMode};
use memfit_graph::ops::transpose::Transpose;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["Reshape", "Flatten", "Squeeze", "Unsqueeze"], rule: reshape },
    Family { names: &["Identity", "Restore", "Widen"], rule: identity },
    Family { names: &["Transpose"], rule: transpose },
    Family { names: &["Concat"], rule: concat },
    Family { names: &["Expand"], rule: expand },
    Family { names: &["Tile"], rule: tile },
    Family { names: &["Pad"], rule: padding },
    Family { names: &["ConstantOfShape"], rule: constant },
    Family { names: &["DepthToSpace", "SpaceToDepth"], rule: blocks },
];

fn reshape(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    let y = l.output_shape(0).map(|shape| l.reshape(x, shape))?;
    l.set(0, y);
    Ok(())
}

fn identity(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    l.set(0, x);
    Ok(())
}

fn transpose(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Transpose>().cloned().ok_or("an unknown form")?;
    let x = l.input(0)?;
    let axes = op.permutation(l.rank(x)).map_err(|e| e.to_string())?;
    let y = l.permute(x, axes);
    l.set(0, y);
    Ok(())
}

fn concat(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let parts = (0..l.node.inputs.len()).map(|i| l.input(i)).collect::<Result<Vec<_>, _>>()?;
    let parts: Vec<Slot> = parts.into_iter().filter(|p| l.program.ty(*p).elements() > 0).collect();
    let first = *parts.first().ok_or("nothing to join")?;
    let axis = l.axis(l.node.op.downcast::<Concat>().map_or(0, |op| op.axis), l.rank(first))?;
    let whole = l.output_shape(0)?;
    if parts.iter().any(|part| l.rank(*part) != whole.len()) {
        return Err("parts of other ranks".into());
    }
    let spread = |part: Slot| {
        // What a file exported at a batch of one has once for all samples.
        let mut shape = whole.clone();
        shape[axis] = l.shape(part)[axis];
        if shape == l.shape(part) { part } else { l.expand(part, shape) }
    };
    let parts: Vec<Slot> = parts.into_iter().map(spread).collect();
    let y = if parts.len() == 1 { parts[0] } else { l.cat(&parts, axis) };
    l.set(0, y);
    Ok(())
}

fn expand(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    let shape = l.output_shape(0)?;
    let y = l.expand(x, shape);
    l.set(0, y);
    Ok(())
}

fn tile(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let mut x = l.input(0)?;
    let shape = l.output_shape(0)?;
    if l.rank(x) != shape.len() {
        return Err("other axes than those of the input".into());
    }
    for (axis, size) in shape.iter().enumerate() {
        let have = l.shape(x)[axis].max(1);
        if size / have > MOST {
            return Err(format!("{} copies to join, more than {MOST}", size / have));
        }
        if size / have > 1 {
            x = l.cat(&vec![x; size / have], axis);
        }
    }
    l.set(0, x);
    Ok(())
}

fn constant(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<ConstantOfShape>().cloned().ok_or("an unknown form")?;
    let (kind, shape) = (l.output_kind(0), l.output_shape(0)?);
    let y = l.full(kind, shape, op.fill.as_f64().ok_or("an element that is not known")?);
    l.set(0, y);
    Ok(())
}

/// Channels to blocks of space, or back: `[C, b, b]` or `[b, b, C]` beside `[H, W]`, turned.
fn blocks(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<DepthSpace>().copied().ok_or("an unknown form")?;
    let x = l.input(0)?;
    let (shape, output) = (l.shape(x), l.output_shape(0)?);
    let block = usize::try_from(op.block).map_err(|_| "a block too large")?;
    if block == 0 {
        return Err("blocks of nothing".into());
    }
    let (&[batch, deep, high, wide], &[_, shallow, ..]) = (&shape[..], &output[..]) else {
        return Err("other axes than those of a plane".into());
    };
    let (apart, axes) = match (op.to_space, op.channel_first) {
        (true, true) => (vec![batch, shallow, block, block, high, wide], [0, 1, 4, 2, 5, 3]),
        (true, false) => (vec![batch, block, block, shallow, high, wide], [0, 3, 4, 1, 5, 2]),
        (false, true) => (vec![batch, deep, high / block, block, wide / block, block], [0, 1, 3, 5, 2, 4]),
        (false, false) => (vec![batch, deep, high / block, block, wide / block, block], [0, 3, 5, 1, 2, 4]),
    };
    let apart = l.reshape(x, apart);
    let turned = l.permute(apart, axes.to_vec());
    let y = l.reshape(turned, output);
    l.set(0, y);
    Ok(())
}

fn padding(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Pad>().cloned().ok_or("an unknown form")?;
    let x = l.input(0)?;
    let rank = l.rank(x);
    let given = op.pads.or_else(|| l.ints(1)).ok_or("a padding that is not known")?;
    let axes = match l.id(3) {
        Some(_) => l.ints(3).ok_or("axes that are not known")?,
        None => (0..rank as i64).collect(),
    };
    if given.len() != 2 * axes.len() {
        return Err("a padding of another rank".into());
    }
    let mut pads = vec![(0, 0); rank];
    for (i, axis) in axes.iter().enumerate() {
        let both = usize::try_from(given[i]).ok().zip(usize::try_from(given[i + axes.len()]).ok());
        pads[l.axis(*axis, rank)?] = both.ok_or("a negative padding")?;
    }
    let y = if op.mode == PadMode::Constant {
        let value = l.number(2).unwrap_or(0.0);
        pad(l, x, &pads, value)
    } else {
        mirrored(l, x, &pads, op.mode)?
    };
    l.set(0, y);
    Ok(())
}

/// What stands beyond the ends is taken from the tensor itself: pieces of it are turned, stretched or moved, and joined on.
fn mirrored(l: &mut Lower<'_, '_>, x: Slot, pads: &[(usize, usize)], mode: PadMode) -> Result<Slot, Refusal> {
    let mut x = x;
    for (axis, (begin, end)) in pads.iter().copied().enumerate().filter(|(_, pads)| *pads != (0, 0)) {
        let size = l.shape(x)[axis];
        let most = if mode == PadMode::Reflect { size.saturating_sub(1) } else { size };
        if size == 0 || mode != PadMode::Edge && begin.max(end) > most {
            return Err(format!("a padding of {} beside {size} elements", begin.max(end)));
        }
        let piece = |l: &mut Lower<'_, '_>, count: usize, first: bool| match mode {
            PadMode::Edge => {
                let at = if first { 0 } else { size - 1 };
                let edge = l.narrow(x, axis, at, at + 1);
                let mut shape = l.shape(edge);
                shape[axis] = count;
                l.expand(edge, shape)
            }
            PadMode::Wrap if first => l.narrow(x, axis, size - count, size),
            PadMode::Wrap => l.narrow(x, axis, 0, count),
            _ => {
                let from = if first { 1 } else { size - 1 - count };
                let whole = l.shape(x).into_iter().map(|n| Range { start: 0, end: n, step: 1 });
                let mut ranges: Vec<Range> = whole.collect();
                ranges[axis] = Range { start: from, end: from + count, step: -1 };
                l.slice(x, ranges)
            }
        };
        let before = (begin > 0).then(|| piece(l, begin, true));
        let after = (end > 0).then(|| piece(l, end, false));
        let parts: Vec<Slot> = before.into_iter().chain([x]).chain(after).collect();
        x = l.cat(&parts, axis);
    }
    Ok(x)
}

/// One number around a tensor: pieces of it are joined on.
pub(super) fn pad(l: &mut Lower<'_, '_>, x: Slot, pads: &[(usize, usize)], value: f64) -> Slot {
    let mut x = x;
    for (axis, (begin, end)) in pads.iter().enumerate() {
        let piece = |l: &mut Lower<'_, '_>, size: usize| {
            let mut shape = l.shape(x);
            shape.get_mut(axis).into_iter().for_each(|dim| *dim = size);
            let kind = l.kind(x);
            l.full(kind, shape, value)
        };
        let before = (*begin > 0).then(|| piece(l, *begin));
        let after = (*end > 0).then(|| piece(l, *end));
        if before.is_some() || after.is_some() {
            let parts: Vec<Slot> = before.into_iter().chain([x]).chain(after).collect();
            x = l.cat(&parts, axis);
        }
    }
    x
}
