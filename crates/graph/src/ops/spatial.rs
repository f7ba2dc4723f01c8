//! Window arithmetic that convolution and pooling share: kernel, stride, dilation, padding, `auto_pad`.

use crate::{Attributes, Dim, OpError};

/// How a window moves over the spatial axes. Empty vectors mean ones (strides, dilations) or zeros (pads).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// Window size per spatial axis; `None` until the weight's shape tells it.
    pub kernel: Option<Vec<u64>>,
    /// Step per spatial axis.
    pub strides: Vec<u64>,
    /// Distance of window elements per spatial axis.
    pub dilations: Vec<u64>,
    /// Begin of every axis, then end of every axis; may be negative.
    pub pads: Vec<i64>,
    /// `NOTSET`, `SAME_UPPER`, `SAME_LOWER` or `VALID`.
    pub auto_pad: AutoPad,
    /// Whether a window that starts inside but ends outside counts.
    pub ceil_mode: bool,
}

/// Who decides the padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoPad {
    /// The `pads` attribute.
    #[default]
    NotSet,
    /// So much that the output is `ceil(input / stride)`, the odd one at the end.
    SameUpper,
    /// The same, the odd one at the beginning.
    SameLower,
    /// None.
    Valid,
}

impl Window {
    /// Reads the common attributes.
    pub fn read(a: &Attributes) -> Result<Window, OpError> {
        let auto_pad = match a.text("auto_pad")?.as_deref() {
            None | Some("" | "NOTSET") => AutoPad::NotSet,
            Some("SAME_UPPER") => AutoPad::SameUpper,
            Some("SAME_LOWER") => AutoPad::SameLower,
            Some("VALID") => AutoPad::Valid,
            Some(other) => {
                return Err(OpError::attribute("auto_pad", "NOTSET, SAME_UPPER, SAME_LOWER or VALID", other));
            }
        };
        let window = Window {
            kernel: a.sizes("kernel_shape")?,
            strides: a.sizes("strides")?.unwrap_or_default(),
            dilations: a.sizes("dilations")?.unwrap_or_default(),
            pads: a.ints("pads")?.unwrap_or_default(),
            auto_pad,
            ceil_mode: a.flag("ceil_mode")?,
        };
        if window.strides.contains(&0) || window.dilations.contains(&0) {
            return Err(OpError::attribute("strides/dilations", "positive numbers", "a zero"));
        }
        if window.kernel.as_ref().is_some_and(|kernel| kernel.contains(&0)) {
            return Err(OpError::attribute("kernel_shape", "positive numbers", "a zero"));
        }
        Ok(window)
    }

    /// The stride along spatial axis `i`.
    pub fn stride(&self, i: usize) -> u64 {
        self.strides.get(i).copied().unwrap_or(1)
    }

    /// The dilation along spatial axis `i`.
    pub fn dilation(&self, i: usize) -> u64 {
        self.dilations.get(i).copied().unwrap_or(1)
    }

    /// Padding at begin and end of spatial axis `i` out of `axes`.
    pub fn pad(&self, i: usize, axes: usize) -> (i64, i64) {
        let at = |k: usize| self.pads.get(k).copied().unwrap_or(0);
        if self.pads.len() == 2 * axes { (at(i), at(i + axes)) } else { (0, 0) }
    }

    /// The output size along spatial axis `i` for an input of size `input` and a window of `kernel`.
    pub fn output(&self, i: usize, axes: usize, input: &Dim, kernel: u64) -> Result<Dim, OpError> {
        let too_large = || OpError::overflow(format!("the window along spatial axis {i}"));
        let stride = Dim::Known(self.stride(i));
        let extent = kernel.saturating_sub(1).checked_mul(self.dilation(i)).and_then(|e| e.checked_add(1));
        let extent = extent.and_then(|e| i64::try_from(e).ok()).ok_or_else(too_large)?;
        if matches!(self.auto_pad, AutoPad::SameUpper | AutoPad::SameLower) {
            let up = i64::try_from(self.stride(i) - 1).map_err(|_| too_large())?;
            return input.offset(up).div_floor(&stride).ok_or_else(too_large);
        }
        let (begin, end) = if self.auto_pad == AutoPad::Valid { (0, 0) } else { self.pad(i, axes) };
        let padding = begin.checked_add(end).ok_or_else(too_large)?;
        if let Some(n) = input.known() {
            return self.known_output(i, n, begin, padding, extent).ok_or_else(|| {
                let found = format!("{n} with padding {padding} against a window of {extent}");
                OpError::mismatch("an input at least as large as the window", found)
            });
        }
        let room = padding.checked_sub(extent).ok_or_else(too_large)?;
        let up = if self.ceil_mode { self.stride(i) - 1 } else { 0 };
        let steps =
            input.offset(room.saturating_add_unsigned(up)).div_floor(&stride).ok_or_else(too_large)?;
        Ok(steps.offset(1))
    }

    /// The output size where everything is a number; `None` where no window fits.
    fn known_output(&self, i: usize, input: u64, begin: i64, padding: i64, extent: i64) -> Option<Dim> {
        let stride = i128::from(self.stride(i));
        let room = i128::from(input) + i128::from(padding) - i128::from(extent);
        let up = if self.ceil_mode { stride - 1 } else { 0 };
        let steps = (room + up).div_euclid(stride);
        // A window that would start in the padding at the end does not count (PyTorch and onnxruntime agree).
        let starts_inside = !self.ceil_mode || steps * stride < i128::from(input) + i128::from(begin);
        let out = if starts_inside { steps + 1 } else { steps };
        u64::try_from(out).ok().filter(|n| *n > 0).map(Dim::Known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(kernel: u64, stride: u64, pad: i64, ceil_mode: bool) -> impl Fn(u64) -> Option<u64> {
        let w = Window { strides: vec![stride], pads: vec![pad, pad], ceil_mode, ..Window::default() };
        move |n| w.output(0, 1, &Dim::Known(n), kernel).ok()?.known()
    }

    #[test]
    fn sizes_follow_the_formula() {
        assert_eq!(window(7, 2, 3, false)(224), Some(112));
        assert_eq!(window(3, 2, 1, false)(112), Some(56));
        assert_eq!(window(3, 2, 0, true)(112), Some(56));
        // The last window would start in the padding.
        assert_eq!(window(1, 2, 1, true)(2), Some(2));
        assert_eq!(window(5, 1, 0, false)(4), None);
        // Rounding up lets a window hang over an input that is smaller than it.
        assert_eq!(window(3, 2, 0, true)(2), Some(1));
    }

    #[test]
    fn a_symbolic_size_stays_symbolic() {
        let w = Window { strides: vec![2], pads: vec![1, 1], ..Window::default() };
        assert_eq!(w.output(0, 1, &Dim::symbol("h"), 3).unwrap().to_string(), "(floor((h - 1)/2) + 1)");
        let same = Window { strides: vec![2], auto_pad: AutoPad::SameUpper, ..Window::default() };
        assert_eq!(same.output(0, 1, &Dim::Known(5), 3).unwrap(), Dim::Known(3));
    }

    #[test]
    fn absurd_sizes_are_errors() {
        let w = Window { dilations: vec![u64::MAX], ..Window::default() };
        assert!(w.output(0, 1, &Dim::Known(5), 3).is_err());
    }
}
