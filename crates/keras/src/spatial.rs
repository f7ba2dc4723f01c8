//! Window arithmetic that convolutions, pools and padding share.
//!
//! keras/src/ops/operation_utils.py, `compute_conv_output_shape` and `compute_pooling_output_shape`;
//! tf_keras/src/utils/conv_utils.py, `conv_output_length`.

use crate::activation::Activation;
use crate::config::{refused, word};
use crate::reader::Source;
use crate::run::Run;
use crate::spec::{self, Spec};
use memfit_graph::kernels::Wire;
use memfit_graph::{Dim, OpError};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Where the channels stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataFormat {
    /// After the spatial axes.
    #[default]
    ChannelsLast,
    /// Before them.
    ChannelsFirst,
}

impl<'de> Deserialize<'de> for DataFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DataFormat, D::Error> {
        let words =
            [("channels_last", DataFormat::ChannelsLast), ("channels_first", DataFormat::ChannelsFirst)];
        Ok(word(deserializer, &words, true)?.unwrap_or_default())
    }
}

impl DataFormat {
    /// The axis of the channels of a tensor of `rank` axes.
    pub fn channel_axis(self, rank: usize) -> usize {
        match self {
            DataFormat::ChannelsLast => rank.saturating_sub(1),
            DataFormat::ChannelsFirst => 1,
        }
    }

    /// The first spatial axis.
    pub fn first_axis(self) -> usize {
        match self {
            DataFormat::ChannelsLast => 1,
            DataFormat::ChannelsFirst => 2,
        }
    }

    /// Batch, then the spatial dims and the channels in this order.
    pub fn shape(self, batch: Dim, spatial: impl IntoIterator<Item = Dim>, channels: Dim) -> Vec<Dim> {
        let spatial = spatial.into_iter();
        match self {
            DataFormat::ChannelsLast => std::iter::once(batch).chain(spatial).chain([channels]).collect(),
            DataFormat::ChannelsFirst => [batch, channels].into_iter().chain(spatial).collect(),
        }
    }
}

/// How the ends are padded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// Not at all.
    #[default]
    Valid,
    /// So much that the output is `ceil(input / stride)`.
    Same,
    /// At the beginning alone, so that no output sees what comes later.
    Causal,
    /// As `full` of a transposed convolution and of Keras 2's `Conv1D` in Theano.
    Full,
}

impl<'de> Deserialize<'de> for Padding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Padding, D::Error> {
        let words = [
            ("valid", Padding::Valid),
            ("same", Padding::Same),
            ("causal", Padding::Causal),
            ("full", Padding::Full),
        ];
        let expected = || serde::de::Error::custom("expected valid or same, or causal along one axis");
        word(deserializer, &words, true)?.ok_or_else(expected)
    }
}

/// A number, or one for each axis. As an attribute it is positive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PerAxis {
    /// The same for every axis.
    All(u64),
    /// One for each.
    Each(Vec<u64>),
}

impl<'de> Deserialize<'de> for PerAxis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PerAxis, D::Error> {
        let read = PerAxis::read(&Value::deserialize(deserializer)?);
        let is_positive = |read: &PerAxis| match read {
            PerAxis::All(n) => *n > 0,
            PerAxis::Each(list) => !list.contains(&0),
        };
        read.filter(is_positive)
            .ok_or_else(|| serde::de::Error::custom("expected a positive whole number, or one for each axis"))
    }
}

impl Default for PerAxis {
    fn default() -> PerAxis {
        one()
    }
}

impl PerAxis {
    fn read(value: &Value) -> Option<PerAxis> {
        match value {
            Value::Array(list) => list.iter().map(Value::as_u64).collect::<Option<_>>().map(PerAxis::Each),
            value => value.as_u64().map(PerAxis::All),
        }
    }

    /// An attribute that may be zero.
    pub(crate) fn or_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PerAxis, D::Error> {
        let expected = "expected a whole number of at least zero, or one for each axis";
        let read = PerAxis::read(&Value::deserialize(deserializer)?);
        read.ok_or_else(|| serde::de::Error::custom(expected))
    }

    /// The same, or `None`.
    pub(crate) fn or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PerAxis>, D::Error> {
        let given = Option::<Value>::deserialize(deserializer)?;
        let expected = "expected None, a whole number of at least zero, or one for each axis";
        given.map(|given| PerAxis::or_zero(given).map_err(|_| serde::de::Error::custom(expected))).transpose()
    }

    /// Whether the attribute `name` of a layer with so many axes can be this (`standardize_tuple`).
    pub(crate) fn along(&self, axes: usize, name: &str) -> Result<(), String> {
        match self {
            PerAxis::Each(list) if list.len() != axes => {
                let expected = format!("one whole number for all axes, or a list of {axes}");
                Err(format!("its config: {}", refused(name, &expected, &Value::from(list.clone()))))
            }
            _ => Ok(()),
        }
    }

