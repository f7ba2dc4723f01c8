//! ZeroPadding, Cropping, UpSampling over one to three axes. Keras 2 and 3.
//!
//! keras/src/layers/reshaping/zero_padding*.py, cropping*.py, up_sampling*.py. An amount is a number for all axes, one for each, or a
//! pair of begin and end for each.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::{Source, boxed};
use crate::run::Run;
use crate::spatial::{DataFormat, PerAxis};
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{Dim, OpError};
use serde::Deserialize;
use serde_json::Value;

/// Elements added or taken away at both ends of each spatial axis.
#[derive(Clone, Debug)]
pub struct Border {
    /// Whether they are added.
    pub adds: bool,
    /// At the begin and the end of each axis.
    pub amounts: Vec<[u64; 2]>,
    /// Where the channels stand.
    pub data_format: DataFormat,
}

/// Each spatial element repeated or interpolated.
#[derive(Clone, Debug, Deserialize)]
pub struct UpSampling {
    /// Spatial axes, told by the class.
    #[serde(skip)]
    pub axes: usize,
    /// The factor for each axis.
    #[serde(default = "super::two")]
    pub size: PerAxis,
    /// Where the channels stand.
    #[serde(default)]
    pub data_format: DataFormat,
    /// `nearest`, `bilinear`, …
    #[serde(default = "nearest")]
    pub interpolation: String,
}

fn nearest() -> String {
    "nearest".into()
}

#[derive(Deserialize)]
struct Config {
    #[serde(default, alias = "cropping")]
    padding: Value,
    #[serde(default)]
    data_format: DataFormat,
}

fn border(source: &Source<'_>) -> Result<Border, String> {
    let (config, axes): (Config, _) = (source.read()?, source.spatial_axes()?);
    let expected =
        || format!("expected an amount, one for each axis or a pair for each, found {}", config.padding);
    let number = |v: &Value| v.as_u64().ok_or_else(expected);
    let pair = |v: &Value| match v {
        Value::Array(pair) if pair.len() == 2 => Ok([number(&pair[0])?, number(&pair[1])?]),
        v => number(v).map(|n| [n, n]),
    };
    let amounts = match &config.padding {
        Value::Null => vec![[1, 1]; axes],
        Value::Array(list) if axes == 1 && list.iter().all(Value::is_number) => vec![pair(&config.padding)?],
        Value::Array(list) if list.len() == axes => list.iter().map(pair).collect::<Result<_, _>>()?,
        v => vec![pair(v)?; axes],
    };
    Ok(Border { adds: source.class().contains("Padding"), amounts, data_format: config.data_format })
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec {
        classes: &[
            "Cropping1D",
            "Cropping2D",
            "Cropping3D",
            "ZeroPadding1D",
            "ZeroPadding2D",
            "ZeroPadding3D",
        ],
        keras: &[2, 3],
        build: |s| boxed(border(s)?),
    },
    LayerSpec {
        classes: &["UpSampling1D", "UpSampling2D", "UpSampling3D"],
        keras: &[2, 3],
        build: |s| {
            let layer = UpSampling { axes: s.spatial_axes()?, ..s.read()? };
            layer.size.along(layer.axes, "size")?;
            boxed(layer)
        },
    },
];

impl Layer for Border {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input_of_rank(inputs, 0, self.amounts.len() + 2)?;
        let mut y = call.seen(x);
        for (i, [begin, end]) in self.amounts.iter().enumerate() {
            let axis = self.data_format.first_axis() + i;
            let amount = begin.checked_add(*end).and_then(|n| i64::try_from(n).ok());
            let amount = amount.ok_or_else(|| OpError::overflow("the amount"))?;
            let dim = &x.dims()[axis];
            if !self.adds && dim.known().is_some_and(|n| n <= amount.unsigned_abs()) {
                return Err(OpError::mismatch(format!("more than {amount} elements along axis {axis}"), dim));
            }
            y = y.replaced(axis, dim.offset(if self.adds { amount } else { -amount }));
        }
        Ok(vec![y])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (mut x, shape) = (run.x(0), run.out_shape());
        if self.adds {
            x = run.pad(&x, shape);
        } else {
            for (i, [begin, _]) in self.amounts.iter().enumerate() {
                let axis = self.data_format.first_axis() + i;
                x = x.narrow(run.l, axis, *begin, shape.get(axis).copied().unwrap_or(1));
            }
        }
        run.finish(&x);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let (x, shape) = (run.x(0), run.out_shape(0));
        let y = run.moved(if self.adds { "Pad" } else { "StridedSlice" }, x, shape);
        run.finish(y);
    }
}

impl Layer for UpSampling {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input_of_rank(inputs, 0, self.axes + 2)?;
        let mut y = call.seen(x);
        for i in 0..self.axes {
            let axis = self.data_format.first_axis() + i;
            y = y.replaced(axis, spec::product(&[x.dims()[axis].clone(), Dim::Known(self.size.at(i))])?);
        }
        Ok(vec![y])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (mut y, shape) = (run.x(0), run.out_shape());
        if self.interpolation == "nearest" {
            // `ops.repeat` along one axis after the other: unsqueeze, expand, reshape, of which the last copies.
            for i in 0..self.axes {
                let axis = self.data_format.first_axis() + i;
                let [mut apart, mut repeated, mut whole] = [(); 3].map(|()| y.shape.to_vec());
                apart.insert(axis + 1, 1);
                repeated.insert(axis + 1, self.size.at(i));
                whole[axis] = shape[axis];
                y = y.reshape(run.l, &apart).expand(run.l, &repeated).reshape(run.l, &whole);
            }
        } else {
            y = run.interpolate(&y, self.data_format, shape);
        }
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let (mut y, shape) = (run.x(0), run.out_shape(0));
        if self.interpolation == "nearest" && self.axes == 2 && !run.is_keras3() {
            // tf_keras/src/backend.py, `resize_images`
            y = run.moved("ResizeNearestNeighbor", y, shape);
        } else if self.interpolation == "nearest" {
            // `ops.repeat` along one axis after the other: expand_dims, tile, reshape.
            for i in 0..self.axes {
                let axis = self.data_format.first_axis() + i;
                let mut whole = run.shape(y).to_vec();
                let [mut apart, mut repeated] = [whole.clone(), whole.clone()];
                apart.insert(axis + 1, 1);
                repeated.insert(axis + 1, self.size.at(i));
                whole[axis] = shape[axis];
                y = run.view("ExpandDims", y, &apart);
                y = run.broadcast_to(y, &repeated);
                y = run.view("Reshape", y, &whole);
            }
        } else {
            y = run.resize("ResizeBilinear", y, shape);
        }
        run.finish(y);
    }
}
