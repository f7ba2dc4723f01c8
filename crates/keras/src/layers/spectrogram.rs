//! MelSpectrogram, STFTSpectrogram. Keras 3.
//!
//! keras/src/layers/preprocessing/mel_spectrogram.py, stft_spectrogram.py (3.15): the second is a convolution with windows that are
//! variables, trained like any other. The first has a Fourier transform (backend/tensorflow/math.py, `stft`), whose windows are gathered
//! from parts of the signal as long as windows and steps have in common (tensorflow/python/ops/signal/shape_ops.py, `frame`).

use super::LayerSpec;
use crate::layer::{Call, Layer, Weight};
use crate::operations::angles;
use crate::reader::boxed;
use crate::run::Run;
use crate::spatial::{self, DataFormat, Padding, windowed};
use crate::spec::{self, Spec};
use memfit_graph::kernels::{Effect, Wire};
use memfit_graph::{DType, Dim, OpError, elements};
use serde::Deserialize;

/// Bands of frequencies over time.
#[derive(Clone, Debug, Deserialize)]
pub struct MelSpectrogram {
    /// Bands.
    #[serde(default = "bins")]
    pub num_mel_bins: u64,
    /// Samples from one window to the next.
    #[serde(default = "stride")]
    pub sequence_stride: u64,
    /// The length of the transform.
    #[serde(default = "transform")]
    pub fft_length: u64,
    /// Whether the result is in decibels.
    #[serde(default = "super::yes")]
    pub power_to_db: bool,
}

/// Frequencies over time by convolution.
#[derive(Clone, Debug, Deserialize)]
pub struct StftSpectrogram {
    /// What is given: `log`, `magnitude`, `psd`, `real`, `imag`, `angle`, `stft`.
    #[serde(default = "log")]
    pub mode: String,
    /// Samples in a window.
    #[serde(default = "frame")]
    pub frame_length: u64,
    /// Samples from one window to the next; half a window where it is not given.
    #[serde(default)]
    pub frame_step: Option<u64>,
    /// The length of the transform; the window's where it is not given.
    #[serde(default)]
    pub fft_length: Option<u64>,
    /// How the ends are padded.
    #[serde(default)]
    pub padding: Padding,
    /// Whether channels get an axis of their own.
    #[serde(default)]
    pub expand_dims: bool,
    /// Where the channels stand.
    #[serde(default)]
    pub data_format: DataFormat,
}

fn bins() -> u64 {
    128
}

fn stride() -> u64 {
    512
}

fn transform() -> u64 {
    2048
}

fn frame() -> u64 {
    256
}

fn log() -> String {
    "log".into()
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec { classes: &["MelSpectrogram"], keras: &[3], build: |s| boxed(s.read::<MelSpectrogram>()?) },
    LayerSpec { classes: &["STFTSpectrogram"], keras: &[3], build: |s| boxed(s.read::<StftSpectrogram>()?) },
];

impl Layer for MelSpectrogram {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input_from_rank(inputs, 0, 1)?;
        let at = x.rank().min(2) - 1;
        let up = self.sequence_stride.checked_add(1).and_then(|n| i64::try_from(n).ok());
        let up = up.ok_or_else(|| OpError::overflow("the stride"))?;
        let frames = x.dims()[at].offset(up).div_floor(&Dim::Known(self.sequence_stride));
        let frames = frames.ok_or_else(|| OpError::mismatch("a positive stride", self.sequence_stride))?;
        let leading = x.dims()[..at].iter().cloned();
        Ok(vec![call.output(leading.chain([Dim::Known(self.num_mel_bins), frames]))])
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let x = run.x_f32(0);
        let mut from = x;
        while let [one] = run.kernel(from).inputs[..] {
            from = one;
        }
        // The transform's own gradient has no rule here: signals need none.
        let (length, step) = (self.fft_length, self.sequence_stride);
        if !matches!(run.kernel(from).effect, Effect::Feed(_)) || length == 0 || step == 0 {
            return run.not_modelled();
        }
        let shape = run.shape(x).to_vec();
        let (Some((time, leading)), given) = (shape.split_last(), run.out_shape(0).to_vec()) else {
            return run.not_modelled();
        };
        let of = |ends: &[u64]| [leading, ends].concat();
        let total = time.saturating_add(length / 2 * 2);
        let padded = run.moved("MirrorPad", x, &of(&[total]));
        let part = common(length, step);
        let used = total / part * part;
        let used = if used == total { padded } else { run.moved("StridedSlice", padded, &of(&[used])) };
        let frames = (total.saturating_sub(length) / step).saturating_add(1);
        let windows = run.moved("GatherV2", used, &of(&[frames, length]));
        let windows = run.scaled("Mul", windows);
        let bins = length / 2 + 1;
        let complex = run.make("RFFT", &[windows], &of(&[frames, bins]), DType::Complex64, None);
        let parts = ["Real", "Imag"].map(|name| {
            let part = run.make(name, &[complex], &of(&[frames, bins]), DType::Float32, None);
            run.unary("Square", part)
        });
        let power = run.binary("AddV2", parts[0], parts[1]);
        let power = run.scaled("Pow", power);
        let rows = elements(leading).saturating_mul(frames);
        let flat = run.view("Reshape", power, &[rows, bins]);
        let matrix = run.constant(&[bins, self.num_mel_bins], DType::Float32);
        let bands = run.matmul("MatMul", flat, matrix, &[rows, self.num_mel_bins]);
        let mut bands = run.view("Reshape", bands, &of(&[frames, self.num_mel_bins]));
        if self.power_to_db {
            let clipped = run.clip_side("Maximum", bands);
            let log = run.unary("Log", clipped);
            let scaled = run.scaled("Mul", log);
            let most = run.reduce("Max", scaled, &[]);
            bands = run.binary("Maximum", scaled, most);
        }
        let y = run.moved("Transpose", bands, &given);
        let y = run.to_compute(y);
        run.finish(y);
    }
}

