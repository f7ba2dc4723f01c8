//! Pooling. One axis is a plane of one row; three are two planes in a row, which Burn's users write since it pools planes alone; a
//! global one is Burn's `adaptive_avg_pool2d` to one element.

use super::Family;
use super::convolution::{padded, window};
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Binary, Kind, Prim, Slot, Window};
use memfit_graph::ops::pool::Pool;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["MaxPool", "AveragePool"], rule: pool },
    Family { names: &["GlobalAveragePool", "GlobalMaxPool"], rule: global },
];

fn pool(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Pool>().cloned().ok_or("an unknown form")?;
    let is_max = l.node.op.name() == "MaxPool";
    if l.node.outputs.get(1).is_some_and(Option::is_some) && l.wants(1) {
        return Err("indices that are read".into());
    }
    let mut x = l.input(0)?;
    if !l.kind(x).is_float() {
        return Err("a pool of whole numbers".into());
    }
    let (shape, output) = (l.shape(x), l.output_shape(0)?);
    let axes = shape.len().saturating_sub(2);
    if !(1..=3).contains(&axes) || output.len() != shape.len() {
        return Err(format!("{axes} spatial axes"));
    }
    let kernel = op.window.kernel.clone().unwrap_or_default();
    let kernel: Vec<usize> = kernel.iter().filter_map(|k| usize::try_from(*k).ok()).collect();
    if kernel.len() != axes {
        return Err("no kernel".into());
    }
    let (mut window, mut pads) = window(&op.window, &kernel, &shape[2..], &output[2..])?;
    if !is_max && window.dilation.iter().any(|step| *step > 1) {
        return Err("a mean of elements that lie apart".into());
    }
    window.ceil_mode = rounds_up(&window, &pads, &shape[2..], &output[2..])?;
    let mut counts_pads = op.counts_pads;
    let mut correction = None;
    if !is_max && !counts_pads && pads.iter().any(|(begin, end)| begin != end) {
        // Burn's window knows no padding of one end: zeros around the tensor count, and are taken out of the mean again.
        correction = Some(shares(l, &window, &pads, &shape[2..], &output)?);
        window.padding.fill(0);
        counts_pads = true;
        let all: Vec<(usize, usize)> = [&[(0, 0), (0, 0)][..], &pads].concat();
        x = super::layout::pad(l, x, &all, 0.0);
        pads.fill((0, 0));
    }
    x = padded(l, x, &pads, if is_max { f64::from(f32::MIN) } else { 0.0 });
    let corrected = |l: &mut Lower<'_, '_>, y: Slot| match correction {
        Some(shares) => l.binary(Binary::Mul, y, shares),
        None => Ok(y),
    };
    if axes == 3 {
        let y = volume(l, x, &window, is_max, &output, counts_pads)?;
        let y = corrected(l, y)?;
        l.set(0, y);
        return Ok(());
    }
    if axes == 1 {
        for (list, one) in [
            (&mut window.kernel, 1),
            (&mut window.stride, 1),
            (&mut window.padding, 0),
            (&mut window.dilation, 1),
        ] {
            list.insert(0, one);
        }
        x = plane(l, x);
    }
    let prim = if is_max { Prim::MaxPool2d(window) } else { Prim::AvgPool2d(window, counts_pads) };
    let mut full = output.clone();
    if axes == 1 {
        full.insert(2, 1);
    }
    let y = l.call(prim, &[x], Kind::FLOAT, full);
    let y = l.reshape(y, output);
    let y = corrected(l, y)?;
    l.set(0, y);
    Ok(())
}

/// Whether a window that begins inside but ends outside counts, by the sizes: one that begins in the padding never does.
fn rounds_up(
    window: &Window,
    pads: &[(usize, usize)],
    input: &[usize],
    output: &[usize],
) -> Result<bool, Refusal> {
    let mut up = None;
    for i in 0..output.len() {
        let (begin, end) = pads[i];
        let extent = window.kernel[i].saturating_sub(1).saturating_mul(window.dilation[i]).saturating_add(1);
        let seen = input[i].saturating_add(begin).saturating_add(end);
        let room = seen.checked_sub(extent).ok_or("a window larger than what it sees")?;
        let (low, high) = (room / window.stride[i] + 1, room.div_ceil(window.stride[i]) + 1);
        if low == high {
            continue;
        }
        if up.is_some_and(|up| up != (output[i] == high)) {
            return Err("windows that end outside along one axis alone".into());
        }
        up = Some(output[i] == high);
    }
    Ok(up.unwrap_or(false))
}

