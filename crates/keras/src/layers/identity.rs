//! Layers that give what they are given: Identity, Masking, ActivityRegularization, UnitNormalization, augmentations of images.
//!
//! keras/src/layers/core/identity.py, core/masking.py, regularization/activity_regularization.py, normalization/unit_normalization.py,
//! preprocessing/image_preprocessing/*.py. Their shapes and dtypes are the input's; what they do to the elements differs, so each
//! keeps its class.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::Spec;
use crate::torch::Torch;
use memfit_graph::{DType, OpError};

/// A layer that keeps the shape and makes no variables.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The class: what is done to the elements.
    pub class: String,
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec {
        classes: &["ActivityRegularization", "Identity", "Masking", "NoOp", "UnitNormalization"],
        keras: &[2, 3],
        build: |s| boxed(Identity { class: s.class().to_owned() }),
    },
    LayerSpec {
        classes: &[
            "AugMix",
            "AutoContrast",
            "CLAHE",
            "ContrastLimitedAdaptiveHistogramEqualization",
            "CutMix",
            "Equalization",
            "MaxNumBoundingBoxes",
            "MixUp",
            "RandAugment",
            "RandomColorDegeneration",
            "RandomColorJitter",
            "RandomElasticTransform",
            "RandomErasing",
            "RandomGaussianBlur",
            "RandomGrayscale",
            "RandomHue",
            "RandomInvert",
            "RandomPerspective",
            "RandomPosterization",
            "RandomSaturation",
            "RandomSharpness",
            "RandomShear",
            "Solarization",
        ],
        keras: &[3],
        build: |s| boxed(Identity { class: s.class().to_owned() }),
    },
    LayerSpec {
        classes: &[
            "RandomBrightness",
            "RandomContrast",
            "RandomFlip",
            "RandomRotation",
            "RandomTranslation",
            "RandomZoom",
        ],
        keras: &[2, 3],
        build: |s| boxed(Identity { class: s.class().to_owned() }),
    },
];

impl Layer for Identity {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        if inputs.is_empty() {
            return Err(OpError::MissingInput { index: 0 });
        }
        // An identity passes a structure on; the others are called on one tensor.
        Ok(inputs.iter().map(|s| call.seen(s)).collect())
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let x = run.x(0);
        run.finish(&x);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        if self.class == "Masking" {
            // Positions all of whose features have the value are set to zero.
            let x = run.x(0);
            let mut rows = run.shape(x).to_vec();
            rows.last_mut().into_iter().for_each(|d| *d = 1);
            let differs = run.test("NotEqual", x);
            let counts = run.make("Any", &[differs], &rows, DType::Bool, None);
            let y = run.select(counts, x);
            return run.finish(y);
        }
        for i in 0..run.tensors() {
            let x = run.x(i);
            run.bind(i, x);
        }
    }
}
