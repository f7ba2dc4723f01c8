//! STFT. ONNX 17; Keras `keras.ops.stft`; `torch.stft`.
//!
//! `aten::stft` (SpectralOps.cpp) views the signal as overlapping frames, multiplies them by the window and transforms them:
//! the windowed frames are kept (derivatives.yaml, `_fft_r2c` keeps its input), the frames themselves are a view of the signal, which
//! `mul` keeps only for a window that is trained.

use crate::{
    Call, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Shape, View,
};
use std::sync::Arc;

/// The short-time Fourier transform of `[batch, samples, 1 or 2]`.
#[derive(Clone, Copy, Debug)]
pub struct Stft {
    /// Whether the half of the spectrum that real numbers have is left out.
    pub one_sided: bool,
}

/// How STFT is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "STFT",
    since: &[17],
    build: |a, _| Ok(Arc::new(Stft { one_sided: a.int("onesided")?.unwrap_or(1) != 0 })),
}];

/// How many frames of `length` at every `step` samples fit.
fn frames(samples: &Dim, length: &Dim, step: u64) -> Result<Option<Dim>, OpError> {
    let Some(known) = length.known() else { return Ok(None) };
    if samples.known().is_some_and(|n| n < known) {
        return Err(OpError::mismatch(format!("at least {known} samples"), samples));
    }
    let back = i64::try_from(known).map_err(|_| OpError::overflow("the frame"))?;
    Ok(samples.offset(-back).div_floor(&Dim::Known(step)).map(|n| n.offset(1)))
}

impl Op for Stft {
    fn name(&self) -> &str {
        "STFT"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let Some(signal) = cx.shape_of_rank(0, 3)? else {
            cx.set(0, cx.dtype(0), None);
            return Ok(());
        };
        let step = cx.ints(1).and_then(|v| v.first().copied());
        if step.is_some_and(|n| n <= 0) {
            return Err(OpError::input(1, "a positive step", "another"));
        }
        let step = step.and_then(|n| u64::try_from(n).ok());
        let length = match (cx.has(3), cx.has(2)) {
            (true, _) => cx.value(3).and_then(|v| v.single()?.as_dim()),
            (false, true) => cx.shape_of_rank(2, 1)?.map(|s| s[0].clone()),
            (false, false) => Some(signal[1].clone()),
        };
        let frames = match (&length, step) {
            (Some(length), Some(step)) => frames(&signal[1], length, step)?,
            _ => None,
        };
        let half = |n: Dim| n.div_floor(&Dim::Known(2)).map(|n| n.offset(1));
        let bins = length.and_then(|n| if self.one_sided { half(n) } else { Some(n) });
        let frames = frames.unwrap_or_else(|| cx.fresh_dim("frames", signal[1].upper()));
        let bins = bins.unwrap_or_else(|| cx.fresh_dim("bins", None));
        let shape: Shape = [signal[0].clone(), frames, bins, Dim::Known(2)].into_iter().collect();
        cx.set(0, cx.dtype(0), Some(shape));
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (signal, out) = (l.shape(0), l.out_shape(0));
        let &[batch, frames, bins, _] = out else {
            return super::calls::without_gradient(l, "stft");
        };
        let length = match (l.shape(2), self.one_sided) {
            ([length], _) => *length,
            (_, true) => bins.saturating_sub(1).saturating_mul(2),
            (_, false) => bins,
        };
        let parts = signal.get(2).copied().unwrap_or(1);
        let shape = [batch, frames, length, parts];
        let view = Call::new("as_strided").input(Operand::Input(0), Grad::New);
        // Frames overlap: `expand` has the strides of no storage of its own, as they have.
        let mut framed = l.call(view.output(&shape, OutDtype::Like(0), Place::View(0, View::Expand)));
        if l.state(2).is_some() {
            framed = l.call(
                Call::new("mul")
                    .input(framed, Grad::New)
                    .input(Operand::Input(2), Grad::New)
                    .output(&shape, OutDtype::Promoted, Place::New)
                    .saves([
                        Saved::InputFor { input: 0, needed_by: 1 },
                        Saved::InputFor { input: 1, needed_by: 0 },
                    ]),
            );
        }
        let real = parts == 1;
        l.finish(
            Call::new(if real { "_fft_r2c" } else { "_fft_c2c" })
                .input(framed, Grad::New)
                .output(out, OutDtype::Promoted, Place::New)
                .saves(real.then_some(Saved::Input(0)))
                .backward_scratch(&shape, OutDtype::Promoted),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attributes;
    use crate::ops::testing::{In, calls, float, int, shape, symbolic};

    #[test]
    fn frames_and_bins_follow_from_the_window_or_the_length() {
        let none = Attributes::default;
        let by_length = [float(&[1, 128, 1]), int(8), In::Absent, int(16)];
        assert_eq!(shape("STFT", 17, none(), &by_length).unwrap(), "1x15x9x2");
        let by_window = [symbolic(&["b", "16000", "1"]), int(160), float(&[400])];
        assert_eq!(shape("STFT", 17, none(), &by_window).unwrap(), "bx98x201x2");
        let short = [float(&[1, 8, 1]), int(8), In::Absent, int(16)];
        assert!(shape("STFT", 17, none(), &short).is_err());
        let standing = [float(&[1, 128, 1]), int(0), In::Absent, int(16)];
        assert!(shape("STFT", 17, none(), &standing).is_err());
    }

    #[test]
    fn the_windowed_frames_are_kept() {
        let inputs = [float(&[8, 16000, 1]), int(160), float(&[400])];
        let calls = calls("STFT", 17, Attributes::default(), &inputs, 1);
        assert_eq!(
            (&calls[1].outputs[0].shape[..], &calls[2].saved[..]),
            (&[8, 98, 400, 1][..], &[Saved::Input(0)][..])
        );
    }
}
