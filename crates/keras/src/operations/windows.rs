//! Operations whose window moves over a tensor: pools, and convolutions whose kernel is a tensor of the graph.
//!
//! keras/src/ops/nn.py, `MaxPool`, `AveragePool`, `AdaptiveMaxPool`, `AdaptiveAveragePool`, `Conv`, `DepthwiseConv`, `DepthToSpace`,
//! `SpaceToDepth`. Their configs are those of the layers, so the layers' rules apply.

use super::{Operation, Rule, operand};
use crate::layer::{Call, Layer};
use crate::layers::conv_transpose::ConvTranspose;
use crate::layers::pooling::{AdaptivePooling, Pool, Pooling};
use crate::spatial::{self, Padding, Window};
use crate::spec::{self, Spec};
use memfit_graph::{Dim, OpError};
use serde::de::DeserializeOwned;
use serde_json::json;

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["AdaptiveAveragePool", "AdaptiveMaxPool", "AveragePool", "MaxPool"], pool),
    (&["Conv", "DepthwiseConv"], conv),
    (&["ConvTranspose"], transposed),
    (&["SeparableConv"], separable),
    (&["ExtractPatches"], patches),
    (&["Fold"], fold),
    (&["Unfold"], unfold),
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
    let Some([x, kernel]) = operands(op, call, inputs, ["inputs", "kernel"]) else { return Ok(Vec::new()) };
    let Some((size, [inner, outer])) = kernel.dims().split_last_chunk() else { return Ok(Vec::new()) };
    let filters = if op.class == "DepthwiseConv" {
        spec::product(&[inner.clone(), outer.clone()])?
    } else {
        outer.clone()
    };
    moved(op, &x, size, &filters)
}

/// What it is called on and its kernel, which the file may hold.
fn operands<const N: usize>(
    op: &Operation,
    call: &Call<'_>,
    inputs: &[Spec],
    names: [&str; N],
) -> Option<[Spec; N]> {
    op.operands(call, inputs, &names)?.try_into().ok()
}

/// The config with a kernel's size and filters, as a layer's.
fn with_kernel<T: DeserializeOwned>(op: &Operation, size: &[Dim], filters: &Dim) -> Option<T> {
    let mut made = op.config.clone();
    let size: Vec<u64> = size.iter().map(Dim::known).collect::<Option<_>>()?;
    made.as_object_mut()?
        .extend([("kernel_size".to_owned(), json!(size)), ("filters".to_owned(), json!(filters.known()?))]);
    serde_json::from_value(made).ok()
}

/// A window of this size moved over `x`.
fn moved(op: &Operation, x: &Spec, size: &[Dim], filters: &Dim) -> Result<Vec<Spec>, OpError> {
    let Some(window) = with_kernel::<Window>(op, size, filters) else { return Ok(Vec::new()) };
    let window = Window { axes: size.len(), ..window };
    let sizes = window.sizes(window.input(std::slice::from_ref(x))?)?;
    Ok(vec![x.with(window.shape(x, sizes, spec::number(filters)?))])
}

/// The kernel is `[*window, filters, channels]`.
fn transposed(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let Some([x, kernel]) = operands(op, call, inputs, ["inputs", "kernel"]) else { return Ok(Vec::new()) };
    let Some((size, [filters, _])) = kernel.dims().split_last_chunk() else { return Ok(Vec::new()) };
    let window =
        with_kernel::<Window>(op, size, filters).zip(with_kernel::<ConvTranspose>(op, size, filters));
    let Some((window, layer)) = window else { return Ok(Vec::new()) };
    let layer = ConvTranspose { window: Window { axes: size.len(), ..window }, ..layer };
    let outputs = layer.outputs(call, std::slice::from_ref(&x))?;
    Ok(outputs.into_iter().map(|y| Spec { dtype: x.dtype, ..y }).collect())
}

/// The second kernel is `[1, 1, channels, filters]`.
fn separable(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let names = ["inputs", "depthwise_kernel", "pointwise_kernel"];
    let Some([x, kernel, point]) = operands(op, call, inputs, names) else { return Ok(Vec::new()) };
    let Some((size, [_, _])) = kernel.dims().split_last_chunk() else { return Ok(Vec::new()) };
    moved(op, &x, size, point.last()?)
}

/// A patch's elements become channels (keras/src/ops/image.py, `ExtractPatches`); an image may stand without a batch.
fn patches(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let Some(size) = op.integers(call, 1, &["size"]) else { return Ok(Vec::new()) };
    let size: Option<Vec<Dim>> = size.into_iter().map(|n| u64::try_from(n).ok().map(Dim::Known)).collect();
    let Some(size) = size else { return Ok(Vec::new()) };
    let alone = x.rank() == size.len() + 1;
    let mut batch = x.clone();
    if alone {
        batch.shape.insert(0, Dim::Known(1));
    }
    let channels = batch.dims().get(op.data_format().channel_axis(batch.rank())).cloned();
    let filters = spec::product(&[&size[..], channels.as_slice()].concat())?;
    let mut outputs = moved(op, &batch, &size, &filters)?;
    if alone {
        outputs.iter_mut().for_each(|y| drop(y.shape.remove(0)));
    }
    Ok(outputs)
}

/// Two numbers, or one for both axes.
fn both(op: &Operation, call: &Call<'_>, name: &str, default: i64) -> Option<[u64; 2]> {
    let given = op.integers(call, usize::MAX, &[name]).unwrap_or_else(|| vec![default]);
    let given: Vec<u64> = given.into_iter().map(|n| u64::try_from(n).ok()).collect::<Option<_>>()?;
    match given[..] {
        [n] => Some([n, n]),
        [a, b] => Some([a, b]),
        _ => None,
    }
}

/// `[batch, channels, height, width]` as one column for each window.
fn unfold(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let given = |name, default| both(op, call, name, default);
    let ([batch, channels, sides @ ..], Some(size), Some(dilation), Some(padding), Some(stride)) =
        (x.dims(), given("kernel_size", 1), given("dilation", 1), given("padding", 0), given("stride", 1))
    else {
        return Ok(Vec::new());
    };
    let windows = sides.iter().zip(0..2).map(|(side, i)| {
        let padded = padding[i].checked_mul(2).and_then(|p| i64::try_from(p).ok()).unwrap_or(i64::MAX);
        spatial::windowed(&side.offset(padded), size[i], stride[i], dilation[i], Padding::Valid)
    });
    let windows = spec::product(&windows.collect::<Result<Vec<_>, _>>()?)?;
    let column = spec::product(&[channels.clone(), Dim::Known(size[0]), Dim::Known(size[1])])?;
    Ok(vec![x.with([batch.clone(), column, windows])])
}

/// The other way round.
fn fold(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let ([batch, column, _], Some(size), Some(output)) =
        (x.dims(), both(op, call, "kernel_size", 1), both(op, call, "output_size", 1))
    else {
        return Ok(Vec::new());
    };
    let channels = column.div_exact(&Dim::Known(spec::times(size[0], size[1])?));
    let dims =
        channels.map(|channels| [batch.clone(), channels, Dim::Known(output[0]), Dim::Known(output[1])]);
    Ok(dims.map(|dims| x.with(dims)).into_iter().collect())
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