    /// The same number for every axis.
    pub fn all(n: u64) -> PerAxis {
        PerAxis::All(n)
    }

    /// The number for axis `i`.
    pub fn at(&self, i: usize) -> u64 {
        match self {
            PerAxis::All(one) => *one,
            PerAxis::Each(list) if list.len() == 1 => list[0],
            PerAxis::Each(list) => list.get(i).copied().unwrap_or(1),
        }
    }

    /// One number for each of `axes` axes.
    pub fn expand(&self, axes: usize) -> Result<Vec<u64>, OpError> {
        match self {
            PerAxis::All(one) => Ok(vec![*one; axes]),
            PerAxis::Each(list) if list.len() == axes => Ok(list.clone()),
            PerAxis::Each(list) => {
                Err(OpError::mismatch(format!("{axes} number(s)"), format!("{}", list.len())))
            }
        }
    }
}

/// One along every axis: what configs leave out of strides and dilations.
pub(crate) fn one() -> PerAxis {
    PerAxis::all(1)
}

/// How the window of a convolution moves: what all of their configs say.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Window {
    /// Spatial axes, told by the class.
    #[serde(skip)]
    pub axes: usize,
    /// Its size.
    pub kernel_size: PerAxis,
    /// Its step; of a transposed convolution, in the output.
    #[serde(default = "one")]
    pub strides: PerAxis,
    /// How the ends are padded.
    #[serde(default)]
    pub padding: Padding,
    /// Where the channels stand.
    #[serde(default)]
    pub data_format: DataFormat,
    /// The distance of its elements.
    #[serde(default = "one")]
    pub dilation_rate: PerAxis,
}

impl Window {
    /// The window of a layer whose class tells the number of axes.
    pub(crate) fn of(source: &Source<'_>) -> Result<Window, String> {
        let window = Window { axes: source.spatial_axes()?, ..source.read()? };
        window.kernel_size.along(window.axes, "kernel_size")?;
        window.strides.along(window.axes, "strides")?;
        window.dilation_rate.along(window.axes, "dilation_rate")?;
        Ok(window)
    }

    /// The first input, which has a batch axis, the spatial axes and one of channels.
    pub(crate) fn input<'a>(&self, inputs: &'a [Spec]) -> Result<&'a Spec, OpError> {
        spec::input_of_rank(inputs, 0, self.axes + 2)
    }

    /// Its size along each axis.
    pub(crate) fn kernel(&self) -> Result<Vec<u64>, OpError> {
        self.kernel_size.expand(self.axes)
    }

    /// The channels of an input.
    pub(crate) fn channels(&self, x: &Spec) -> Result<u64, OpError> {
        spec::number(channels(x, self.data_format)?)
    }

    /// The spatial dims that `size` makes of those of an input, by axis.
    pub(crate) fn each(
        &self,
        x: &Spec,
        size: impl Fn(usize, &Dim) -> Result<Dim, OpError>,
    ) -> Result<Vec<Dim>, OpError> {
        spatial(x, self.data_format, self.axes).iter().enumerate().map(|(i, d)| size(i, d)).collect()
    }

    /// The spatial dims after the window has moved over an input.
    pub(crate) fn sizes(&self, x: &Spec) -> Result<Vec<Dim>, OpError> {
        self.each(x, |i, d| {
            windowed(d, self.kernel_size.at(i), self.strides.at(i), self.dilation_rate.at(i), self.padding)
        })
    }

    /// An output's dims: the input's batch, these sizes and so many channels.
    pub(crate) fn shape(&self, x: &Spec, sizes: Vec<Dim>, channels: u64) -> Vec<Dim> {
        self.data_format.shape(x.dims()[0].clone(), sizes, Dim::Known(channels))
    }

    /// The convolution over `x`, which is padded already where padding is causal. One whose elements have gaps between them runs without on
    /// every so manieth pixel, side by side along the batch (tensorflow/python/ops/nn_ops.py, `_WithSpaceToBatch`).
    pub(crate) fn convolution(
        &self,
        run: &mut Run<'_, '_>,
        name: &'static str,
        x: Wire,
        kernel: Wire,
        shape: &[u64],
    ) -> Wire {
        let (mut apart, mut made) = (run.shape(x).to_vec(), shape.to_vec());
        if apart.len() != made.len() || made.len() != self.axes + 2 {
            return self.in_plane(run, name, x, kernel, shape);
        }
        for i in 0..self.axes {
            let (at, gap) = (self.data_format.first_axis() + i, self.dilation_rate.at(i).max(1));
            let reach = self.kernel_size.at(i).saturating_sub(1);
            let padded = if self.padding == Padding::Same { reach.saturating_mul(gap) } else { 0 };
            apart[0] = apart[0].saturating_mul(gap);
            apart[at] = apart[at].saturating_add(padded).div_ceil(gap);
            made[at] = apart[at].saturating_sub(reach);
        }
        if apart[0] == shape[0] {
            return self.in_plane(run, name, x, kernel, shape);
        }
        made[0] = apart[0];
        let x = run.moved("SpaceToBatchND", x, &apart);
        let y = self.in_plane(run, name, x, kernel, &made);
        run.moved("BatchToSpaceND", y, shape)
    }

    /// Along one axis the kernel of two axes runs on views (`conv1d`, nn_ops.py). They take no room, but the bias' gradient is then made
    /// after those of what is read through them: the executor runs views at once, and what is ready with them later.
    pub(crate) fn in_plane(
        &self,
        run: &mut Run<'_, '_>,
        name: &'static str,
        x: Wire,
        kernel: Wire,
        shape: &[u64],
    ) -> Wire {
        if self.axes != 1 {
            return run.convolution(name, x, kernel, shape);
        }
        let at = self.data_format.first_axis();
        let more = |shape: &[u64], at: usize| {
            let mut shape = shape.to_vec();
            shape.insert(at.min(shape.len()), 1);
            shape
        };
        let [of_x, of_kernel] = [(x, at), (kernel, 0)].map(|(wire, at)| more(run.shape(wire), at));
        let x = run.view("ExpandDims", x, &of_x);
        let kernel = run.view("ExpandDims", kernel, &of_kernel);
        let y = run.convolution(name, x, kernel, &more(shape, at));
        run.view("Squeeze", y, shape)
    }

    /// Adds the bias where there is one, then applies the activation: the end of every convolution.
    pub(crate) fn finish(
        &self,
        run: &mut Run<'_, '_>,
        mut y: Wire,
        bias: Option<usize>,
        activation: &Activation,
    ) {
        if let Some(bias) = bias {
            let rank = run.out_shape(0).len();
            y = run.add_bias(y, bias, self.data_format.channel_axis(rank));
        }
        let y = run.activate(activation, y);
        run.finish(y);
    }
}

