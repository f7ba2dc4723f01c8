//! Windows over one to three spatial axes: convolutions, pooling, resizing.

use super::Family;
use crate::python::line::{At, Refusal, truth, tuple};
use crate::python::quoted;
use memfit_graph::ops::conv::Conv;
use memfit_graph::ops::conv_transpose::ConvTranspose;
use memfit_graph::ops::global_pool::GlobalPool;
use memfit_graph::ops::pool::{Pool, PoolKind};
use memfit_graph::ops::resize::Resize;
use memfit_graph::ops::spatial::{AutoPad, Window};

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["Conv"], rule: convolution },
    Family { names: &["ConvTranspose"], rule: transposed },
    Family { names: &["MaxPool", "AveragePool"], rule: pool },
    Family { names: &["GlobalAveragePool", "GlobalMaxPool"], rule: global },
    Family { names: &["Resize", "Upsample"], rule: resize },
];

/// How a window moves, as torch takes it, and what has to be padded beforehand since its two ends differ.
struct Moves {
    stride: String,
    padding: String,
    dilation: String,
    before: Option<String>,
}

fn moves(window: &Window, kernel: &[u64], input: &[u64], output: &[u64]) -> Result<Moves, Refusal> {
    let axes = kernel.len();
    if !(1..=3).contains(&axes) || input.len() != axes {
        return Err(format!("{axes} spatial axes"));
    }
    let stride: Vec<u64> = (0..axes).map(|i| window.stride(i)).collect();
    let dilation: Vec<u64> = (0..axes).map(|i| window.dilation(i)).collect();
    let pads: Vec<(i64, i64)> = (0..axes)
        .map(|i| {
            let all = || {
                let extent = (kernel[i].saturating_sub(1)).saturating_mul(dilation[i]).saturating_add(1);
                let reach = output[i].saturating_sub(1).saturating_mul(stride[i]).saturating_add(extent);
                i64::try_from(reach.saturating_sub(input[i])).unwrap_or(i64::MAX)
            };
            match window.auto_pad {
                AutoPad::NotSet => window.pad(i, axes),
                AutoPad::Valid => (0, 0),
                AutoPad::SameUpper => (all() / 2, all() - all() / 2),
                AutoPad::SameLower => (all() - all() / 2, all() / 2),
            }
        })
        .collect();
    let even = pads.iter().all(|(begin, end)| begin == end && *begin >= 0);
    let padding: Vec<i64> = pads.iter().map(|(begin, _)| if even { *begin } else { 0 }).collect();
    let flat: Vec<i64> = pads.iter().rev().flat_map(|(begin, end)| [*begin, *end]).collect();
    Ok(Moves {
        stride: tuple(&stride),
        padding: tuple(&padding),
        dilation: tuple(&dilation),
        before: (!even).then(|| tuple(&flat)),
    })
}

fn convolution(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<Conv>()?;
    let (input, kernel, output) = (at.shape(0)?, at.shape(1)?, at.output_shape(0)?);
    let (Some(kernel), Some(input), Some(output)) = (kernel.get(2..), input.get(2..), output.get(2..)) else {
        return Err("no spatial axes".into());
    };
    let m = moves(&op.window, kernel, input, output)?;
    let (x, weight, bias) = (at.on_device(0)?, at.on_device(1)?, at.optional(2)?);
    let x = m.before.map_or_else(|| x.clone(), |pads| format!("F.pad({x}, {pads})"));
    let (axes, groups) = (kernel.len(), op.groups);
    let (stride, padding, dilation) = (m.stride, m.padding, m.dilation);
    at.set(format!("F.conv{axes}d({x}, {weight}, {bias}, {stride}, {padding}, {dilation}, {groups})"));
    Ok(())
}

