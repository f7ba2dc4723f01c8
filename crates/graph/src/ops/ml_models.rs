//! Classical models of the `ai.onnx.ml` domain: LinearClassifier, LinearRegressor, SVMClassifier, SVMRegressor, TreeEnsemble
//! (5), TreeEnsembleClassifier and TreeEnsembleRegressor (1, 3, 5).
//!
//! A classifier gives a label a row and a score a class, a regressor a number a target. They are fitted by their own libraries, never
//! by gradients, so nothing is kept. Scores follow onnxruntime: a machine that votes gives one for each pair of classes.

use super::calls;
use super::ml_features::rows_by;
use crate::{Attributes, DType, Infer, Lowering, Op, OpError, OpSpec, Shape};
use std::sync::Arc;

/// A fitted model.
#[derive(Clone, Copy, Debug)]
pub struct ClassicalModel {
    name: &'static str,
    /// The dtype of the labels, where it is a classifier.
    pub labels: Option<DType>,
    /// Scores or targets a row.
    pub columns: u64,
    /// Whether the scores have the input's dtype rather than float32.
    pub keeps_dtype: bool,
}

const fn spec(name: &'static str, since: &'static [i64], build: crate::Build) -> OpSpec {
    OpSpec { domain: "ai.onnx.ml", name, since, build }
}

/// How each of them is found.
pub const SPECS: &[OpSpec] = &[
    spec("LinearClassifier", &[1], |a, _| {
        let rows = a.floats("intercepts")?.map_or(0, |v| v.len());
        classifier("ai.onnx.ml.LinearClassifier", a, "classlabels_ints", rows)
    }),
    spec("LinearRegressor", &[1], |a, _| regressor("ai.onnx.ml.LinearRegressor", a, "targets", false)),
    spec("SVMClassifier", &[1], |a, _| svm_classifier(a)),
    spec("SVMRegressor", &[1], |a, _| regressor("ai.onnx.ml.SVMRegressor", a, "", false)),
    spec("TreeEnsemble", &[5], |a, _| regressor("ai.onnx.ml.TreeEnsemble", a, "n_targets", true)),
    spec("TreeEnsembleClassifier", &[1, 3, 5], |a, _| {
        classifier("ai.onnx.ml.TreeEnsembleClassifier", a, "classlabels_int64s", 1)
    }),
    spec("TreeEnsembleRegressor", &[1, 3, 5], |a, _| {
        regressor("ai.onnx.ml.TreeEnsembleRegressor", a, "n_targets", false)
    }),
];

/// The dtype of the class labels and how many there are.
fn classes(a: &Attributes, integers: &str) -> Result<(DType, usize), OpError> {
    match a.texts("classlabels_strings")?.filter(|v| !v.is_empty()) {
        Some(labels) => Ok((DType::String, labels.len())),
        None => Ok((DType::Int64, a.ints(integers)?.map_or(0, |v| v.len()))),
    }
}

fn classifier(
    name: &'static str,
    a: &Attributes,
    integers: &str,
    rows: usize,
) -> Result<Arc<dyn Op>, OpError> {
    let (dtype, count) = classes(a, integers)?;
    let columns = count.max(rows) as u64;
    Ok(Arc::new(ClassicalModel { name, labels: Some(dtype), columns, keeps_dtype: false }))
}

fn svm_classifier(a: &Attributes) -> Result<Arc<dyn Op>, OpError> {
    let (dtype, count) = classes(a, "classlabels_ints")?;
    let votes = a.ints("vectors_per_class")?.is_some_and(|v| !v.is_empty());
    let has_probabilities = a.floats("prob_a")?.is_some_and(|v| !v.is_empty());
    let pairs = (count.saturating_mul(count.saturating_sub(1)) / 2).max(2);
    let columns = if votes && !has_probabilities { pairs } else { count.max(1) } as u64;
    let name = "ai.onnx.ml.SVMClassifier";
    Ok(Arc::new(ClassicalModel { name, labels: Some(dtype), columns, keeps_dtype: false }))
}

fn regressor(
    name: &'static str,
    a: &Attributes,
    targets: &str,
    keeps_dtype: bool,
) -> Result<Arc<dyn Op>, OpError> {
    let count = u64::try_from(a.int(targets)?.unwrap_or(1));
    let columns = count.map_err(|_| OpError::attribute(targets, "a positive number", "a negative one"))?;
    Ok(Arc::new(ClassicalModel { name, labels: None, columns, keeps_dtype }))
}

impl Op for ClassicalModel {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let scores = rows_by(cx, self.columns)?;
        let dtype = if self.keeps_dtype { cx.dtype(0) } else { DType::Float32 };
        match self.labels {
            None => cx.set(0, dtype, scores),
            Some(labels) => {
                cx.set(0, labels, scores.as_ref().map(|s| s.dims()[..1].iter().cloned().collect::<Shape>()));
                cx.set(1, dtype, scores);
            }
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        calls::without_gradient(l, "classical_model");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{float, run, shape};
    use crate::{Attribute, Type};

    #[test]
    fn a_classifier_gives_labels_and_scores() {
        let a = Attributes::from([
            ("classlabels_strings", Attribute::Texts(vec!["a".into(), "b".into()])),
            ("intercepts", Attribute::Floats(vec![0.0])),
        ]);
        let out = run("ai.onnx.ml.LinearClassifier", 1, a, &[float(&[5, 3])], 2).unwrap();
        assert_eq!(out[0].0, Type::tensor(DType::String, Shape::from([5])));
        assert_eq!(out[1].0, Type::tensor(DType::Float32, Shape::from([5, 2])));
    }

    #[test]
    fn votes_are_by_pairs() {
        let svm = |classes: i64, probabilities: bool| {
            let mut a = Attributes::from([
                ("classlabels_ints", Attribute::Ints((0..classes).collect())),
                ("vectors_per_class", Attribute::Ints(vec![2; 4])),
            ]);
            if probabilities {
                a.0.insert("prob_a".into(), Attribute::Floats(vec![1.0]));
            }
            let out = run("ai.onnx.ml.SVMClassifier", 1, a, &[float(&[5, 3])], 2).unwrap();
            out[1].0.shape().unwrap()[1].known()
        };
        assert_eq!((svm(4, false), svm(4, true), svm(2, false)), (Some(6), Some(4), Some(2)));
    }

    #[test]
    fn targets_are_columns() {
        let a = |n| Attributes::from([("n_targets", Attribute::Int(n))]);
        let shape = |n| shape("ai.onnx.ml.TreeEnsemble", 5, a(n), &[float(&[7, 3])]);
        assert_eq!(shape(2).unwrap(), "7x2");
        assert!(shape(-1).is_err());
    }
}
