//! Augmentations of images, which keep the shape. Keras 3; some Keras 2.
//!
//! keras/src/layers/preprocessing/image_preprocessing/*.py (3.15). Each gives a new batch, and while it works holds copies of the images,
//! masks, coordinates. How much, in bytes a pixel of three channels, was counted by running each layer on Keras' PyTorch backend for batches
//! and sizes that tell the parts from each other; TensorFlow's graph, which works in place and moves pixels in one kernel, in traced steps.
//! Images need no gradient; where one flows through, what was not composed here is a bound.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::{Source, boxed};
use crate::run::Run;
use crate::spec::Spec;
use crate::torch::Torch;
use memfit_graph::ops::Traced;
use memfit_graph::{Call as Aten, DType, Grad, OpError, OutDtype, Place, elements};
use serde_json::Value;

/// What a layer holds at most beside its input, its output among it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    /// Bytes a pixel in float32.
    full: u64,
    /// Bytes a pixel in half precision, where most compute in float32 and cast.
    half: u64,
    /// Bytes a pixel of one image: `map_coordinates` takes one after the other.
    single: u64,
}

const fn held(full: u64, half: u64, single: u64) -> Held {
    Held { full, half, single }
}

/// Every class with what it holds.
const HELD: &[(&str, Held)] = &[
    ("AugMix", held(108, 54, 288)),
    ("AutoContrast", held(39, 36, 0)),
    ("CLAHE", held(12339, 12333, 0)),
    ("ContrastLimitedAdaptiveHistogramEqualization", held(12339, 12333, 0)),
    ("CutMix", held(25, 25, 0)),
    ("Equalization", held(45, 41, 0)),
    ("MixUp", held(48, 24, 0)),
    ("RandAugment", held(96, 84, 288)),
    ("RandomBrightness", held(12, 30, 0)),
    ("RandomColorDegeneration", held(28, 38, 0)),
    ("RandomColorJitter", held(80, 80, 0)),
    ("RandomContrast", held(24, 36, 0)),
    ("RandomElasticTransform", held(32, 36, 64)),
    ("RandomErasing", held(37, 37, 0)),
    ("RandomFlip", held(36, 18, 0)),
    ("RandomGaussianBlur", held(36, 42, 0)),
    ("RandomGrayscale", held(16, 8, 0)),
    ("RandomHue", held(68, 68, 0)),
    ("RandomInvert", held(24, 12, 0)),
    ("RandomPerspective", held(24, 14, 5)),
    ("RandomPosterization", held(15, 9, 0)),
    ("RandomRotation", held(84, 78, 288)),
    ("RandomSaturation", held(56, 28, 0)),
    ("RandomSharpness", held(36, 42, 0)),
    ("RandomShear", held(84, 78, 288)),
    ("RandomTranslation", held(84, 78, 288)),
    ("RandomZoom", held(84, 78, 288)),
    ("Solarization", held(39, 36, 0)),
];

/// How many batches TensorFlow's graph holds at most beside its input, of those that hold more than their output.
const GRAPH: &[(&str, u64)] = &[
    ("AugMix", 6),
    ("CLAHE", 263),
    ("ContrastLimitedAdaptiveHistogramEqualization", 263),
    ("MixUp", 2),
    ("RandAugment", 5),
    ("RandomColorJitter", 2),
    ("RandomElasticTransform", 2),
    ("RandomFlip", 2),
    ("RandomHue", 2),
    ("RandomSaturation", 2),
    ("Solarization", 2),
];

/// The parts of a `RandomColorJitter`, which does nothing without them.
const JITTERS: &[&str] = &["brightness_factor", "contrast_factor", "hue_factor", "saturation_factor"];

/// A flip along one axis, of two that there are.
const ONE_FLIP: Held = held(24, 12, 0);

/// Bytes a pixel of three channels in float32.
const PIXEL: u64 = 12;

/// An augmentation.
#[derive(Clone, Debug)]
pub struct Augmentation {
    /// Whether it adds a number to each image, then clips (random_brightness.py, `transform_images`).
    shifts: bool,
    /// Whether it draws, which it does in training only.
    draws: bool,
    held: Held,
    /// Batches in TensorFlow's graph.
    graph: u64,
    /// Whether it changes anything.
    acts: bool,
}

