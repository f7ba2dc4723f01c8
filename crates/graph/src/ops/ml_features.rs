//! Feature preparation of the `ai.onnx.ml` domain: ArrayFeatureExtractor, Binarizer, FeatureVectorizer, Imputer, Normalizer,
//! OneHotEncoder, Scaler. All of version 1.
//!
//! Written by converters of classical models (scikit-learn, XGBoost, …); no framework trains through them, so nothing is kept. Where
//! the specification is silent on a shape, it is the one onnxruntime computes.

use super::calls;
use crate::{DType, Dim, Infer, Lowering, Op, OpError, OpSpec, Shape};
use std::sync::Arc;

/// One of the operators.
#[derive(Clone, Debug)]
pub enum Features {
    /// Picks elements of the innermost axis.
    ArrayFeatureExtractor,
    /// Each element compared with a threshold.
    Binarizer,
    /// Rows joined along axis 1, as many columns of each input as the list says.
    FeatureVectorizer(Option<Vec<u64>>),
    /// Missing values replaced.
    Imputer,
    /// Each row divided by its norm.
    Normalizer,
    /// A new innermost axis of this many categories.
    OneHotEncoder(u64),
    /// Each column moved and scaled.
    Scaler,
}

const fn spec(name: &'static str, build: crate::Build) -> OpSpec {
    OpSpec { domain: "ai.onnx.ml", name, since: &[1], build }
}

/// How each of them is found.
pub const SPECS: &[OpSpec] = &[
    spec("ArrayFeatureExtractor", |_, _| Ok(Arc::new(Features::ArrayFeatureExtractor))),
    spec("Binarizer", |_, _| Ok(Arc::new(Features::Binarizer))),
    spec("FeatureVectorizer", |a, _| Ok(Arc::new(Features::FeatureVectorizer(a.sizes("inputdimensions")?)))),
    spec("Imputer", |_, _| Ok(Arc::new(Features::Imputer))),
    spec("Normalizer", |_, _| Ok(Arc::new(Features::Normalizer))),
    spec("OneHotEncoder", |a, _| {
        let numbers = a.ints("cats_int64s")?.map_or(0, |v| v.len());
        let texts = a.texts("cats_strings")?.map_or(0, |v| v.len());
        Ok(Arc::new(Features::OneHotEncoder(numbers.max(texts) as u64)))
    }),
    spec("Scaler", |_, _| Ok(Arc::new(Features::Scaler))),
];

/// Rows and columns of input `i`, whose only axis is the columns where it has one.
fn matrix(cx: &Infer<'_>, i: usize) -> Result<Option<(Dim, Dim)>, OpError> {
    match cx.shape(i) {
        None => Ok(None),
        Some(s) if s.rank() == 1 => Ok(Some((1.into(), s[0].clone()))),
        Some(s) if s.rank() == 2 => Ok(Some((s[0].clone(), s[1].clone()))),
        Some(s) => Err(OpError::input(i, "rank 1 or 2", format!("shape {s}"))),
    }
}

/// `[rows of input 0, columns]`.
pub(super) fn rows_by(cx: &Infer<'_>, columns: impl Into<Dim>) -> Result<Option<Shape>, OpError> {
    let columns = columns.into();
    Ok(matrix(cx, 0)?.map(|(rows, _)| [rows, columns].into_iter().collect()))
}

fn joined(cx: &Infer<'_>, listed: Option<&[u64]>) -> Result<Option<Shape>, OpError> {
    let mut total = Dim::Known(0);
    for i in 0..cx.input_count() {
        let columns = match (listed.and_then(|l| l.get(i)), matrix(cx, i)?) {
            (Some(n), _) => Dim::Known(*n),
            (None, Some((_, columns))) => columns,
            (None, None) => return Ok(None),
        };
        total = total.add(&columns).ok_or_else(|| OpError::overflow("the joined size"))?;
    }
    rows_by(cx, total)
}

fn picked(cx: &Infer<'_>) -> Result<Option<Shape>, OpError> {
    let (Some(data), Some(indices)) = (cx.shape(0), cx.shape(1)) else { return Ok(None) };
    let count = indices.product().ok_or_else(|| OpError::overflow("the number of indices"))?;
    let outer: Vec<Dim> = match data.dims() {
        [] | [_] => vec![1.into()],
        [outer @ .., _] => outer.to_vec(),
    };
    Ok(Some(outer.into_iter().chain([count]).collect()))
}

impl Op for Features {
    fn name(&self) -> &str {
        match self {
            Features::ArrayFeatureExtractor => "ai.onnx.ml.ArrayFeatureExtractor",
            Features::Binarizer => "ai.onnx.ml.Binarizer",
            Features::FeatureVectorizer(_) => "ai.onnx.ml.FeatureVectorizer",
            Features::Imputer => "ai.onnx.ml.Imputer",
            Features::Normalizer => "ai.onnx.ml.Normalizer",
            Features::OneHotEncoder(_) => "ai.onnx.ml.OneHotEncoder",
            Features::Scaler => "ai.onnx.ml.Scaler",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let (dtype, same) = (cx.dtype(0), cx.shape(0).cloned());
        let (dtype, shape) = match self {
            Features::ArrayFeatureExtractor => {
                cx.require(1)?;
                (dtype, picked(cx)?)
            }
            Features::Binarizer | Features::Imputer => (dtype, same),
            Features::FeatureVectorizer(listed) => (DType::Float32, joined(cx, listed.as_deref())?),
            Features::Normalizer | Features::Scaler => (DType::Float32, same),
            Features::OneHotEncoder(n) => (
                DType::Float32,
                same.map(|mut s| {
                    s.push(*n);
                    s
                }),
            ),
        };
        cx.set(0, dtype, shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        calls::without_gradient(l, "features");
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{self, In, float};
    use crate::{Attribute, Attributes};

    fn shape(op: &str, a: Attributes, inputs: &[In]) -> Result<String, String> {
        testing::shape(&format!("ai.onnx.ml.{op}"), 1, a, inputs)
    }

    #[test]
    fn a_vector_counts_as_one_row() {
        let none = Attributes::default;
        assert_eq!(shape("ArrayFeatureExtractor", none(), &[float(&[5, 3]), float(&[2, 2])]).unwrap(), "5x4");
        assert_eq!(shape("ArrayFeatureExtractor", none(), &[float(&[3]), float(&[2])]).unwrap(), "1x2");
        assert_eq!(shape("FeatureVectorizer", none(), &[float(&[3]), float(&[2])]).unwrap(), "1x5");
        let listed = Attributes::from([("inputdimensions", Attribute::Ints(vec![3, 1]))]);
        assert_eq!(shape("FeatureVectorizer", listed, &[float(&[5, 3]), float(&[5, 2])]).unwrap(), "5x4");
        let categories = Attributes::from([("cats_int64s", Attribute::Ints(vec![0, 1, 2, 3]))]);
        assert_eq!(shape("OneHotEncoder", categories, &[float(&[5, 3])]).unwrap(), "5x3x4");
        assert!(shape("FeatureVectorizer", none(), &[float(&[1, 2, 3])]).is_err());
    }
}
