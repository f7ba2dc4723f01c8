//! Conv and ConvTranspose over one to three axes. Burn pads both ends of an axis alike; where the file does not, the input is
//! copied into a padded one first, as `burn-nn` does.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Kind, Prim, Slot, Window};
use memfit_graph::ops::conv::Conv;
use memfit_graph::ops::conv_transpose::ConvTranspose;
use memfit_graph::ops::spatial::{self, AutoPad};

pub(super) const FAMILIES: &[Family] =
    &[Family { names: &["Conv"], rule: convolution }, Family { names: &["ConvTranspose"], rule: transposed }];

fn size(n: u64) -> Result<usize, Refusal> {
    usize::try_from(n).map_err(|_| "a window too large".to_owned())
}

/// The window with the padding at begin and end of each axis; `input` and `output` are spatial sizes.
pub(super) fn window(
    window: &spatial::Window,
    kernel: &[usize],
    input: &[usize],
    output: &[usize],
) -> Result<(Window, Vec<(usize, usize)>), Refusal> {
    let axes = kernel.len();
    let stride = (0..axes).map(|i| size(window.stride(i))).collect::<Result<Vec<_>, _>>()?;
    let dilation = (0..axes).map(|i| size(window.dilation(i))).collect::<Result<Vec<_>, _>>()?;
    let mut pads = Vec::new();
    for i in 0..axes {
        let (begin, end) = window.pad(i, axes);
        pads.push(match window.auto_pad {
            AutoPad::NotSet => {
                let both = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
                both.ok_or("a negative padding")?
            }
            AutoPad::Valid => (0, 0),
            AutoPad::SameUpper | AutoPad::SameLower => {
                let extent = (kernel[i].saturating_sub(1)).saturating_mul(dilation[i]).saturating_add(1);
                let need = output[i].saturating_sub(1).saturating_mul(stride[i]).saturating_add(extent);
                let all = need.saturating_sub(input[i]);
                let (small, large) = (all / 2, all.div_ceil(2));
                if window.auto_pad == AutoPad::SameUpper { (small, large) } else { (large, small) }
            }
        });
    }
    let padding = pads.iter().map(|(begin, end)| if begin == end { *begin } else { 0 }).collect();
    let window = Window { kernel: kernel.to_vec(), stride, padding, dilation, ceil_mode: window.ceil_mode };
    Ok((window, pads))
}

/// The input with what the window cannot pad itself.
pub(super) fn padded(l: &mut Lower<'_, '_>, x: Slot, pads: &[(usize, usize)], value: f64) -> Slot {
    let uneven: Vec<(usize, usize)> =
        pads.iter().map(|(begin, end)| if begin == end { (0, 0) } else { (*begin, *end) }).collect();
    super::layout::pad(l, x, &[&[(0, 0), (0, 0)][..], &uneven].concat(), value)
}

fn convolution(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Conv>().cloned().ok_or("an unknown form")?;
    let (x, weight) = (l.input(0)?, l.input(1)?);
    let (shape, kernel, output) = (l.shape(x), l.shape(weight), l.output_shape(0)?);
    if !(3..=5).contains(&shape.len()) || kernel.len() != shape.len() {
        return Err(format!("{} spatial axes", shape.len().saturating_sub(2)));
    }
    let (window, pads) = window(&op.window, &kernel[2..], &shape[2..], &output[2..])?;
    let x = padded(l, x, &pads, 0.0);
    let inputs: Vec<Slot> = [x, weight].into_iter().chain(l.optional(2)?).collect();
    let y = l.call(Prim::Conv { window, groups: size(op.groups)? }, &inputs, Kind::FLOAT, output);
    l.set(0, y);
    Ok(())
}

fn transposed(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<ConvTranspose>().cloned().ok_or("an unknown form")?;
    let (x, weight) = (l.input(0)?, l.input(1)?);
    let (shape, kernel, output) = (l.shape(x), l.shape(weight), l.output_shape(0)?);
    if !(3..=5).contains(&shape.len()) || kernel.len() != shape.len() {
        return Err(format!("{} spatial axes", shape.len().saturating_sub(2)));
    }
    let (window, mut pads) = window(&op.window, &kernel[2..], &shape[2..], &output[2..])?;
    let decides =
        op.output_shape.is_some() || matches!(op.window.auto_pad, AutoPad::SameUpper | AutoPad::SameLower);
    let (mut padding_out, mut full) = (Vec::new(), output.clone());
    for (i, (begin, end)) in pads.iter_mut().enumerate() {
        let added = op.output_padding.get(i).map_or(Ok(0), |n| size(*n))?;
        if decides {
            // The output's size says how much is cut off in all.
            let extent = (kernel[i + 2].saturating_sub(1)) * window.dilation[i] + 1;
            let whole = (shape[i + 2].saturating_sub(1)) * window.stride[i] + extent + added;
            let all = whole.checked_sub(output[i + 2]).ok_or("an output larger than what is made")?;
            let (small, large) = (all / 2, all.div_ceil(2));
            (*begin, *end) =
                if op.window.auto_pad == AutoPad::SameUpper { (small, large) } else { (large, small) };
        }
        // Burn cuts off as much at both ends: what is cut off less at the end is added there, and more is cut off afterwards.
        let less = (added + *begin).saturating_sub(*end);
        full[i + 2] += *end - (added + *begin).min(*end);
        padding_out.push(less);
    }
    let window = Window { padding: pads.iter().map(|(begin, _)| *begin).collect(), ..window };
    let inputs: Vec<Slot> = [x, weight].into_iter().chain(l.optional(2)?).collect();
    let prim = Prim::ConvTranspose { window, padding_out, groups: size(op.groups)? };
    let mut y = l.call(prim, &inputs, Kind::FLOAT, full);
    for (axis, size) in output.iter().enumerate() {
        y = l.narrow(y, axis, 0, *size);
    }
    l.set(0, y);
    Ok(())
}
