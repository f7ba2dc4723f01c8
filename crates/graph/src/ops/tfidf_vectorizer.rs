//! TfIdfVectorizer. ONNX 9; Keras `TextVectorization(output_mode="tf_idf")`.
//!
//! Counts n-grams into a float vector as long as the largest of `ngram_indexes`, plus one. Preprocessing: no gradient.

use super::calls;
use crate::{DType, Infer, Lowering, Op, OpError, OpSpec, Shape};
use std::sync::Arc;

/// N-gram counts of `[C]` or of each row of `[N, C]`.
#[derive(Clone, Copy, Debug)]
pub struct TfIdfVectorizer {
    /// The size of the vector.
    pub size: u64,
}

/// How TfIdfVectorizer is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "TfIdfVectorizer",
    since: &[9],
    build: |a, _| {
        let indexes = a.sizes("ngram_indexes")?.ok_or_else(|| OpError::missing_attribute("ngram_indexes"))?;
        let size = indexes.iter().max().map_or(Some(0), |n| n.checked_add(1));
        let size = size.ok_or_else(|| OpError::overflow("the largest of ngram_indexes"))?;
        Ok(Arc::new(TfIdfVectorizer { size }))
    },
}];

impl Op for TfIdfVectorizer {
    fn name(&self) -> &str {
        "TfIdfVectorizer"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let shape = match cx.shape(0) {
            None => None,
            Some(s) if s.rank() == 1 => Some(Shape::from([self.size])),
            Some(s) if s.rank() == 2 => Some([s[0].clone(), self.size.into()].into_iter().collect()),
            Some(s) => return Err(OpError::input(0, "rank 1 or 2", format!("shape {s}"))),
        };
        cx.set(0, DType::Float32, shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        calls::without_gradient(l, "tfidf_vectorizer");
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{float, shape};
    use crate::{Attribute, Attributes};

    #[test]
    fn the_largest_index_is_the_last_element() {
        let a = || Attributes::from([("ngram_indexes", Attribute::Ints(vec![0, 6, 2]))]);
        assert_eq!(shape("TfIdfVectorizer", 9, a(), &[float(&[2, 12])]).unwrap(), "2x7");
        assert!(shape("TfIdfVectorizer", 9, a(), &[float(&[])]).is_err());
        assert!(shape("TfIdfVectorizer", 9, Attributes::default(), &[float(&[2])]).is_err());
    }
}
