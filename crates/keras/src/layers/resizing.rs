//! Resizing, CenterCrop, RandomCrop, RandomHeight, RandomWidth: images of another size. Keras 2 and 3; the last two Keras 2.
//!
//! keras/src/layers/preprocessing/image_preprocessing/resizing.py, center_crop.py, random_crop.py: rank 3 has no batch.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::{Source, boxed};
use crate::run::Run;
use crate::spatial::DataFormat;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{Dim, OpError};
use serde::Deserialize;

/// An image of this height and width.
#[derive(Clone, Debug, Deserialize)]
pub struct Resizing {
    /// Rows; as many as the input has where it is not given.
    #[serde(default)]
    pub height: Option<u64>,
    /// Columns.
    #[serde(default)]
    pub width: Option<u64>,
    /// Where the channels stand.
    #[serde(default)]
    pub data_format: DataFormat,
    /// Axes whose size is drawn anew for each batch.
    #[serde(skip)]
    pub random: [bool; 2],
    /// Whether it takes a part: a view (center_crop.py, random_crop.py), unless the image is smaller.
    #[serde(skip)]
    pub crops: bool,
}

fn random(source: &Source<'_>) -> Result<Resizing, String> {
    let random = [source.class() == "RandomHeight", source.class() == "RandomWidth"];
    Ok(Resizing { height: None, width: None, data_format: DataFormat::ChannelsLast, random, crops: false })
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec {
        classes: &["CenterCrop", "RandomCrop", "Resizing"],
        keras: &[2, 3],
        build: |s| boxed(Resizing { crops: s.class() != "Resizing", ..s.read()? }),
    },
    LayerSpec { classes: &["RandomHeight", "RandomWidth"], keras: &[2], build: |s| boxed(random(s)?) },
];

impl Layer for Resizing {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input_from_rank(inputs, 0, 3)?;
        let from_back = if self.data_format == DataFormat::ChannelsLast { 3 } else { 2 };
        let mut y = call.seen(x);
        for (i, size) in [self.height, self.width].into_iter().enumerate() {
            let axis = x.rank() - from_back + i;
            let dim = match (size, self.random[i]) {
                (Some(n), _) => Dim::Known(n),
                (None, false) => continue,
                (None, true) => Dim::symbol(&format!("{}_d{axis}", call.facts.name)),
            };
            y = y.replaced(axis, dim);
        }
        Ok(vec![y])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (mut x, shape) = (run.x(0), run.out_shape());
        if self.random != [false, false] {
            return run.not_modelled();
        }
        if !self.crops {
            let y = run.interpolate(&x, self.data_format, shape);
            return run.finish(&y);
        }
        for (axis, size) in shape.iter().enumerate() {
            if x.shape.get(axis).is_some_and(|whole| size < whole) {
                x = x.narrow(run.l, axis, 0, *size);
            }
        }
        if x.shape[..] != *shape {
            x = run.interpolate(&x, self.data_format, shape);
        }
        run.finish(&x);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let (mut x, shape) = (run.x(0), run.out_shape(0).to_vec());
        // What is larger than the crop is cut (center_crop.py, random_crop.py), what is smaller is made larger.
        let cut: Vec<u64> = run.shape(x).iter().zip(&shape).map(|(whole, size)| *size.min(whole)).collect();
        if self.crops && run.shape(x) != cut {
            x = run.moved("StridedSlice", x, &cut);
        }
        if !self.crops || cut != shape {
            x = run.resize("ResizeBilinear", x, &shape);
        }
        run.finish(x);
    }
}
