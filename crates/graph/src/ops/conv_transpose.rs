//! ConvTranspose. ONNX 1, 11, 22; Keras `Conv1DTranspose`, `Conv2DTranspose`, `Conv3DTranspose`.
//!
//! The same ATen function as Conv: autograd keeps the input and the weight, not the bias (derivatives.yaml:
//! `convolution_backward`). On autocast's lower-precision list.

use super::calls::positive;
use super::spatial::{AutoPad, Window};
use crate::kernels::TfLowering;
use crate::{
    Autocast, Call, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Shape,
};
use std::sync::Arc;

/// The gradient of a convolution as an operator: input `[N, C, …]`, weight `[C, K/groups, …]`.
#[derive(Clone, Debug, Default)]
pub struct ConvTranspose {
    /// Kernel, strides, pads, dilations.
    pub window: Window,
    /// Channel groups.
    pub groups: u64,
    /// What is added at the end of each axis.
    pub output_padding: Vec<u64>,
    /// The spatial sizes of the output, where the file gives them.
    pub output_shape: Option<Vec<u64>>,
}

/// How ConvTranspose is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "ConvTranspose",
    since: &[1, 11, 22],
    build: |a, _| {
        Ok(Arc::new(ConvTranspose {
            window: Window::read(a)?,
            groups: positive(a, "group", 1)?,
            output_padding: a.sizes("output_padding")?.unwrap_or_default(),
            output_shape: a.sizes("output_shape")?.filter(|s| !s.is_empty()),
        }))
    },
}];

impl ConvTranspose {
    /// The output size along spatial axis `i` of `axes`.
    fn size(&self, i: usize, axes: usize, input: &Dim, kernel: u64) -> Result<Dim, OpError> {
        if let Some(given) = &self.output_shape
            && let Some(size) = given.len().checked_sub(axes).and_then(|skip| given.get(skip + i))
        {
            return Ok(Dim::Known(*size));
        }
        let too_large = || OpError::overflow(format!("the window along spatial axis {i}"));
        let stride = self.window.stride(i);
        if matches!(self.window.auto_pad, AutoPad::SameUpper | AutoPad::SameLower) {
            return input.mul(&Dim::Known(stride)).ok_or_else(too_large);
        }
        let (begin, end) =
            if self.window.auto_pad == AutoPad::Valid { (0, 0) } else { self.window.pad(i, axes) };
        let extra = i128::from(kernel.saturating_sub(1)) * i128::from(self.window.dilation(i))
            + 1
            + i128::from(self.output_padding.get(i).copied().unwrap_or(0))
            - i128::from(begin)
            - i128::from(end)
            - i128::from(stride);
        let extra = i64::try_from(extra).map_err(|_| too_large())?;
        let scaled = input.mul(&Dim::Known(stride)).ok_or_else(too_large)?;
        if let Some(n) = scaled.known() {
            let n = i128::from(n) + i128::from(extra);
            return u64::try_from(n).map(Dim::Known).map_err(|_| {
                OpError::mismatch("a positive output size", format!("{n} along spatial axis {i}"))
            });
        }
        Ok(scaled.offset(extra))
    }
}

impl Op for ConvTranspose {
    fn name(&self) -> &str {
        "ConvTranspose"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let dtype = cx.dtype(0);
        let (Some(x), Some(w)) = (cx.shape(0), cx.shape(1)) else {
            cx.set(0, dtype, None);
            return Ok(());
        };
        if x.rank() < 3 {
            return Err(OpError::input(0, "batch, channels and spatial axes", format!("shape {x}")));
        }
        if w.rank() != x.rank() || x[1].known().zip(w[0].known()).is_some_and(|(c, w)| c != w) {
            let expected = format!("a weight of rank {} for {} channels", x.rank(), x[1]);
            return Err(OpError::input(1, expected, format!("shape {w}")));
        }
        let axes = x.rank() - 2;
        let channels = w[1].mul(&Dim::Known(self.groups)).ok_or_else(|| OpError::overflow("the channels"))?;
        let mut shape: Shape = [x[0].clone(), channels].into_iter().collect();
        for i in 0..axes {
            let given = self.window.kernel.as_ref().and_then(|k| k.get(i).copied());
            shape.push(match given.or_else(|| w[i + 2].known()) {
                Some(kernel) => self.size(i, axes, &x[i + 2], kernel)?,
                None => cx.fresh_dim(&format!("dim{}", i + 2), None),
            });
        }
        cx.set(0, dtype, Some(shape));
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, w, shape) = (l.input(0), l.input(1), l.out_shape(0));
        let name = if shape.len() > 4 { "Conv3DBackpropInputV2" } else { "Conv2DBackpropInput" };
        let mut y = l.convolution(name, x, w, shape);
        if l.has(2) {
            let bias = l.input(2);
            y = l.bias_add(y, bias);
        }
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let mut call = Call::new("convolution")
            .autocast(Autocast::Lower)
            .input(Operand::Input(0), Grad::New)
            .input(Operand::Input(1), Grad::New);
        if l.state(2).is_some() {
            call = call.input(Operand::Input(2), Grad::New);
        }
        call = call.output(l.out_shape(0), OutDtype::Promoted, Place::New);
        l.finish(call.saves([Saved::Input(0), Saved::Input(1)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(op: &ConvTranspose, input: u64, kernel: u64) -> Option<u64> {
        op.size(0, 1, &Dim::Known(input), kernel).ok()?.known()
    }

    #[test]
    fn sizes_undo_a_convolution() {
        let window = Window { strides: vec![2], pads: vec![1, 1], ..Window::default() };
        let op = ConvTranspose { window: window.clone(), output_padding: vec![1], ..Default::default() };
        assert_eq!(size(&op, 112, 3), Some(224));
        let same = Window { auto_pad: AutoPad::SameUpper, ..window.clone() };
        assert_eq!(size(&ConvTranspose { window: same, ..Default::default() }, 5, 3), Some(10));
        let given = ConvTranspose { window, output_shape: Some(vec![1, 1, 10]), ..Default::default() };
        assert_eq!(size(&given, 3, 3), Some(10));
        let op = ConvTranspose { window: Window { pads: vec![9, 9], ..Window::default() }, ..op };
        assert_eq!(size(&op, 3, 3), None);
    }

    #[test]
    fn a_symbolic_size_stays_symbolic() {
        let window = Window { strides: vec![2], ..Window::default() };
        let op = ConvTranspose { window, ..Default::default() };
        assert_eq!(op.size(0, 1, &Dim::symbol("h"), 2).unwrap().to_string(), "2*h");
        assert_eq!(op.size(0, 1, &Dim::symbol("h"), 3).unwrap().to_string(), "(2*h + 1)");
    }
}
