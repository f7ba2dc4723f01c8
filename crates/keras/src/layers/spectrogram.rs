//! MelSpectrogram, STFTSpectrogram. Keras 3.
//!
//! keras/src/layers/preprocessing/mel_spectrogram.py, stft_spectrogram.py: the second is a convolution with windows that are variables,
//! trained like any other.

use super::LayerSpec;
use crate::layer::{Call, Layer, Weight};
use crate::reader::boxed;
use crate::spatial::{self, DataFormat, Padding, windowed};
use crate::spec::{self, Spec};
use memfit_graph::{Dim, OpError};
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
}

impl StftSpectrogram {
    fn frequencies(&self) -> u64 {
        self.fft_length.unwrap_or(self.frame_length) / 2 + 1
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
}
