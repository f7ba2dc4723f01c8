//! Add, Average, Maximum, Minimum, Multiply, Subtract, and CustomScaleLayer of keras.applications' InceptionResNetV2. Keras 2 and 3.
//!
//! keras/src/layers/merging/base_merge.py: inputs of the same rank broadcast; of a different one, a short one gets ones after its
//! batch axis. `Concatenate` and `Dot` have files of their own.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::Spec;
use crate::torch::Torch;
use memfit_graph::{DType, Dim, OpError, Shape};

/// What is made of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Merging {
    Add,
    Average,
    Maximum,
    Minimum,
    Multiply,
    Subtract,
    /// The first, and the second times a constant.
    ScaledAdd,
}

/// One tensor from many, element by element.
#[derive(Clone, Copy, Debug)]
pub struct Merge {
    /// What is made of them.
    pub merging: Merging,
}

const fn of(class: &'static [&'static str], build: super::Build) -> LayerSpec {
    LayerSpec { classes: class, keras: &[2, 3], build }
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    of(&["Add"], |_| boxed(Merge { merging: Merging::Add })),
    of(&["Average"], |_| boxed(Merge { merging: Merging::Average })),
    of(&["CustomScaleLayer"], |_| boxed(Merge { merging: Merging::ScaledAdd })),
    of(&["Maximum"], |_| boxed(Merge { merging: Merging::Maximum })),
    of(&["Minimum"], |_| boxed(Merge { merging: Merging::Minimum })),
    of(&["Multiply"], |_| boxed(Merge { merging: Merging::Multiply })),
    of(&["Subtract"], |_| boxed(Merge { merging: Merging::Subtract })),
];

/// The shape with ones after the batch axis up to `rank`.
fn widened(shape: &Shape, rank: usize) -> Shape {
    let mut shape = shape.clone();
    while shape.rank() < rank {
        let at = shape.rank().min(1);
        shape.insert(at, Dim::Known(1));
    }
    shape
}

impl Layer for Merge {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let rank = inputs.iter().map(Spec::rank).max().ok_or(OpError::MissingInput { index: 0 })?;
        let mut shape = Shape::from_iter(vec![Dim::Known(1); rank]);
        let mut dtype: Option<DType> = None;
        for (i, input) in inputs.iter().enumerate() {
            let next = widened(&input.shape, rank);
            shape = shape.broadcast(&next).ok_or_else(|| {
                OpError::input(i, format!("a shape that broadcasts with {shape}"), format!("shape {next}"))
            })?;
            let seen = call.cast(input.dtype);
            dtype = Some(dtype.map_or(seen, |d| d.promote(seen)));
        }
        Ok(vec![Spec::new(shape, dtype.unwrap_or(call.compute()))])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        if self.merging == Merging::ScaledAdd {
            return run.not_modelled();
        }
        let mut y = run.x(0);
        for i in 1..run.tensors() {
            let next = run.x(i);
            y = match self.merging {
                Merging::Maximum | Merging::Minimum => run.keeping_both(&y, &next),
                Merging::Multiply => run.mul(&y, &next),
                _ => run.add(&y, &next),
            };
        }
        if self.merging == Merging::Average {
            y = y.scale(run.l, "div");
        }
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let name = match self.merging {
            Merging::Add | Merging::Average | Merging::ScaledAdd => "AddV2",
            Merging::Maximum => "Maximum",
            Merging::Minimum => "Minimum",
            Merging::Multiply => "Mul",
            Merging::Subtract => "Sub",
        };
        let mut y = run.x(0);
        for i in 1..run.tensors() {
            let mut next = run.x(i);
            if self.merging == Merging::ScaledAdd {
                next = run.scaled("Mul", next);
            }
            y = run.binary(name, y, next);
        }
        if self.merging == Merging::Average {
            y = run.scaled("RealDiv", y);
        }
        run.finish(y);
    }
}
