//! Norms, as burn-nn composes them: BatchNorm (`modules/norm/batch.rs`), LayerNorm (`ModuleOps::layer_norm`), RmsNorm,
//! GroupNorm and InstanceNorm (`modules/norm/group.rs`).

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Binary, Kind, Prim, Slot, SourceKind, Unary, Window};
use memfit_graph::ops::batch_norm::BatchNormalization;
use memfit_graph::ops::group_norm::GroupNormalization;
use memfit_graph::ops::layer_norm::LayerNormalization;
use memfit_graph::ops::lp_norm::ComposedNorm;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["BatchNormalization"], rule: batch_norm },
    Family { names: &["ComposedRmsNorm", "LayerNormalization", "RMSNormalization"], rule: layer_norm },
    Family { names: &["GroupNormalization", "InstanceNormalization"], rule: group_norm },
    Family { names: &["LRN"], rule: local_response },
];

const MOMENTUM: f64 = 0.1;

/// `x` with one number a channel laid along axis 1.
fn along_channels(l: &mut Lower<'_, '_>, x: Slot, rank: usize) -> Slot {
    let mut shape = vec![1; rank];
    shape[1] = l.program.ty(x).elements();
    l.reshape(x, shape)
}

/// The mean over everything but axis 1.
fn channel_mean(l: &mut Lower<'_, '_>, x: Slot) -> Slot {
    let shape = l.shape(x);
    let turned = l.swap(x, 0, 1);
    let inner = l.program.ty(x).elements() / shape[1].max(1);
    let flat = l.reshape(turned, vec![shape[1], inner]);
    let mean = l.reduce(Prim::MeanDim(1), flat, 1);
    along_channels(l, mean, shape.len())
}

fn running(l: &mut Lower<'_, '_>, buffer: Slot, batch: Slot) -> Result<(), Refusal> {
    let old = l.scalar(Binary::Mul, buffer, 1.0 - MOMENTUM);
    let new = l.like(Prim::Detach, &[batch]);
    let new = l.scalar(Binary::Mul, new, MOMENTUM);
    let shape = l.shape(buffer);
    let new = l.reshape(new, shape);
    let new = l.binary(Binary::Add, old, new)?;
    l.program.replaced.push((buffer, new));
    Ok(())
}

fn batch_norm(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    let read = l.float(x);
    let x = l.precise(x);
    let (gamma, beta) = (l.input(1)?, l.input(2)?);
    let buffers = l.optional(3)?.zip(l.optional(4)?);
    let rank = l.rank(x);
    if rank < 2 {
        return Err("no channel axis".into());
    }
    let stored =
        |l: &Lower<'_, '_>, slot: Slot| l.program.source(slot).is_some_and(|s| s.kind == SourceKind::Buffer);
    let own = buffers.filter(|(mean, var)| !(l.model.training && stored(l, *mean) && stored(l, *var)));
    let (mean, var) = if let Some((mean, var)) = own {
        (along_channels(l, mean, rank), along_channels(l, var, rank))
    } else {
        let mean = channel_mean(l, x);
        let centred = l.binary(Binary::Sub, x, mean)?;
        let square = l.scalar(Binary::Pow, centred, 2.0);
        let var = channel_mean(l, square);
        if let Some((buffer_mean, buffer_var)) = buffers {
            running(l, buffer_mean, mean)?;
            running(l, buffer_var, var)?;
        }
        (mean, var)
    };
    let epsilon = l.node.op.downcast::<BatchNormalization>().map_or(1e-5, |op| op.epsilon);
    let std = l.scalar(Binary::Add, var, epsilon);
    let std = l.unary(Unary::Sqrt, std);
    let y = l.binary(Binary::Sub, x, mean)?;
    let y = l.binary(Binary::Div, y, std)?;
    let gamma = along_channels(l, gamma, rank);
    let y = l.binary(Binary::Mul, y, gamma)?;
    let beta = along_channels(l, beta, rank);
    let y = l.binary(Binary::Add, y, beta)?;
    let y = l.cast(y, read);
    l.set(0, y);
    Ok(())
}