fn read(source: &Source<'_>) -> Result<Augmentation, String> {
    let class = source.class();
    let config = &source.object.config;
    let found = HELD.iter().find(|(name, _)| *name == class);
    let mode = config.get("mode").and_then(Value::as_str);
    let held = match (found, class, mode) {
        (_, "RandomFlip", Some("horizontal" | "vertical")) => ONE_FLIP,
        (Some((_, held)), ..) => *held,
        (None, ..) => return Err(format!("expected an augmentation, found {class}")),
    };
    let always = ["AutoContrast", "CLAHE", "ContrastLimited", "Equalization", "Solarization"];
    let draws = !always.iter().any(|name| class.starts_with(name));
    let graph = GRAPH.iter().find(|(name, _)| *name == class && held != ONE_FLIP).map_or(1, |(_, n)| *n);
    let is_given = |name: &&str| config.get(*name).is_some_and(|v| !v.is_null() && v.as_f64() != Some(0.0));
    Ok(Augmentation {
        shifts: class == "RandomBrightness",
        draws,
        held,
        graph,
        acts: class != "RandomColorJitter" || JITTERS.iter().any(is_given),
    })
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec {
        classes: &[
            "AugMix",
            "AutoContrast",
            "CLAHE",
            "ContrastLimitedAdaptiveHistogramEqualization",
            "CutMix",
            "Equalization",
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
        build: |s| boxed(read(s)?),
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
        build: |s| boxed(read(s)?),
    },
];

impl Augmentation {
    /// Bytes beside input and output for a batch of this shape.
    fn scratch(&self, shape: &[u64], is_half: bool) -> u64 {
        let all = elements(shape);
        let batch = shape.first().filter(|_| shape.len() > 3).copied().unwrap_or(1);
        let a_pixel = if is_half { self.held.half } else { self.held.full };
        let output = if is_half { PIXEL / 2 } else { PIXEL };
        let of = |bytes: u64, n: u64| bytes.saturating_mul(n).div_ceil(3);
        of(a_pixel.saturating_sub(output), all).saturating_add(of(self.held.single, all / batch.max(1)))
    }
}

impl Layer for Augmentation {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        super::as_given(call, inputs)
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let x = run.x(0);
        if !self.acts || self.draws && !run.l.training {
            return run.finish(&x);
        }
        if x.requires_grad || run.tensors() > 1 {
            return run.not_modelled();
        }
        let scratch = self.scratch(&x.shape, run.dtype().is_half());
        let call =
            Aten::new("where").input(x.operand, Grad::None).output(&x.shape, OutDtype::Like(0), Place::New);
        let y = Traced::of(run.l, call.scratch(&[scratch], DType::Uint8), &x.shape, &[]);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let x = run.x(0);
        if run.tensors() > 1 {
            return run.not_modelled();
        }
        if !self.acts || self.draws && !run.compute.training {
            return run.finish(x);
        }
        if self.shifts {
            let shifted = run.shifted("AddV2", x);
            let y = run.clipped(shifted);
            return run.finish(y);
        }
        if run.is_trained(x) {
            return run.not_modelled();
        }
        let (shape, dtype) = (run.shape(x).to_vec(), run.dtype(x));
        let mut inputs = vec![x];
        if self.graph > 1 {
            let more = [&[self.graph - 1][..], &shape].concat();
            inputs.push(run.make("Augment", &[x], &more, dtype, None));
        }
        let y = run.make("Augment", &inputs, &shape, dtype, None);
        run.finish(y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_grows_with_the_batch_and_one_with_an_image() {
        let of = |class: &str| {
            let (_, held) = HELD.iter().find(|(name, _)| *name == class).unwrap();
            Augmentation { shifts: false, draws: true, held: *held, graph: 1, acts: true }
        };
        let pixels = 48 * 64;
        let turned = of("RandomRotation");
        assert_eq!(turned.scratch(&[8, 48, 64, 3], false), pixels * (8 * (84 - 12) + 288));
        assert_eq!(turned.scratch(&[48, 64, 3], false), pixels * (84 - 12 + 288));
        assert_eq!(of("RandomBrightness").scratch(&[8, 48, 64, 3], false), 0);
        assert_eq!(of("RandomBrightness").scratch(&[8, 48, 64, 3], true), pixels * 8 * 24);
    }

    #[test]
    fn every_class_has_a_row() {
        for class in SPECS.iter().flat_map(|spec| spec.classes) {
            assert!(HELD.iter().any(|(name, _)| name == class), "{class}");
        }
    }
}
