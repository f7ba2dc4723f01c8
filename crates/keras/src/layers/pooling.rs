//! Average and max pooling over windows, over everything, and to a given size. Keras 2 and 3; adaptive pools Keras 3.
//!
//! keras/src/layers/pooling/base_pooling.py, base_global_pooling.py, base_adaptive_pooling.py.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::boxed;
use crate::run::Run;
use crate::spatial::{self, DataFormat, Padding, PerAxis, windowed};
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{Dim, OpError};
use serde::Deserialize;

/// What is taken of the elements under a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Pool {
    #[default]
    Average,
    Max,
}

impl Pool {
    pub(crate) fn of(class: &str) -> Pool {
        if class.contains("Max") { Pool::Max } else { Pool::Average }
    }

    /// TensorFlow's kernel over so many axes.
    fn kernel(self, axes: usize) -> &'static str {
        match (self, axes) {
            (Pool::Max, 3) => "MaxPool3D",
            (Pool::Max, _) => "MaxPool",
            (Pool::Average, 3) => "AvgPool3D",
            (Pool::Average, _) => "AvgPool",
        }
    }
}

/// A pool over a moving window.
#[derive(Clone, Debug, Deserialize)]
pub struct Pooling {
    /// Spatial axes, told by the class.
    #[serde(skip)]
    pub axes: usize,
    /// What is taken.
    #[serde(skip)]
    pub pool: Pool,
    /// The window.
    #[serde(default = "super::two", alias = "pool_length")]
    pub pool_size: PerAxis,
    /// Its step; the window itself where it is not given.
    #[serde(default)]
    pub strides: Option<PerAxis>,
    /// How the ends are padded.
    #[serde(default)]
    pub padding: Padding,
    /// Where the channels stand.
    #[serde(default)]
    pub data_format: DataFormat,
}

/// A pool over all positions.
#[derive(Clone, Debug, Deserialize)]
pub struct GlobalPooling {
    /// Spatial axes, told by the class.
    #[serde(skip)]
    pub axes: usize,
    /// What is taken.
    #[serde(skip)]
    pub pool: Pool,
    /// Where the channels stand.
    #[serde(default)]
    pub data_format: DataFormat,
    /// Whether the axes stay with one element.
    #[serde(default)]
    pub keepdims: bool,
}

/// A pool to a given size.
#[derive(Clone, Debug, Deserialize)]
pub struct AdaptivePooling {
    /// Spatial axes, told by the class.
    #[serde(skip)]
    pub axes: usize,
    /// What is taken.
    #[serde(skip)]
    pub pool: Pool,
    /// The size along each axis.
    #[serde(deserialize_with = "PerAxis::or_zero")]
    pub output_size: PerAxis,
    /// Where the channels stand.
    #[serde(default)]
    pub data_format: DataFormat,
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec {
        classes: &[
            "AveragePooling1D",
            "AveragePooling2D",
            "AveragePooling3D",
            "AvgPool1D",
            "AvgPool2D",
            "AvgPool3D",
            "MaxPool1D",
            "MaxPool2D",
            "MaxPool3D",
            "MaxPooling1D",
            "MaxPooling2D",
            "MaxPooling3D",
        ],
        keras: &[2, 3],
        build: |s| {
            let layer = Pooling { axes: s.spatial_axes()?, pool: Pool::of(s.class()), ..s.read()? };
            layer.pool_size.along(layer.axes, "pool_size")?;
            layer.strides.as_ref().map_or(Ok(()), |strides| strides.along(layer.axes, "strides"))?;
            boxed(layer)
        },
    },
    LayerSpec {
        classes: &[
            "GlobalAveragePooling1D",
            "GlobalAveragePooling2D",
            "GlobalAveragePooling3D",
            "GlobalAvgPool1D",
            "GlobalAvgPool2D",
            "GlobalAvgPool3D",
            "GlobalMaxPool1D",
            "GlobalMaxPool2D",
            "GlobalMaxPool3D",
            "GlobalMaxPooling1D",
            "GlobalMaxPooling2D",
            "GlobalMaxPooling3D",
        ],
        keras: &[2, 3],
        build: |s| boxed(GlobalPooling { axes: s.spatial_axes()?, pool: Pool::of(s.class()), ..s.read()? }),
    },
    LayerSpec {
        classes: &[
            "AdaptiveAveragePooling1D",
            "AdaptiveAveragePooling2D",
            "AdaptiveAveragePooling3D",
            "AdaptiveMaxPooling1D",
            "AdaptiveMaxPooling2D",
            "AdaptiveMaxPooling3D",
        ],
        keras: &[3],
        build: |s| {
            let layer = AdaptivePooling { axes: s.spatial_axes()?, pool: Pool::of(s.class()), ..s.read()? };
            layer.output_size.along(layer.axes, "output_size")?;
            boxed(layer)
        },
    },
];

/// The input of a pool, with its channels.
fn pooled(inputs: &[Spec], axes: usize, format: DataFormat) -> Result<(&Spec, Dim), OpError> {
    let x = spec::input_of_rank(inputs, 0, axes + 2)?;
    Ok((x, spatial::channels(x, format)?.clone()))
}