/// Over the last axis.
fn normalized(l: &mut Lower<'_, '_>, x: Slot, rms: bool, epsilon: f64) -> Result<Slot, Refusal> {
    let x = l.precise(x);
    let last = l.rank(x).checked_sub(1).ok_or("a scalar")?;
    let centred = if rms {
        x
    } else {
        let mean = l.reduce(Prim::MeanDim(last), x, last);
        l.binary(Binary::Sub, x, mean)?
    };
    let square = l.scalar(Binary::Pow, centred, 2.0);
    let var = l.reduce(Prim::MeanDim(last), square, last);
    let var = l.scalar(Binary::Add, var, epsilon);
    let std = l.unary(Unary::Sqrt, var);
    l.binary(Binary::Div, centred, std)
}

fn layer_norm(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    // A composed one is over the last axis and may have no weight.
    let op = l.node.op.downcast::<LayerNormalization>().map(|op| (op.axis, op.rms, op.epsilon));
    let (axis, rms, epsilon) = op.unwrap_or((-1, true, 1e-6));
    let (x, gamma) = (l.input(0)?, l.optional(1)?);
    let beta = if rms { None } else { l.optional(2)? };
    let shape = l.shape(x);
    let axis = l.axis(axis, shape.len())?;
    // Several axes are one to Burn.
    let inner: usize = shape[axis..].iter().product();
    let flat = l.reshape(x, [&shape[..axis], &[inner]].concat());
    let mut y = normalized(l, flat, rms, epsilon)?;
    let one = |l: &mut Lower<'_, '_>, t: Slot| {
        let mut to = vec![1; axis];
        to.push(inner);
        l.reshape(t, to)
    };
    if let Some(gamma) = gamma {
        let gamma = one(l, gamma);
        y = l.binary(Binary::Mul, y, gamma)?;
    }
    if let Some(beta) = beta {
        let beta = one(l, beta);
        y = l.binary(Binary::Add, y, beta)?;
    }
    let y = l.reshape(y, shape);
    l.set(0, y);
    Ok(())
}

/// By the mean square of neighbouring channels, as `burn-nn`'s users compose it: a mean over planes of channels and space.
fn local_response(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<ComposedNorm>().cloned().ok_or("an unknown form")?;
    let ComposedNorm::LocalResponse { size, alpha, beta, bias } = op else {
        return Err("an unknown form".into());
    };
    let size =
        usize::try_from(size).ok().filter(|size| *size > 0).ok_or("a sum over no channels, or too many")?;
    let x = l.input(0)?;
    let x = l.precise(x);
    let shape = l.shape(x);
    let &[batch, channels, ref space @ ..] = &shape[..] else { return Err("no channel axis".into()) };
    let square = l.scalar(Binary::Pow, x, 2.0);
    let plane = vec![batch, 1, channels, space.iter().product()];
    let plane = l.reshape(square, plane);
    let pads = [(0, 0), (0, 0), ((size - 1) / 2, size / 2), (0, 0)];
    let padded = super::layout::pad(l, plane, &pads, 0.0);
    let (one, none) = (vec![1, 1], vec![0, 0]);
    let window =
        Window { kernel: vec![size, 1], stride: one.clone(), padding: none, dilation: one, ceil_mode: false };
    let like = l.shape(plane);
    let mean = l.call(Prim::AvgPool2d(window, true), &[padded], Kind::FLOAT, like);
    let mean = l.reshape(mean, shape.clone());
    let scale = l.scalar(Binary::Mul, mean, alpha);
    let scale = l.scalar(Binary::Add, scale, bias);
    let scale = l.scalar(Binary::Pow, scale, beta);
    let y = l.binary(Binary::Div, x, scale)?;
    l.set(0, y);
    Ok(())
}

fn group_norm(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<GroupNormalization>().copied().ok_or("an unknown form")?;
    if op.channels_last || op.skip || op.silu {
        return Err("channels last, or fused with its neighbours".into());
    }
    let (x, gamma, beta) = (l.input(0)?, l.input(1)?, l.input(2)?);
    let shape = l.shape(x);
    let [batch, channels, ..] = shape[..] else { return Err("no channel axis".into()) };
    let groups = op.groups.and_then(|g| usize::try_from(g).ok()).unwrap_or(channels).max(1);
    let inner = l.program.ty(x).elements() / (batch * groups).max(1);
    let flat = l.reshape(x, vec![batch, groups, inner]);
    let y = normalized(l, flat, false, op.epsilon)?;
    let y = l.reshape(y, shape.clone());
    let gamma = along_channels(l, gamma, shape.len());
    let y = l.binary(Binary::Mul, y, gamma)?;
    let beta = along_channels(l, beta, shape.len());
    let y = l.binary(Binary::Add, y, beta)?;
    l.set(0, y);
    Ok(())
}
