//! Softmax. Keras 2 and 3.
//!
//! keras/src/layers/activations/softmax.py: over an axis, or over several with a `logsumexp`. Keras 3 sets what a mask hides to a large
//! negative number before and to zero after; Keras 2 adds the number.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::kernels::Wire;
use memfit_graph::{DType, OpError};
use serde::Deserialize;

/// A softmax.
#[derive(Clone, Debug, Deserialize)]
pub struct Softmax {
    /// The axis or axes that sum to one.
    #[serde(default = "super::last_axis", deserialize_with = "super::axes")]
    pub axis: Vec<i64>,
}

/// How it is found.
pub const SPECS: &[LayerSpec] =
    &[LayerSpec { classes: &["Softmax"], keras: &[2, 3], build: |s| boxed(s.read::<Softmax>()?) }];

/// The softmax over these axes: over several it is `exp(x - logsumexp(x))`.
pub(super) fn over(run: &mut Run<'_, '_>, x: Wire, axes: &[i64]) -> Wire {
    if axes.len() < 2 {
        return run.softmax(x);
    }
    let mut rows = run.shape(x).to_vec();
    super::ones_at(&mut rows, axes);
    let sum = run.log_sum_exp(x, &rows, &rows);
    let difference = run.binary("Sub", x, sum);
    run.unary("Exp", difference)
}

impl Layer for Softmax {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input(inputs, 0)?;
        self.axis.iter().try_for_each(|axis| x.axis(*axis).map(|_| ()))?;
        Ok(vec![call.seen(x)])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let mut x = run.x(0);
        let mask = run.argument(1, "mask").map(|mask| run.condition(&mask));
        if let Some(mask) = &mask {
            x = run.choose(mask, &[&x]);
        }
        let rank = i64::try_from(x.rank()).unwrap_or(0);
        let axes = self.axis.iter().filter_map(|a| usize::try_from(a.rem_euclid(rank.max(1))).ok());
        let mut y = match self.axis.len() {
            0 | 1 => run.softmax("_softmax", &x),
            _ => run.softmax_over(&x, &axes.collect::<Vec<_>>()),
        };
        if let Some(mask) = &mask {
            y = run.choose(mask, &[&y]);
        }
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let mut x = run.x(0);
        let Some(mask) = run.argument(1, "mask") else {
            let y = over(run, x, &self.axis);
            return run.finish(y);
        };
        if !run.is_keras3() {
            let mask = run.cast_mask(mask, x);
            x = run.binary("AddV2", x, mask);
            let y = over(run, x, &self.axis);
            return run.finish(y);
        }
        let is_bool = run.dtype(mask) == DType::Bool;
        let mask = if is_bool { mask } else { run.test("Greater", mask) };
        x = run.select(mask, x);
        let y = over(run, x, &self.axis);
        let y = run.select(mask, y);
        run.finish(y);
    }
}
