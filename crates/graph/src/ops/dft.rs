//! DFT. ONNX 17, 20; Keras `keras.ops.fft`, `rfft`; `torch.fft`.
//!
//! The innermost axis holds the real or the complex parts. A transform of complex numbers keeps nothing; one of real numbers keeps
//! its input for the sake of its size (derivatives.yaml, `_fft_r2c`), and its gradient is a complex tensor of which the real part
//! is taken as a view, so twice the bytes stay alive.

use crate::shape::normalize_axis;
use crate::{Call, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Shape};
use std::sync::Arc;

/// The discrete Fourier transform along one axis, whose length input 1 may give.
#[derive(Clone, Copy, Debug)]
pub struct Dft {
    /// Whether it is the inverse.
    pub inverse: bool,
    /// Whether the half of the spectrum that real numbers have is left out.
    pub one_sided: bool,
    /// Before opset 20; later input 2 gives it.
    pub axis: Option<i64>,
}

/// How DFT is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "DFT",
    since: &[17, 20],
    build: |a, version| {
        let axis = if version < 20 { Some(a.int("axis")?.unwrap_or(1)) } else { None };
        Ok(Arc::new(Dft { inverse: a.flag("inverse")?, one_sided: a.flag("onesided")?, axis }))
    },
}];

impl Dft {
    /// The axis counted from the front; `None` where an input gives it and its value is not known.
    fn axis(&self, cx: &Infer<'_>, rank: usize) -> Result<Option<usize>, OpError> {
        let axis = match self.axis {
            Some(axis) => axis,
            None if !cx.has(2) => -2,
            None => match cx.ints(2).and_then(|v| v.first().copied()) {
                Some(axis) => axis,
                None => return Ok(None),
            },
        };
        let signal = normalize_axis(axis, rank).filter(|a| a + 1 < rank);
        signal.map(Some).ok_or_else(|| {
            OpError::mismatch("an axis of the signal", format!("axis {axis} of an input of rank {rank}"))
        })
    }

    /// The size along the axis after the transform.
    fn size(&self, cx: &Infer<'_>, signal: &Dim) -> Option<Dim> {
        let length = match (cx.has(1), self.inverse && self.one_sided) {
            (true, _) => cx.value(1)?.single()?.as_dim()?,
            (false, true) => signal.offset(-1).mul(&Dim::Known(2))?,
            (false, false) => signal.clone(),
        };
        let half = self.one_sided && !self.inverse;
        if half { Some(length.div_floor(&Dim::Known(2))?.offset(1)) } else { Some(length) }
    }
}

impl Op for Dft {
    fn name(&self) -> &str {
        "DFT"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let Some(input) = cx.shape(0) else {
            cx.set(0, cx.dtype(0), None);
            return Ok(());
        };
        let axis = self.axis(cx, input.rank())?;
        let mut shape: Shape = input.clone();
        for (k, dim) in shape.dims_mut().iter_mut().enumerate() {
            let is_last = k + 1 == input.rank();
            if is_last {
                *dim = Dim::Known(if self.inverse && self.one_sided { 1 } else { 2 });
            } else if axis.is_none_or(|axis| axis == k) {
                let size = axis.and_then(|_| self.size(cx, &input[k]));
                *dim = size.unwrap_or_else(|| cx.fresh_dim(&format!("dim{k}"), None));
            }
        }
        cx.set(0, cx.dtype(0), Some(shape));
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let input = l.shape(0);
        let is_real = input.last() == Some(&1);
        let (function, saved) = match (is_real, self.inverse && self.one_sided) {
            (true, _) => ("_fft_r2c", Some(Saved::Input(0))),
            (false, true) => ("_fft_c2r", None),
            (false, false) => ("_fft_c2c", None),
        };
        let call = Call::new(function)
            .input(Operand::Input(0), Grad::New)
            .output(l.out_shape(0), OutDtype::Promoted, Place::New)
            .saves(saved)
            .backward_scratch(input, OutDtype::Promoted);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{In, float, int, shape, symbolic};
    use crate::{Attribute, Attributes};

    fn dft(version: i64, inverse: i64, one_sided: i64, inputs: &[In]) -> Result<String, String> {
        let a = [("inverse", Attribute::Int(inverse)), ("onesided", Attribute::Int(one_sided))];
        shape("DFT", version, Attributes::from(a), inputs)
    }

    #[test]
    fn one_side_of_a_real_signal_and_back() {
        assert_eq!(dft(17, 0, 0, &[float(&[1, 10, 10, 1])]).unwrap(), "1x10x10x2");
        assert_eq!(dft(17, 0, 1, &[float(&[1, 10, 10, 1])]).unwrap(), "1x6x10x2");
        assert_eq!(dft(20, 0, 1, &[symbolic(&["b", "16", "1"]), int(31)]).unwrap(), "bx16x2");
        assert_eq!(dft(20, 1, 1, &[float(&[3, 9, 2])]).unwrap(), "3x16x1");
        assert_eq!(dft(20, 0, 0, &[float(&[3, 9, 2]), In::Absent, int(0)]).unwrap(), "3x9x2");
        assert!(dft(20, 0, 0, &[float(&[3, 9, 2]), In::Absent, int(2)]).is_err());
        assert!(dft(17, 0, 0, &[float(&[3])]).is_err());
    }
}