/// The greatest common divisor.
fn common(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common(b, a % b) }
}

impl StftSpectrogram {
    fn frequencies(&self) -> u64 {
        self.fft_length.unwrap_or(self.frame_length) / 2 + 1
    }

    /// `_apply_conv`: each channel as a sequence of its own, then `[batch, channels, frequencies, time]`.
    fn signal(&self, run: &mut Run<'_, '_>, k: usize, frames: u64) -> Wire {
        let (mut x, kernel) = (run.x(0), run.weight(k));
        let shape = run.shape(x).to_vec();
        let is_last = self.data_format == DataFormat::ChannelsLast;
        let [batch, a, b] = shape[..] else { return x };
        let (time, channels) = if is_last { (a, b) } else { (b, a) };
        if is_last && channels > 1 {
            x = run.moved("Transpose", x, &[batch, channels, time]);
        }
        let (rows, count) = (batch.saturating_mul(channels), self.frequencies());
        let x = run.view("Reshape", x, &[rows, time, 1]);
        let shape = if is_last { [rows, frames, count] } else { [rows, count, frames] };
        let mut y = run.convolution("Conv2D", x, kernel, &shape);
        if is_last {
            y = run.moved("Transpose", y, &[rows, count, frames]);
        }
        run.view("Reshape", y, &[batch, channels, count, frames])
    }

    /// `_adjust_shapes`.
    fn adjusted(&self, run: &mut Run<'_, '_>, y: Wire) -> Wire {
        let shape = run.out_shape(0).to_vec();
        match (self.data_format, self.expand_dims) {
            (DataFormat::ChannelsFirst, false) => run.view("Reshape", y, &shape),
            _ => run.moved("Transpose", y, &shape),
        }
    }
}

impl Layer for StftSpectrogram {
    fn weights(&self, call: &Call<'_>, _: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let shape = [self.frame_length, 1, self.frequencies()];
        let kernels = [("real_kernel", self.mode != "imag"), ("imag_kernel", self.mode != "real")];
        Ok(kernels.into_iter().filter(|(_, is)| *is).map(|(name, _)| call.weight(name, shape)).collect())
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input_of_rank(inputs, 0, 3)?;
        let channels = spatial::channels(x, self.data_format)?.clone();
        let step = self.frame_step.unwrap_or(self.frame_length / 2);
        let time =
            windowed(&x.dims()[self.data_format.first_axis()], self.frame_length, step, 1, self.padding)?;
        let frequencies = spec::times(self.frequencies(), if self.mode == "stft" { 2 } else { 1 })?;
        let batch = x.dims()[0].clone();
        if self.expand_dims {
            let axes = [time, Dim::Known(frequencies)];
            return Ok(vec![call.output(self.data_format.shape(batch, axes, channels))]);
        }
        let made = spec::product(&[channels, Dim::Known(frequencies)])?;
        Ok(vec![call.output(self.data_format.shape(batch, [time], made))])
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let channels = match (self.data_format, run.in_shape(0)) {
            (DataFormat::ChannelsLast, [batch, _, channels]) | (_, [batch, channels, _]) => {
                batch.saturating_mul(*channels)
            }
            _ => return run.not_modelled(),
        };
        let each =
            channels.saturating_mul(self.frequencies()).saturating_mul(u64::from(self.mode == "stft") + 1);
        let frames = elements(run.out_shape(0)).checked_div(each).unwrap_or(0);
        let real = (self.mode != "imag").then(|| self.signal(run, 0, frames));
        let imaginary = (self.mode != "real").then(|| self.signal(run, usize::from(real.is_some()), frames));
        let (real, imaginary) = match (real, imaginary) {
            (Some(real), Some(imaginary)) => (real, imaginary),
            (Some(one), None) | (None, Some(one)) => {
                let y = self.adjusted(run, one);
                return run.finish(y);
            }
            (None, None) => return run.not_modelled(),
        };
        let y = match self.mode.as_str() {
            "angle" => angles::arctan2(run, imaginary, real),
            "stft" => {
                let mut shape = run.shape(real).to_vec();
                shape.get_mut(2).into_iter().for_each(|d| *d = d.saturating_mul(2));
                run.concat(&[real, imaginary], &shape)
            }
            mode => {
                let squares = [real, imaginary].map(|part| run.unary("Square", part));
                let power = run.binary("AddV2", squares[0], squares[1]);
                if mode == "psd" {
                    let shape = run.shape(power).to_vec();
                    let mut inner = shape.clone();
                    inner.get_mut(2).into_iter().for_each(|d| *d = d.saturating_sub(2));
                    let inner = run.moved("StridedSlice", power, &inner);
                    let padded = run.moved("Pad", inner, &shape);
                    run.binary("AddV2", power, padded)
                } else {
                    let power = run.clip_side("Maximum", power);
                    run.unary("Sqrt", power)
                }
            }
        };
        let mut y = self.adjusted(run, y);
        if self.mode == "log" {
            let clipped = run.clip_side("Maximum", y);
            y = run.unary("Log", clipped);
        }
        run.finish(y);
    }
}
