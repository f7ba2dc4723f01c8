//! Reshape, Permute, RepeatVector. Keras 2 and 3.
//!
//! keras/src/layers/reshaping/reshape.py, permute.py, repeat_vector.py. The batch axis stays; one dim of a reshape may be open.

use super::LayerSpec;
use crate::layer::{Call, Layer};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{Dim, OpError};
use serde::Deserialize;

/// The same elements in another shape.
#[derive(Clone, Debug, Deserialize)]
pub struct Reshape {
    /// The shape without the batch; minus one for what is left.
    pub target_shape: Vec<Option<i64>>,
}

/// Axes in another order.
#[derive(Clone, Debug, Deserialize)]
pub struct Permute {
    /// Axes, counted from one without the batch.
    pub dims: Vec<u64>,
}

/// A vector repeated along a new axis.
#[derive(Clone, Debug, Deserialize)]
pub struct RepeatVector {
    /// How often.
    #[serde(deserialize_with = "crate::config::positive")]
    pub n: u64,
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec { classes: &["Permute"], keras: &[2, 3], build: |s| boxed(s.read::<Permute>()?) },
    LayerSpec { classes: &["RepeatVector"], keras: &[2, 3], build: |s| boxed(s.read::<RepeatVector>()?) },
    LayerSpec { classes: &["Reshape"], keras: &[2, 3], build: |s| boxed(s.read::<Reshape>()?) },
];

/// Dims of `from` in the shape `target`, of which one may be open (`None` or negative).
pub(crate) fn reshaped(from: &[Dim], target: &[Option<i64>]) -> Result<Vec<Dim>, OpError> {
    let total = spec::product(from)?;
    let sizes: Vec<Option<u64>> = target.iter().map(|d| d.and_then(|d| u64::try_from(d).ok())).collect();
    let known = sizes.iter().flatten().try_fold(1_u64, |a, b| spec::times(a, *b))?;
    let open = sizes.iter().filter(|s| s.is_none()).count();
    let mismatch = || {
        OpError::mismatch(
            format!("{total} elements"),
            format!("a target of {known}{}", if open > 0 { " times -1" } else { "" }),
        )
    };
    let left = match open {
        0 if total.known().is_some_and(|t| t != known) => return Err(mismatch()),
        0 => Dim::Known(1),
        1 => match total.div_exact(&Dim::Known(known)) {
            Some(left) => left,
            None if total.known().is_some() => return Err(mismatch()),
            None => total.div_floor(&Dim::Known(known)).ok_or_else(mismatch)?,
        },
        _ => return Err(OpError::mismatch("at most one open size", format!("{open}"))),
    };
    Ok(sizes.into_iter().map(|s| s.map_or(left.clone(), Dim::Known)).collect())
}

impl Layer for Reshape {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input_from_rank(inputs, 0, 1)?;
        let dims = reshaped(&x.dims()[1..], &self.target_shape)?;
        Ok(vec![call.seen(x).with([x.dims()[0].clone()].into_iter().chain(dims))])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let x = run.x(0);
        run.finish(&x);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let (x, shape) = (run.x(0), run.out_shape(0));
        let y = run.view("Reshape", x, shape);
        run.finish(y);
    }
}

impl Layer for Permute {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input_of_rank(inputs, 0, self.dims.len() + 1)?;
        let at = |axis: &u64| {
            usize::try_from(*axis).ok().filter(|a| *a > 0).and_then(|a| x.dims().get(a)).cloned()
        };
        let dims = self.dims.iter().map(at).collect::<Option<Vec<_>>>();
        let dims = dims.ok_or_else(|| OpError::mismatch("axes from 1", format!("{:?}", self.dims)))?;
        Ok(vec![call.seen(x).with([x.dims()[0].clone()].into_iter().chain(dims))])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let x = run.x(0);
        let axis = |axis: &u64| usize::try_from(*axis).unwrap_or(usize::MAX);
        let order: Vec<usize> = [0].into_iter().chain(self.dims.iter().map(axis)).collect();
        let y = x.permute(run.l, &order);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let (x, shape) = (run.x(0), run.out_shape(0));
        let y = run.moved("Transpose", x, shape);
        run.finish(y);
    }
}

impl Layer for RepeatVector {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input_of_rank(inputs, 0, 2)?;
        Ok(vec![call.seen(x).with([x.dims()[0].clone(), Dim::Known(self.n), x.dims()[1].clone()])])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (x, shape) = (run.x(0), run.out_shape());
        let y = x.reshape(run.l, &[shape[0], 1, shape[2]]).expand(run.l, shape);
        let y = run.contiguous(&y);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let (x, shape) = (run.x(0), run.out_shape(0));
        let y = run.broadcast_to(x, shape);
        run.finish(y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_open_size_takes_what_is_left() {
        let known = |n| Dim::Known(n);
        assert_eq!(reshaped(&[known(6), known(4)], &[Some(-1), Some(8)]).unwrap(), [known(3), known(8)]);
        assert!(reshaped(&[known(6)], &[Some(4)]).is_err());
        assert!(reshaped(&[known(6)], &[Some(-1), Some(4)]).is_err());
        assert!(reshaped(&[known(6)], &[Some(-1), None]).is_err());
        assert_eq!(
            reshaped(&[Dim::symbol("t"), known(4)], &[Some(-1), Some(2)]).unwrap()[0].to_string(),
            "2*t"
        );
    }
}