impl Layer for Pooling {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let (x, channels) = pooled(inputs, self.axes, self.data_format)?;
        let strides = self.strides.as_ref().unwrap_or(&self.pool_size);
        let sizes = spatial::spatial(x, self.data_format, self.axes).iter().enumerate();
        let sizes = sizes.map(|(i, d)| windowed(d, self.pool_size.at(i), strides.at(i), 1, self.padding));
        let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
        Ok(vec![call.seen(x).with(self.data_format.shape(x.dims()[0].clone(), sizes, channels))])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (x, shape) = (run.x(0), run.out_shape());
        let mut x = run.channels_first(&x, self.data_format);
        let one = crate::spatial::one();
        if self.padding == Padding::Same {
            let strides = self.strides.as_ref().unwrap_or(&self.pool_size);
            x = run.padded(&x, [&self.pool_size, strides, &one], true);
        }
        let y = run.pool(&x, self.pool == Pool::Max, self.data_format, shape);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let (x, shape) = (run.x(0), run.out_shape(0));
        let y = run.pool(self.pool.kernel(self.axes), x, shape);
        run.finish(y);
    }
}

impl Layer for GlobalPooling {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let (x, channels) = pooled(inputs, self.axes, self.data_format)?;
        let ones = vec![Dim::Known(1); if self.keepdims { self.axes } else { 0 }];
        Ok(vec![call.seen(x).with(self.data_format.shape(x.dims()[0].clone(), ones, channels))])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (x, shape) = (run.x(0), run.out_shape());
        if let Some(mask) = run.argument(1, "mask") {
            // global_average_pooling1d.py: the mean of the positions that count.
            let mut rows = mask.shape.to_vec();
            rows.insert(self.data_format.channel_axis(3).min(rows.len()), 1);
            let mask = run.condition(&mask).reshape(run.l, &rows);
            let kept = run.choose(&mask, &[&x]);
            let dtype = run.dtype();
            let counts = mask.cast(run.l, dtype);
            let sum = run.sum(&kept, shape);
            let mut ones = shape.to_vec();
            ones.last_mut().into_iter().for_each(|d| *d = 1);
            let count = run.sum(&counts, &ones);
            // The counts' names hold them until the call returns.
            let y = run.divide(&sum, &count);
            let y = run.holding(&y, &[&kept, &counts]);
            return run.finish(&y);
        }
        let y = if self.pool == Pool::Max { run.amax(&x, shape) } else { run.average(&x, shape) };
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let (x, shape) = (run.x(0), run.out_shape(0));
        if let Some(mask) = run.argument(1, "mask") {
            // global_average_pooling1d.py: the mean of the positions that count.
            let mut rows = run.shape(mask).to_vec();
            rows.insert(self.data_format.channel_axis(3).min(rows.len()), 1);
            let mask = run.view("ExpandDims", mask, &rows);
            let kept = run.select(mask, x);
            let sum = run.reduce("Sum", kept, shape);
            let dtype = run.dtype(x);
            let counts = run.cast(mask, dtype);
            let mut ones = shape.to_vec();
            ones.last_mut().into_iter().for_each(|d| *d = 1);
            let count = run.reduce("Sum", counts, &ones);
            let y = run.binary("RealDiv", sum, count);
            return run.finish(y);
        }
        let y = match self.pool {
            Pool::Max => run.reduce("Max", x, shape),
            // `ops.mean` of half precision computes in float32 (backend/tensorflow/numpy.py).
            Pool::Average if run.is_keras3() => run.in_f32(x, |flow, x| flow.reduce("Mean", x, shape)),
            Pool::Average => run.reduce("Mean", x, shape),
        };
        run.finish(y);
    }
}

impl Layer for AdaptivePooling {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let (x, channels) = pooled(inputs, self.axes, self.data_format)?;
        let sizes = self.output_size.expand(self.axes)?.into_iter().map(Dim::Known);
        Ok(vec![call.seen(x).with(self.data_format.shape(x.dims()[0].clone(), sizes, channels))])
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        // Axis after axis: windows of two sizes at each place, one after the other, and those of them that are cells
        // (backend/tensorflow/nn.py, `_adaptive_average_pool2d`).
        let (mut x, out) = (run.x(0), run.out_shape(0).to_vec());
        let mut shape = run.shape(x).to_vec();
        let first = self.data_format == DataFormat::ChannelsFirst;
        if first {
            shape[1..].rotate_left(1);
            x = run.moved("Transpose", x, &shape);
        }
        for i in 1..=self.axes {
            let size = out[i + usize::from(first)];
            let places = |window: u64| shape[i].saturating_add(1).saturating_sub(window);
            let small = shape[i].div_ceil(size.max(1));
            let places = [places(small), places(small + 1)];
            let pools = places.map(|places| {
                shape[i] = places;
                run.pool(self.pool.kernel(self.axes), x, &shape)
            });
            shape[i] = places[0].saturating_add(places[1]);
            let both = run.concat(&pools, &shape);
            shape[i] = size;
            x = run.gathered(both, &shape);
        }
        let y = if first { run.moved("Transpose", x, &out) } else { x };
        run.finish(y);
    }
}
