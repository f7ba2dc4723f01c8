//! Fourier transforms, and the windows of a sequence. A complex tensor is a pair of real ones.
//!
//! keras/src/ops/math.py: `ExtractSequences`, `FFT`, `FFT2`, `IFFT2`, `RFFT`, `IRFFT`, `STFT`, `ISTFT`, `ViewAsComplex`, `ViewAsReal`.

use super::{Operation, Rule, operand};
use crate::layer::Call;
use crate::spec::{self, Spec};
use memfit_graph::{DType, Dim, OpError};

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (&["FFT", "FFT2", "IFFT2"], pair),
    (&["RFFT"], half),
    (&["IRFFT"], whole),
    (&["STFT"], frames),
    (&["ISTFT"], signal),
    (&["ExtractSequences"], sequences),
    (&["ViewAsComplex"], complex),
    (&["ViewAsReal"], real),
];

/// A positive number of the config.
fn size(op: &Operation, call: &Call<'_>, position: usize, name: &str) -> Option<u64> {
    op.integer(call, position, &[name]).and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0)
}

/// The last axis, or the last two, replaced by these.
fn ended(x: &Spec, gone: usize, dims: impl IntoIterator<Item = Dim>) -> Spec {
    x.with(x.dims()[..x.rank().saturating_sub(gone)].iter().cloned().chain(dims))
}

fn pair(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    Ok(vec![x.clone(), x.clone()])
}

fn half(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let length = size(op, call, 1, "fft_length").map_or(x.last()?.clone(), Dim::Known);
    let bins = length.div_floor(&Dim::Known(2)).map(|n| n.offset(1));
    Ok(bins.map(|n| vec![ended(x, 1, [n]); 2]).unwrap_or_default())
}

fn whole(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let length = match size(op, call, 1, "fft_length") {
        Some(length) => Dim::Known(length),
        None => spec::product(&[x.last()?.offset(-1), Dim::Known(2)])?,
    };
    Ok(vec![ended(x, 1, [length])])
}

/// How many windows of `length` there are, each `stride` after the one before.
fn windows(total: &Dim, length: u64, stride: u64) -> Option<Dim> {
    let rest = total.offset(i64::try_from(length).ok()?.checked_neg()?);
    Some(rest.div_floor(&Dim::Known(stride))?.offset(1))
}

/// What is added to a signal so that its windows are centred.
fn padding(op: &Operation, call: &Call<'_>, length: u64) -> u64 {
    let centred = op.parameter(call, usize::MAX, &["center"]).and_then(|a| a.as_bool()).unwrap_or(true);
    if centred { length / 2 * 2 } else { 0 }
}

fn frames(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let stride = size(op, call, 2, "sequence_stride");
    let (Some(stride), Some(length)) = (stride, size(op, call, 3, "fft_length")) else {
        return Ok(Vec::new());
    };
    let padding = i64::try_from(padding(op, call, length)).unwrap_or(i64::MAX);
    let count = windows(&x.last()?.offset(padding), length, stride);
    let bins = Dim::Known(length / 2 + 1);
    Ok(count.map(|count| vec![ended(x, 1, [count, bins]); 2]).unwrap_or_default())
}

fn signal(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = spec::input_from_rank(inputs, 0, 2)?;
    if let Some(length) = size(op, call, usize::MAX, "length") {
        return Ok(vec![ended(x, 2, [Dim::Known(length)])]);
    }
    let stride = size(op, call, 2, "sequence_stride");
    let (Some(stride), Some(length)) = (stride, size(op, call, 3, "fft_length")) else {
        return Ok(Vec::new());
    };
    let more = length.saturating_sub(padding(op, call, length));
    let steps = spec::product(&[x.dims()[x.rank() - 2].offset(-1), Dim::Known(stride)])?;
    Ok(vec![ended(x, 2, [spec::sum(&steps, &Dim::Known(more))?])])
}

fn sequences(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let stride = size(op, call, 2, "sequence_stride");
    let (Some(length), Some(stride)) = (size(op, call, 1, "sequence_length"), stride) else {
        return Ok(Vec::new());
    };
    let count = windows(x.last()?, length, stride);
    Ok(count.map(|count| ended(x, 1, [count, Dim::Known(length)])).into_iter().collect())
}

fn complex(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(vec![Spec { dtype: DType::Complex64, ..ended(operand(call, inputs)?, 1, []) }])
}

fn real(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(vec![Spec { dtype: DType::Float32, ..ended(operand(call, inputs)?, 0, [Dim::Known(2)]) }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_whole() {
        let count = |n, length, stride| windows(&Dim::Known(n), length, stride).unwrap().known();
        assert_eq!(count(64, 16, 4), Some(13));
        assert_eq!(count(17, 16, 4), Some(1));
    }
}