/// For each mean how many elements it is of by count, over how many are really there: `[1, 1, …]`.
fn shares(
    l: &mut Lower<'_, '_>,
    window: &Window,
    pads: &[(usize, usize)],
    input: &[usize],
    output: &[usize],
) -> Result<Slot, Refusal> {
    if window.ceil_mode {
        return Err("uneven padding and windows that end outside".into());
    }
    let shape = [&[1, 1], &output[2..]].concat();
    let (strides, kernel) = (window.stride.clone(), window.kernel.clone());
    let (begins, input, output) =
        (pads.iter().map(|pad| pad.0).collect::<Vec<_>>(), input.to_vec(), output.to_vec());
    let made = move || {
        let mut table = vec![1.0];
        for (i, begin) in begins.iter().enumerate() {
            let share = |k: usize| {
                let from = (k * strides[i]).max(*begin);
                let to = (k * strides[i] + kernel[i]).min(*begin + input[i]);
                kernel[i] as f64 / to.saturating_sub(from).max(1) as f64
            };
            let axis: Vec<f64> = (0..output[i + 2]).map(share).collect();
            table = table.iter().flat_map(|outer| axis.iter().map(move |inner| outer * inner)).collect();
        }
        table
    };
    Ok(l.table("shares of means", Kind::FLOAT, shape, made))
}

/// Height and width with the depth among the channels, then the depth with them in one axis. The mean of means is the mean where every
/// window is full.
fn volume(
    l: &mut Lower<'_, '_>,
    x: Slot,
    window: &Window,
    is_max: bool,
    output: &[usize],
    padded: bool,
) -> Result<Slot, Refusal> {
    let shape = l.shape(x);
    let (&[batch, channels, depth, height, width], &[.., front, rows, columns]) = (&shape[..], output) else {
        return Err("not three spatial axes".into());
    };
    if !is_max && window.ceil_mode {
        return Err("means over three axes, of windows that are not full".into());
    }
    let part = |axes: [usize; 2], ones: bool| {
        let of = |list: &[usize], one: usize| {
            if ones { vec![list[axes[0]], one] } else { axes.map(|a| list[a]).to_vec() }
        };
        Window {
            kernel: of(&window.kernel, 1),
            stride: of(&window.stride, 1),
            padding: of(&window.padding, 0),
            dilation: of(&window.dilation, 1),
            ceil_mode: window.ceil_mode,
        }
    };
    let prim = |window| if is_max { Prim::MaxPool2d(window) } else { Prim::AvgPool2d(window, padded) };
    let flat = l.reshape(x, vec![batch, channels * depth, height, width]);
    let planes = vec![batch, channels * depth, rows, columns];
    let planes = l.call(prim(part([1, 2], false)), &[flat], Kind::FLOAT, planes);
    let deep = l.reshape(planes, vec![batch, channels, depth, rows * columns]);
    let y = vec![batch, channels, front, rows * columns];
    let y = l.call(prim(part([0, 0], true)), &[deep], Kind::FLOAT, y);
    Ok(l.reshape(y, output.to_vec()))
}

fn plane(l: &mut Lower<'_, '_>, x: Slot) -> Slot {
    let mut shape = l.shape(x);
    shape.insert(2, 1);
    l.reshape(x, shape)
}

fn global(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    let output = l.output_shape(0)?;
    let [batch, channels, ref spatial @ ..] = l.shape(x)[..] else { return Err("no channel axis".into()) };
    let y = match (l.node.op.name(), spatial.len()) {
        ("GlobalAveragePool", 2) => {
            l.call(Prim::AdaptiveAvgPool2d([1, 1]), &[x], Kind::FLOAT, output.clone())
        }
        (name, _) => {
            let flat = l.reshape(x, vec![batch, channels, spatial.iter().product()]);
            let prim = if name == "GlobalMaxPool" { Prim::MaxDim(2) } else { Prim::MeanDim(2) };
            l.reduce(prim, flat, 2)
        }
    };
    let y = l.reshape(y, output);
    l.set(0, y);
    Ok(())
}
