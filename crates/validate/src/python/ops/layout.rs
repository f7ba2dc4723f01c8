//! What changes the shape: Reshape and its relatives, Transpose, Concat, Expand, Tile, Pad, DepthToSpace, Identity.

use super::Family;
use crate::python::line::{At, Refusal, float, tuple};
use memfit_graph::ops::concat::Concat;
use memfit_graph::ops::depth_space::DepthSpace;
use memfit_graph::ops::pad::{Pad, PadMode};
use memfit_graph::ops::transpose::Transpose;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["Reshape", "Flatten", "Squeeze", "Unsqueeze"], rule: reshape },
    Family { names: &["Identity"], rule: identity },
    Family { names: &["Transpose"], rule: transpose },
    Family { names: &["Concat"], rule: concat },
    Family { names: &["Expand"], rule: expand },
    Family { names: &["Tile"], rule: tile },
    Family { names: &["Pad"], rule: pad },
    Family { names: &["DepthToSpace", "SpaceToDepth"], rule: depth },
];

fn reshape(at: &mut At<'_>) -> Result<(), Refusal> {
    let shape = tuple(&at.output_shape(0)?);
    let x = at.on_device(0)?;
    at.set(format!("{x}.reshape({shape})"));
    Ok(())
}

fn identity(at: &mut At<'_>) -> Result<(), Refusal> {
    let x = at.on_device(0)?;
    at.set(x);
    Ok(())
}

fn transpose(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<Transpose>()?;
    let axes = op.permutation(at.rank(0)?).map_err(|e| e.to_string())?;
    let x = at.on_device(0)?;
    at.set(format!("{x}.permute({})", tuple(&axes)));
    Ok(())
}

fn concat(at: &mut At<'_>) -> Result<(), Refusal> {
    let axis = at.node.op.downcast::<Concat>().map_or(0, |op| op.axis);
    let (whole, count) = (at.output_shape(0)?, at.node.inputs.len());
    let along = usize::try_from(if axis < 0 { axis + whole.len() as i64 } else { axis }).unwrap_or(0);
    let part = |i: usize| {
        let (x, own) = (at.on_device(i)?, at.shape(i)?);
        // What a file exported at a batch of one has once for all samples, as an `Expand` that does nothing.
        let mut spread = whole.clone();
        if let (Some(size), Some(own)) = (spread.get_mut(along), own.get(along)) {
            *size = *own;
        }
        let alike = spread == own || own.len() != whole.len();
        Ok(if alike { x } else { format!("{x}.expand({})", tuple(&spread)) })
    };
    let parts = (0..count).map(part).collect::<Result<Vec<_>, Refusal>>()?;
    at.set(format!("torch.cat({}, {axis})", tuple(&parts)));
    Ok(())
}

fn expand(at: &mut At<'_>) -> Result<(), Refusal> {
    let shape = tuple(&at.output_shape(0)?);
    let x = at.on_device(0)?;
    at.set(format!("{x}.expand({shape})"));
    Ok(())
}

fn tile(at: &mut At<'_>) -> Result<(), Refusal> {
    let (from, to) = (at.shape(0)?, at.output_shape(0)?);
    let times: Vec<u64> = from.iter().zip(&to).map(|(from, to)| to / (*from).max(1)).collect();
    let x = at.on_device(0)?;
    at.set(format!("{x}.repeat({})", tuple(&times)));
    Ok(())
}

fn pad(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<Pad>()?;
    let rank = at.rank(0)?;
    let given = op.pads.clone().or_else(|| at.ints(1)).ok_or("a padding that is not known")?;
    let axes = match at.id(3) {
        Some(_) => at.ints(3).ok_or("axes that are not known")?,
        None => (0..rank as i64).collect(),
    };
    if given.len() != 2 * axes.len() {
        return Err("a padding of another rank".into());
    }
    let mut pads = vec![(0, 0); rank];
    for (i, axis) in axes.iter().enumerate() {
        pads[at.axis(*axis, rank)?] = (given[i], given[i + axes.len()]);
    }
    // From the last axis to the front; torch mirrors no batches and channels.
    while pads.first() == Some(&(0, 0)) && (op.mode == PadMode::Constant || pads.len() + 2 > rank) {
        pads.remove(0);
    }
    let flat: Vec<i64> = pads.iter().rev().flat_map(|(begin, end)| [*begin, *end]).collect();
    let x = at.on_device(0)?;
    if flat.is_empty() {
        at.set(x);
        return Ok(());
    }
    let mode = match op.mode {
        PadMode::Constant => format!("value={}", float(at.number(2).unwrap_or(0.0))),
        PadMode::Reflect => "mode=\"reflect\"".into(),
        PadMode::Edge => "mode=\"replicate\"".into(),
        PadMode::Wrap => "mode=\"circular\"".into(),
    };
    at.set(format!("F.pad({x}, {}, {mode})", tuple(&flat)));
    Ok(())
}

fn depth(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<DepthSpace>()?;
    let x = at.on_device(0)?;
    let call = if op.to_space { "F.pixel_shuffle" } else { "F.pixel_unshuffle" };
    at.set(format!("{call}({x}, {})", op.block));
    Ok(())
}
