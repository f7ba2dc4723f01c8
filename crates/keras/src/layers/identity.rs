//! Layers that give what they are given: Identity, Masking, ActivityRegularization, UnitNormalization.
//!
//! keras/src/layers/core/identity.py, core/masking.py, regularization/activity_regularization.py, normalization/unit_normalization.py.
//! Their shapes and dtypes are the input's; what they do to the elements differs, so each keeps its class.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::{Source, boxed};
use crate::run::Run;
use crate::spec::Spec;
use crate::torch::Torch;
use memfit_graph::ops::Traced;
use memfit_graph::{Call as Aten, DType, Grad, OpError, OutDtype, Place, View};
use serde::Deserialize;

/// A layer that keeps the shape and makes no variables.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The class: what is done to the elements.
    pub class: String,
    /// The axes along which vectors get the length one.
    pub axes: Vec<i64>,
    /// Whether a sum of squares of the elements is added to the loss.
    pub penalised: bool,
}

fn read(source: &Source<'_>) -> Result<Identity, String> {
    #[derive(Deserialize)]
    struct Config {
        #[serde(default = "super::last_axis", deserialize_with = "super::axes")]
        axis: Vec<i64>,
        #[serde(default)]
        l2: Option<f64>,
    }
    let Config { axis, l2 } = source.read()?;
    Ok(Identity { class: source.class().to_owned(), axes: axis, penalised: l2.is_some_and(|l2| l2 != 0.0) })
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec {
        classes: &["ActivityRegularization", "Identity", "Masking", "NoOp", "UnitNormalization"],
        keras: &[2, 3],
        build: |s| boxed(read(s)?),
    },
    LayerSpec {
        classes: &["MaxNumBoundingBoxes"],
        keras: &[3],
        build: |s| boxed(Identity { class: s.class().to_owned(), axes: Vec::new(), penalised: false }),
    },
];

impl Layer for Identity {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        // An identity passes a structure on; the others are called on one tensor.
        super::as_given(call, inputs)
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let x = run.x(0);
        let rank = x.rank();
        let y = match (self.class.as_str(), &self.axes[..]) {
            ("Masking", _) => {
                let differs = run.test(&[&x], &x.shape);
                let mut rows = x.shape.clone();
                rows.last_mut().into_iter().for_each(|d| *d = 1);
                let any = Aten::new("any").input(differs.operand, Grad::None);
                let any = any.output(&rows, OutDtype::Is(DType::Bool), Place::New);
                let counts = Traced::of(run.l, any, &rows, &[]);
                run.choose(&counts, &[&x])
            }
            ("UnitNormalization", [axis]) => run.unit(&x, super::position(rank, *axis)),
            ("UnitNormalization", _) => return run.not_modelled(),
            // activity_regularization.py, regularizers.py, `L1L2`: a term of the loss, whose gradient meets that of the output.
            ("ActivityRegularization", _) if self.penalised && run.l.training => {
                let square = run.square(&x);
                let sum = run.sum(&square, &[]);
                let call = Aten::new("alias").input(x.operand, Grad::Pass).input(sum.operand, Grad::New);
                let call = call.output(&x.shape, OutDtype::Like(0), Place::View(0, View::Alias));
                Traced::of(run.l, call, &x.shape, &[&x, &sum])
            }
            _ => {
                for i in 1..run.tensors() {
                    let x = run.x(i);
                    x.bind(run.l, i);
                }
                x
            }
        };
        run.finish(&y);
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
        if self.class == "UnitNormalization" {
            // ops/nn.py, `_normalize`.
            let x = run.x(0);
            let mut rows = run.shape(x).to_vec();
            super::ones_at(&mut rows, &self.axes);
            let square = run.unary("Square", x);
            let sum = run.reduce("Sum", square, &rows);
            let inverse = run.unary("Rsqrt", sum);
            let inverse = run.clip_side("Minimum", inverse);
            let y = run.binary("Mul", x, inverse);
            return run.finish(y);
        }
        for i in 0..run.tensors() {
            let x = run.x(i);
            run.bind(i, x);
        }
    }
}
