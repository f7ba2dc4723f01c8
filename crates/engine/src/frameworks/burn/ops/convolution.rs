//! Conv and ConvTranspose over one to three axes. Burn pads both ends of an axis alike; where the file does not, the input is
//! copied into a padded one first, as `burn-nn` does.

use super::Family;
use crate::frameworks::burn::builder::{MOST, Refusal};
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Kind, Prim, Range, Slot, Window};
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
    if [input, output].iter().any(|sizes| sizes.len() != axes) {
        return Err("a window of another rank".into());
    }
    let stride = (0..axes).map(|i| size(window.stride(i))).collect::<Result<Vec<_>, _>>()?;
    if stride.contains(&0) {
        return Err("a window that does not move".into());
    }
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

/// Whether positions lie between windows. There `burn-cubecl` 0.21 finds no window that a position is in, and makes zeros of it
/// (`kernel/conv/conv_transpose2d/transpose_direct.rs`, `conv_transpose3d.rs`: nothing lies from `y_start` to `y_end`).
fn leaves_gaps(window: &Window, i: usize) -> bool {
    window.kernel[i].saturating_mul(window.dilation[i]) < window.stride[i]
}

/// Windows of one element and a larger stride have no gradient of their input on Burn's devices: the input is thinned before.
fn thinned(
    l: &mut Lower<'_, '_>,
    x: Slot,
    window: &mut Window,
    pads: &mut [(usize, usize)],
    output: &[usize],
) -> Result<Slot, Refusal> {
    let shape = l.shape(x);
    let mut ranges: Vec<Range> = shape.iter().map(|n| Range { start: 0, end: *n, step: 1 }).collect();
    let mut own = vec![(0, 0); shape.len()];
    for i in (0..pads.len()).filter(|i| leaves_gaps(window, *i)).collect::<Vec<_>>() {
        if window.kernel[i] > 1 {
            return Err("a stride larger than the window, for which Burn makes no gradient".into());
        }
        own[i + 2] = std::mem::take(&mut pads[i]);
        let step = std::mem::replace(&mut window.stride[i], 1);
        let end = output[i].saturating_sub(1).saturating_mul(step).saturating_add(1);
        ranges[i + 2] =
            Range { start: 0, end, step: isize::try_from(step).map_err(|_| "a stride too large")? };
        window.padding[i] = 0;
    }
    let x = super::layout::pad(l, x, &own, 0.0);
    Ok(l.slice(x, ranges))
}

fn convolution(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Conv>().cloned().ok_or("an unknown form")?;
    let (mut x, weight) = (l.input(0)?, l.input(1)?);
    let (shape, kernel, output) = (l.shape(x), l.shape(weight), l.output_shape(0)?);
    if !(3..=5).contains(&shape.len()) || kernel.len() != shape.len() || output.len() != shape.len() {
        return Err(format!("{} spatial axes", shape.len().saturating_sub(2)));
    }
    let (mut window, mut pads) = window(&op.window, &kernel[2..], &shape[2..], &output[2..])?;
    if l.id(0).is_some_and(|id| l.model.trained[id.index()]) {
        x = thinned(l, x, &mut window, &mut pads, &output[2..])?;
    }
    let x = padded(l, x, &pads, 0.0);
    let inputs: Vec<Slot> = [x, weight].into_iter().chain(l.optional(2)?).collect();
    let groups = size(op.groups)?;
    if groups > MOST {
        return Err(format!("{groups} groups, more than {MOST}"));
    }
    let y = l.call(Prim::Conv { window, groups }, &inputs, Kind::FLOAT, output);
    l.set(0, y);
    Ok(())
}

fn transposed(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<ConvTranspose>().cloned().ok_or("an unknown form")?;
    let (x, weight) = (l.input(0)?, l.input(1)?);
    let (shape, kernel, output) = (l.shape(x), l.shape(weight), l.output_shape(0)?);
    if !(3..=5).contains(&shape.len()) || kernel.len() != shape.len() || output.len() != shape.len() {
        return Err(format!("{} spatial axes", shape.len().saturating_sub(2)));
    }
    let (window, mut pads) = window(&op.window, &kernel[2..], &shape[2..], &output[2..])?;
    if (0..pads.len()).any(|i| leaves_gaps(&window, i)) {
        return Err("a stride larger than the window, of which Burn makes zeros".into());
    }
    let decides =
        op.output_shape.is_some() || matches!(op.window.auto_pad, AutoPad::SameUpper | AutoPad::SameLower);
    let (mut padding_out, mut full) = (Vec::new(), output.clone());
    for (i, (begin, end)) in pads.iter_mut().enumerate() {
        let added = op.output_padding.get(i).map_or(Ok(0), |n| size(*n))?;
        if decides {
            // The output's size says how much is cut off in all.
            let reach = kernel[i + 2].saturating_sub(1).saturating_mul(window.dilation[i]);
            let moved = shape[i + 2].saturating_sub(1).saturating_mul(window.stride[i]);
            let whole = moved.saturating_add(reach).saturating_add(1).saturating_add(added);
            let all = whole.checked_sub(output[i + 2]).ok_or("an output larger than what is made")?;
            let (small, large) = (all / 2, all.div_ceil(2));
            (*begin, *end) =
                if op.window.auto_pad == AutoPad::SameUpper { (small, large) } else { (large, small) };
        }
        // Burn cuts off as much at both ends: what is cut off less at the end is added there, and more is cut off afterwards.
        let ahead = added.saturating_add(*begin);
        let less = ahead.saturating_sub(*end);
        full[i + 2] = full[i + 2].saturating_add(end.saturating_sub(ahead));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_leave_64_bits_leave_no_gaps() {
        let window = |dilation, stride| Window {
            kernel: vec![4],
            stride: vec![stride],
            padding: vec![0],
            dilation: vec![dilation],
            ceil_mode: false,
        };
        assert!(leaves_gaps(&window(1, 5), 0) && !leaves_gaps(&window(2, 5), 0));
        assert!(!leaves_gaps(&window(usize::MAX / 2, 5), 0));
    }
}
