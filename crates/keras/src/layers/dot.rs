//! Dot. Keras 2 and 3.
//!
//! keras/src/layers/merging/dot.py: a product over one axis of each of two tensors, sample by sample.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{Dim, OpError, elements};
use serde::Deserialize;

/// A product of two tensors.
#[derive(Clone, Debug, Deserialize)]
pub struct Dot {
    /// The axis of both, or of each.
    #[serde(deserialize_with = "super::axes")]
    pub axes: Vec<i64>,
    /// Whether both are normalized before.
    #[serde(default)]
    pub normalize: bool,
}

/// How it is found.
pub const SPECS: &[LayerSpec] =
    &[LayerSpec { classes: &["Dot"], keras: &[2, 3], build: |s| boxed(s.read::<Dot>()?) }];

impl Layer for Dot {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let (x, y) = (spec::input_from_rank(inputs, 0, 2)?, spec::input_from_rank(inputs, 1, 2)?);
        let axis = |i: usize| self.axes.get(i).or(self.axes.first()).copied().unwrap_or(-1);
        let (a, b) = (x.axis(axis(0))?, y.axis(axis(1))?);
        if let (Some(n), Some(m)) = (x.dims()[a].known(), y.dims()[b].known())
            && n != m
        {
            return Err(OpError::mismatch("axes of the same size", format!("{n} and {m}")));
        }
        let left = x.dims().iter().enumerate().filter(|(i, _)| *i != a);
        let right = y.dims().iter().enumerate().filter(|(i, _)| *i != b && *i != 0);
        let mut dims: Vec<Dim> = left.chain(right).map(|(_, d)| d.clone()).collect();
        if dims.len() == 1 {
            dims.push(Dim::Known(1));
        }
        Ok(vec![call.output(dims)])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let [x, y] = [0, 1].map(|i| {
            let x = run.x(i);
            let axis = self.axes.get(i).or(self.axes.first()).copied().unwrap_or(-1);
            let axis = super::position(x.rank(), axis);
            let x = if self.normalize { run.unit(&x, axis) } else { x };
            // The axis that is summed goes last in the first, behind the batch in the second; the others become one.
            let mut order: Vec<usize> = (0..x.rank()).filter(|at| *at != axis).collect();
            order.insert(if i == 0 { order.len() } else { 1 }, axis);
            let (batch, summed) = (x.shape[0], x.shape[axis]);
            let rest = elements(&x.shape).checked_div(batch.saturating_mul(summed)).unwrap_or(0);
            let shape = if i == 0 { [batch, rest, summed] } else { [batch, summed, rest] };
            x.permute(run.l, &order).reshape(run.l, &shape)
        });
        let z = run.matmul(&x, &y);
        run.finish(&z);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let [x, y] = [0, 1].map(|i| {
            let mut x = run.x(i);
            let mut shape = run.shape(x).to_vec();
            let axis = self.axes.get(i).or(self.axes.first()).copied().unwrap_or(-1);
            let axis = super::position(shape.len(), axis).min(shape.len().saturating_sub(1));
            if self.normalize {
                let mut rows = shape.clone();
                rows.get_mut(axis).into_iter().for_each(|d| *d = 1);
                x = run.unit(x, &rows);
            }
            // The axis that is summed goes last in the first, behind the batch in the second.
            let to = if i == 0 { shape.len().saturating_sub(1) } else { 1 };
            if shape.len() > 2 && axis != to {
                let size = shape.remove(axis);
                shape.insert(to, size);
                x = run.moved("Transpose", x, &shape);
            }
            x
        });
        let shape = run.out_shape(0);
        let z = run.matmul("BatchMatMulV2", x, y, shape);
        run.finish(z);
    }
}
