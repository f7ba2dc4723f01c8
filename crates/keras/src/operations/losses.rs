//! Losses and scores between two tensors.
//!
//! keras/src/ops/nn.py: `BinaryCrossentropy`, `CategoricalCrossentropy`, `SparseCategoricalCrossentropy`, `CTCLoss`, `CTCDecode`,
//! `PSNR`; keras/src/ops/math.py: `InTopK`; keras/src/ops/image.py: `SSIM`; keras/src/ops/numpy.py: `AllClose`.

use super::elementwise::floating;
use super::{Operation, Rule};
use crate::layer::Call;
use crate::spec::Spec;
use memfit_graph::{DType, Dim, OpError, Shape};

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["BinaryCrossentropy"], each),
    (&["CategoricalCrossentropy", "SparseCategoricalCrossentropy"], classes),
    (&["CTCLoss"], sequences),
    (&["CTCDecode"], decoded),
    (&["PSNR", "SSIM"], images),
    (&["InTopK"], hits),
    (&["AllClose", "Allclose"], one),
];

/// What is compared: target and output, or two tensors of equal standing.
fn pair(op: &Operation, call: &Call<'_>, inputs: &[Spec], names: [&str; 2]) -> Option<[Spec; 2]> {
    op.operands(call, inputs, &names)?.try_into().ok()
}

fn each(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(pair(op, call, inputs, ["target", "output"]).into_iter().map(|[_, y]| y).collect())
}

/// One number for all classes.
fn classes(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let Some([_, mut y]) = pair(op, call, inputs, ["target", "output"]) else { return Ok(Vec::new()) };
    let axis = y.axis(op.integer(call, 3, &["axis"]).unwrap_or(-1))?;
    y.shape.remove(axis);
    Ok(vec![y])
}

fn sequences(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let Some([target, output]) = pair(op, call, inputs, ["target", "output"]) else { return Ok(Vec::new()) };
    let dtype = floating(output.dtype).promote(DType::Float32);
    Ok(target.dims().first().map(|n| Spec { dtype, ..output.with([n.clone()]) }).into_iter().collect())
}

/// The best paths, and how likely each is.
fn decoded(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let Some([x, _]) = pair(op, call, inputs, ["inputs", "sequence_lengths"]) else { return Ok(Vec::new()) };
    let [batch, length, ..] = x.dims() else { return Ok(Vec::new()) };
    let greedy = op.parameter(call, usize::MAX, &["strategy"]).is_none_or(|s| s.as_str() == Some("greedy"));
    let paths = op.integer(call, usize::MAX, &["top_paths"]).filter(|_| !greedy).unwrap_or(1);
    let paths = Dim::Known(u64::try_from(paths).map_err(|_| OpError::mismatch("a number of paths", paths))?);
    let tokens = x.with([paths.clone(), batch.clone(), length.clone()]);
    let dtype = floating(x.dtype).promote(DType::Float32);
    Ok(vec![Spec { dtype: DType::Int32, ..tokens }, Spec { dtype, ..x.with([batch.clone(), paths]) }])
}

/// One number for all images, of `SSIM` one for each.
fn images(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let names = if op.class == "SSIM" { ["image1", "image2"] } else { ["x1", "x2"] };
    let Some([x, _]) = pair(op, call, inputs, names) else { return Ok(Vec::new()) };
    let each = op.class == "SSIM" && x.rank() == 4;
    Ok(vec![x.with(x.dims()[..usize::from(each)].iter().cloned())])
}

fn hits(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let both = pair(op, call, inputs, ["targets", "predictions"]);
    Ok(both.into_iter().map(|[targets, _]| Spec { dtype: DType::Bool, ..targets }).collect())
}

fn one(_: &Operation, _: &Call<'_>, _: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(vec![Spec::new(Shape::scalar(), DType::Bool)])
}
