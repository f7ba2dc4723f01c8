//! Norms and attention: the functions of torch that have kernels of their own.

use super::Family;
use crate::python::line::{At, Refusal, float, truth, tuple};
use memfit_graph::ops::batch_norm::BatchNormalization;
use memfit_graph::ops::group_norm::GroupNormalization;
use memfit_graph::ops::layer_norm::LayerNormalization;
use memfit_graph::ops::scaled_dot_product::ScaledDotProductAttention;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["BatchNormalization"], rule: batch_norm },
    Family { names: &["LayerNormalization", "RMSNormalization"], rule: layer_norm },
    Family { names: &["ComposedRmsNorm"], rule: composed_rms_norm },
    Family { names: &["GroupNormalization", "InstanceNormalization"], rule: group_norm },
    Family { names: &["ScaledDotProductAttention"], rule: attention },
];

/// A module of torch's, which keeps a counter beside its running statistics.
fn batch_norm(at: &mut At<'_>) -> Result<(), Refusal> {
    let (rank, shape) = (at.rank(0)?, at.shape(1)?);
    let channels = shape.first().copied().ok_or("no channels")?;
    let class = match rank {
        2 | 3 => "BatchNorm1d",
        4 => "BatchNorm2d",
        5 => "BatchNorm3d",
        _ => return Err(format!("a batch norm over {rank} axes")),
    };
    let trains = at.trains(1) || at.trains(2);
    let epsilon = float(at.node.op.downcast::<BatchNormalization>().map_or(1e-5, |op| op.epsilon));
    let module = at.module(format!("own(nn.{class}({channels}, {epsilon}), {})", truth(trains)));
    let x = at.on_device(0)?;
    at.set(format!("{module}({x})"));
    Ok(())
}

fn layer_norm(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<LayerNormalization>()?;
    let shape = at.shape(0)?;
    let axis = at.axis(op.axis, shape.len())?;
    let over = tuple(&shape[axis..]);
    let mut x = at.on_device(0)?;
    if op.skip {
        let skipped = at.on_device(1)?;
        x = format!("{x} + {skipped}");
    }
    let first = 1 + usize::from(op.skip);
    let weight = at.optional(first)?;
    let epsilon = float(op.epsilon);
    let normed = if op.rms {
        format!("F.rms_norm({x}, {over}, {weight}, {epsilon})")
    } else {
        let bias = at.optional(first + 1)?;
        format!("F.layer_norm({x}, {over}, {weight}, {bias}, {epsilon})")
    };
    at.set(normed);
    Ok(())
}

/// As transformers' models write it.
fn composed_rms_norm(at: &mut At<'_>) -> Result<(), Refusal> {
    let (x, weight) = (at.on_device(0)?, at.optional(1)?);
    at.set(format!("rms_norm({x}, {weight})"));
    Ok(())
}

fn group_norm(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<GroupNormalization>()?;
    if op.channels_last || op.skip || op.silu {
        return Err("channels last, or fused with its neighbours".into());
    }
    let (x, weight, bias) = (at.on_device(0)?, at.on_device(1)?, at.on_device(2)?);
    let epsilon = float(op.epsilon);
    at.set(match op.groups {
        Some(groups) => format!("F.group_norm({x}, {groups}, {weight}, {bias}, {epsilon})"),
        None => format!("F.instance_norm({x}, weight={weight}, bias={bias}, eps={epsilon})"),
    });
    Ok(())
}

fn attention(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.node.op.downcast::<ScaledDotProductAttention>().copied().unwrap_or_default();
    let (q, k, v, mask) = (at.on_device(0)?, at.on_device(1)?, at.on_device(2)?, at.optional(3)?);
    let dropout = if op.dropout && at.training { "0.1" } else { "0.0" };
    let causal = truth(op.is_causal);
    let grouped = if op.grouped { ", enable_gqa=True" } else { "" };
    at.set(format!("F.scaled_dot_product_attention({q}, {k}, {v}, {mask}, {dropout}, {causal}{grouped})"));
    Ok(())
}
