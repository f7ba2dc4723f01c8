//! Operations whose window moves over a tensor: pools, and convolutions whose kernel is a tensor of the graph.
//!
//! keras/src/ops/nn.py, `MaxPool`, `AveragePool`, `AdaptiveMaxPool`, `AdaptiveAveragePool`, `Conv`, `DepthwiseConv`, `DepthToSpace`,
//! `SpaceToDepth`. Their configs are those of the layers, so the layers' rules apply.

use super::{Operation, Rule, operand};
use crate::layer::{Call, Layer};
use crate::layers::pooling::{AdaptivePooling, Pool, Pooling};
use crate::spatial::Window;
use crate::spec::{self, Spec};
use memfit_graph::{Dim, OpError};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["AdaptiveAveragePool", "AdaptiveMaxPool", "AveragePool", "MaxPool"], pool),
    (&["Conv", "DepthwiseConv"], conv),
    (&["DepthToSpace"], depth_to_space),
    (&["SpaceToDepth"], space_to_depth),
];

/// The config as a layer's; none where it does not say enough.
fn config<T: DeserializeOwned>(op: &Operation) -> Option<T> {
    T::deserialize(&op.config).ok()
}

/// The layer that pools a tensor of `rank` axes as the operation does.
pub(super) fn pooling(op: &Operation, rank: usize) -> Option<Box<dyn Layer>> {
    let (axes, pool) = (rank.checked_sub(2)?, Pool::of(&op.class));
    if op.class.starts_with("Adaptive") {
        return Some(Box::new(AdaptivePooling { axes, pool, ..config(op)? }));
    }
    Some(Box::new(Pooling { axes, pool, ..config(op)? }))
}

fn pool(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    pooling(op, x.rank()).map_or(Ok(Vec::new()), |layer| layer.outputs(call, std::slice::from_ref(x)))
}

/// The kernel is `[*window, channels / groups, filters]`, of a depthwise one `[*window, channels, multiplier]`.
fn conv(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let (x, Some(kernel)) = (operand(call, inputs)?, inputs.get(1)) else { return Ok(Vec::new()) };
    let (Some(axes), Some((size, [inner, outer]))) =
        (x.rank().checked_sub(2), kernel.dims().split_last_chunk())
    else {
        return Ok(Vec::new());
    };
    let mut made = op.config.clone();
    let size: Option<Vec<u64>> = size.iter().map(Dim::known).collect();
    if let (Value::Object(made), Some(size)) = (&mut made, size) {
        made.insert("kernel_size".into(), json!(size));
    }
    let Ok(mut window) = serde_json::from_value::<Window>(made) else { return Ok(Vec::new()) };
    window.axes = axes;
    let filters = if op.class == "DepthwiseConv" {
        spec::product(&[inner.clone(), outer.clone()])?
    } else {
        outer.clone()
    };
    let sizes = window.sizes(window.input(inputs)?)?;
    Ok(vec![x.with(window.shape(x, sizes, spec::number(&filters)?))])
}

/// The block, the first spatial axis and the channels' axis of an image of four axes.
fn blocks(op: &Operation, call: &Call<'_>, x: &Spec) -> Option<(u64, usize, usize)> {
    let block =
        op.integer(call, 1, &["block_size"]).and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0)?;
    let format = op.data_format();
    (x.rank() == 4).then(|| (block, format.first_axis(), format.channel_axis(4)))
}

fn depth_to_space(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let Some((block, first, channels)) = blocks(op, call, x) else { return Ok(Vec::new()) };
    let mut y = x.clone();
    for axis in [first, first + 1] {
        y = y.replaced(axis, spec::product(&[x.dims()[axis].clone(), Dim::Known(block)])?);
    }
    let by = Dim::Known(spec::times(block, block)?);
    Ok(x.dims()[channels].div_exact(&by).map(|c| y.replaced(channels, c)).into_iter().collect())
}

fn space_to_depth(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let Some((block, first, channels)) = blocks(op, call, x) else { return Ok(Vec::new()) };
    let mut y = x.replaced(
        channels,
        spec::product(&[x.dims()[channels].clone(), Dim::Known(spec::times(block, block)?)])?,
    );
    for axis in [first, first + 1] {
        let Some(part) = x.dims()[axis].div_exact(&Dim::Known(block)) else { return Ok(Vec::new()) };
        y = y.replaced(axis, part);
    }
    Ok(vec![y])
}