/// The output size of a window that moves along one axis.
pub(crate) fn windowed(
    input: &Dim,
    kernel: u64,
    stride: u64,
    dilation: u64,
    padding: Padding,
) -> Result<Dim, OpError> {
    let too_large = || OpError::overflow("the window");
    if stride == 0 || kernel == 0 || dilation == 0 {
        return Err(OpError::mismatch("a positive window, stride and dilation", "a zero"));
    }
    let extent = (kernel - 1).checked_mul(dilation).and_then(|e| e.checked_add(1)).ok_or_else(too_large)?;
    let room = match padding {
        Padding::Same | Padding::Causal => input.clone(),
        Padding::Valid => match input.known() {
            Some(n) => Dim::Known(
                n.checked_add(1).and_then(|n| n.checked_sub(extent)).filter(|n| *n > 0).ok_or_else(|| {
                    OpError::mismatch(
                        "an input at least as large as the window",
                        format!("{n} against a window of {extent}"),
                    )
                })?,
            ),
            None => input.offset(i64::try_from(extent - 1).map_err(|_| too_large())?.saturating_neg()),
        },
        Padding::Full => input.offset(i64::try_from(extent - 1).map_err(|_| too_large())?),
    };
    ceil_div(&room, stride)
}

/// `ceil(dim / by)`.
pub(crate) fn ceil_div(dim: &Dim, by: u64) -> Result<Dim, OpError> {
    let too_large = || OpError::overflow("a stride");
    let up = i64::try_from(by).map_err(|_| too_large())?.saturating_sub(1);
    dim.offset(up).div_floor(&Dim::Known(by)).ok_or_else(too_large)
}

/// The spatial dims of a tensor.
pub(crate) fn spatial(spec: &Spec, format: DataFormat, axes: usize) -> &[Dim] {
    let first = format.first_axis();
    spec.dims().get(first..first + axes).unwrap_or(&[])
}

/// The channels of a tensor.
pub(crate) fn channels(spec: &Spec, format: DataFormat) -> Result<&Dim, OpError> {
    let axis = format.channel_axis(spec.rank());
    spec.dims().get(axis).ok_or_else(|| OpError::mismatch("a channel axis", format!("shape {}", spec.shape)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_keras() {
        let size = |n: u64, k, s, d, p| windowed(&Dim::Known(n), k, s, d, p).unwrap().known();
        assert_eq!(size(28, 5, 1, 1, Padding::Valid), Some(24));
        assert_eq!(size(7, 3, 2, 1, Padding::Same), Some(4));
        assert_eq!(size(256, 3, 1, 8, Padding::Causal), Some(256));
        assert_eq!(size(9, 3, 1, 2, Padding::Valid), Some(5));
        assert!(windowed(&Dim::Known(4), 5, 1, 1, Padding::Valid).is_err());
        assert!(windowed(&Dim::Known(4), u64::MAX, 1, u64::MAX, Padding::Valid).is_err());
        assert_eq!(
            windowed(&Dim::symbol("h"), 3, 2, 1, Padding::Same).unwrap().to_string(),
            "floor((h + 1)/2)"
        );
    }
}
