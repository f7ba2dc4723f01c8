//! Pooling. One axis is a plane of one row; three are two planes in a row, which Burn's users write since it pools planes alone; a
//! global one is Burn's `adaptive_avg_pool2d` to one element.

use super::Family;
use super::convolution::{padded, window};
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Kind, Prim, Slot, Window};
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
    let x = l.input(0)?;
    let (shape, output) = (l.shape(x), l.output_shape(0)?);
    let axes = shape.len().saturating_sub(2);
    if !(1..=3).contains(&axes) {
        return Err(format!("{axes} spatial axes"));
    }
    let kernel = op.window.kernel.clone().unwrap_or_default();
    let kernel: Vec<usize> = kernel.iter().filter_map(|k| usize::try_from(*k).ok()).collect();
    if kernel.len() != axes {
        return Err("no kernel".into());
    }
    let (mut window, pads) = window(&op.window, &kernel, &shape[2..], &output[2..])?;
    let mut x = padded(l, x, &pads, if is_max { f64::from(f32::MIN) } else { 0.0 });
    if axes == 3 {
        let y = volume(l, x, &window, is_max, &output, op.counts_pads)?;
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
    let prim = if is_max { Prim::MaxPool2d(window) } else { Prim::AvgPool2d(window, op.counts_pads) };
    let mut full = output.clone();
    if axes == 1 {
        full.insert(2, 1);
    }
    let y = l.call(prim, &[x], Kind::Float, full);
    let y = l.reshape(y, output);
    l.set(0, y);
    Ok(())
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
    let planes = l.call(prim(part([1, 2], false)), &[flat], Kind::Float, planes);
    let deep = l.reshape(planes, vec![batch, channels, depth, rows * columns]);
    let y = vec![batch, channels, front, rows * columns];
    let y = l.call(prim(part([0, 0], true)), &[deep], Kind::Float, y);
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
            l.call(Prim::AdaptiveAvgPool2d([1, 1]), &[x], Kind::Float, output.clone())
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
