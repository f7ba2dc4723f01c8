//! Operations on images (keras/src/ops/image.py): other colours, other borders, moved pixels.

use super::elementwise::same;
use super::{Operation, Rule, operand};
use crate::layer::Call;
use crate::spatial::DataFormat;
use crate::spec::Spec;
use memfit_graph::{Dim, OpError};

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["AffineTransform", "ElasticTransform", "HSVToRGB", "PerspectiveTransform", "RGBToHSV"], same),
    (&["RGBToGrayscale"], grayscale),
    (&["SobelEdges"], edges),
    (&["CropImages"], crop),
    (&["PadImages"], pad),
];

/// The axes of height and width of one image or a batch of them.
fn sides(op: &Operation, x: &Spec) -> Result<[usize; 2], OpError> {
    match (x.rank(), op.data_format()) {
        (rank @ (3 | 4), DataFormat::ChannelsFirst) => Ok([rank - 2, rank - 1]),
        (rank @ (3 | 4), DataFormat::ChannelsLast) => Ok([rank - 3, rank - 2]),
        (rank, _) => Err(OpError::mismatch("an image of 3 or 4 axes", format!("{rank} axes"))),
    }
}

fn grayscale(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let [height, width] = sides(op, x)?;
    let channels = match op.data_format() {
        DataFormat::ChannelsFirst => height - 1,
        DataFormat::ChannelsLast => width + 1,
    };
    Ok(vec![x.replaced(channels, Dim::Known(1))])
}

/// Both directions, in an axis of their own.
fn edges(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    Ok(vec![x.with(x.dims().iter().cloned().chain([Dim::Known(2)]))])
}

fn crop(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    resized(op, call, inputs, "cropping", -1)
}

fn pad(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    resized(op, call, inputs, "padding", 1)
}

/// To the size that is given, or with so much more (or less) at both ends.
fn resized(
    op: &Operation,
    call: &Call<'_>,
    inputs: &[Spec],
    what: &str,
    sign: i64,
) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let mut y = x.clone();
    let ends = [("target_height", ["top", "bottom"]), ("target_width", ["left", "right"])];
    for (axis, (target, ends)) in sides(op, x)?.into_iter().zip(ends) {
        let given = |name: &str| op.integer(call, usize::MAX, &[name]);
        let size = match given(target) {
            Some(target) => {
                Some(u64::try_from(target).map(Dim::Known).map_err(|_| OpError::mismatch("a size", target))?)
            }
            None => {
                let [a, b] = ends.map(|end| given(&format!("{end}_{what}")));
                a.zip(b)
                    .and_then(|(a, b)| a.checked_add(b)?.checked_mul(sign))
                    .map(|more| x.dims()[axis].offset(more))
            }
        };
        let Some(size) = size else { return Ok(Vec::new()) };
        y = y.replaced(axis, size);
    }
    Ok(vec![y])
}