fn transposed(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<ConvTranspose>()?;
    if op.window.auto_pad != AutoPad::NotSet || op.output_shape.is_some() {
        return Err("an output size that decides the padding".into());
    }
    let kernel = at.shape(1)?;
    let axes = kernel.len().saturating_sub(2);
    if !(1..=3).contains(&axes) {
        return Err(format!("{axes} spatial axes"));
    }
    let (mut padding, mut added) = (Vec::new(), Vec::new());
    for i in 0..axes {
        let (begin, end) = op.window.pad(i, axes);
        let own = op.output_padding.get(i).map_or(0, |n| i64::try_from(*n).unwrap_or(i64::MAX));
        padding.push(begin);
        // What is cut off less at the end is added there.
        added.push(own.saturating_add(begin).saturating_sub(end));
    }
    if padding.iter().chain(&added).any(|n| *n < 0) {
        return Err("more cut off at the end than at the begin".into());
    }
    let stride: Vec<u64> = (0..axes).map(|i| op.window.stride(i)).collect();
    let dilation: Vec<u64> = (0..axes).map(|i| op.window.dilation(i)).collect();
    let (x, weight, bias) = (at.on_device(0)?, at.on_device(1)?, at.optional(2)?);
    at.set(format!(
        "F.conv_transpose{axes}d({x}, {weight}, {bias}, {}, {}, {}, {}, {})",
        tuple(&stride),
        tuple(&padding),
        tuple(&added),
        op.groups,
        tuple(&dilation)
    ));
    Ok(())
}

fn pool(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<Pool>()?;
    let kernel = op.window.kernel.clone().unwrap_or_default();
    let (input, output) = (at.shape(0)?, at.output_shape(0)?);
    let (Some(input), Some(output)) = (input.get(2..), output.get(2..)) else {
        return Err("no spatial axes".into());
    };
    let m = moves(&op.window, &kernel, input, output)?;
    let x = at.on_device(0)?;
    let max = op.kind == PoolKind::Max;
    let fill = if max { ", value=float(\"-inf\")" } else { "" };
    let x = m.before.map_or_else(|| x.clone(), |pads| format!("F.pad({x}, {pads}{fill})"));
    let (axes, size, ceil) = (kernel.len(), tuple(&kernel), truth(op.window.ceil_mode));
    let (stride, padding, dilation) = (m.stride, m.padding, m.dilation);
    let call = format!("_pool{axes}d({x}, {size}, {stride}, {padding}");
    if !max {
        at.set(format!("F.avg{call}, {ceil}, {})", truth(op.counts_pads)));
    } else if at.output(1).is_some() {
        at.set_all(format!("F.max{call}, {dilation}, {ceil}, True)"));
    } else {
        at.set(format!("F.max{call}, {dilation}, {ceil})"));
    }
    Ok(())
}

fn global(at: &mut At<'_>) -> Result<(), Refusal> {
    let axes = at.rank(0)?.saturating_sub(2);
    if !(1..=3).contains(&axes) {
        return Err(format!("{axes} spatial axes"));
    }
    let max = at.node.op.downcast::<GlobalPool>().is_some_and(|op| op.kind == PoolKind::Max);
    let x = at.on_device(0)?;
    at.set(format!("F.adaptive_{}_pool{axes}d({x}, 1)", if max { "max" } else { "avg" }));
    Ok(())
}

fn resize(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<Resize>()?;
    let (input, output) = (at.shape(0)?, at.output_shape(0)?);
    if input.len() < 3 || input[..2] != output[..2] {
        return Err("other axes than the spatial ones".into());
    }
    let mode = match (&*op.mode, input.len()) {
        ("nearest", _) => "nearest",
        ("linear", 3) => "linear",
        ("linear", 4) => "bilinear",
        ("linear", 5) => "trilinear",
        ("cubic", 4) => "bicubic",
        (mode, _) => return Err(format!("{mode} interpolation")),
    };
    let x = at.on_device(0)?;
    let corners = if op.corners && mode != "nearest" { ", align_corners=True" } else { "" };
    at.set(format!("F.interpolate({x}, {}, mode={}{corners})", tuple(&output[2..]), quoted(mode)));
    Ok(())
}
