//! StringConcat, StringNormalizer, StringSplit, RegexFullMatch. ONNX 10 and 20; Keras `StringLookup`'s neighbours.
//!
//! Preprocessing of text: no framework differentiates through it and nothing is kept. What a string says is not looked at, so
//! counts that depend on it have an upper bound at most.

use super::calls;
use crate::{DType, Dim, Infer, Lowering, Op, OpError, OpSpec, Shape};
use std::sync::Arc;

/// One of the operators on strings.
#[derive(Clone, Copy, Debug)]
pub enum Strings {
    /// Joins two strings, with broadcasting.
    Concat,
    /// Changes case and drops stop words from `[C]` or `[1, C]`.
    Normalizer {
        /// Whether there are stop words.
        drops: bool,
    },
    /// Splits each string; the parts make a new innermost axis.
    Split {
        /// How many parts at most.
        parts: Option<u64>,
    },
    /// Whether each string matches a pattern.
    RegexFullMatch,
}

/// How each of them is found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "RegexFullMatch",
        since: &[20],
        build: |_, _| Ok(Arc::new(Strings::RegexFullMatch)),
    },
    OpSpec { domain: "", name: "StringConcat", since: &[20], build: |_, _| Ok(Arc::new(Strings::Concat)) },
    OpSpec {
        domain: "",
        name: "StringNormalizer",
        since: &[10],
        build: |a, _| {
            let drops = a.texts("stopwords")?.is_some_and(|words| !words.is_empty());
            Ok(Arc::new(Strings::Normalizer { drops }))
        },
    },
    OpSpec {
        domain: "",
        name: "StringSplit",
        since: &[20],
        build: |a, _| {
            let splits = a.int("maxsplit")?.and_then(|n| u64::try_from(n).ok());
            Ok(Arc::new(Strings::Split { parts: splits.and_then(|n| n.checked_add(1)) }))
        },
    },
];

impl Op for Strings {
    fn name(&self) -> &str {
        match self {
            Strings::Concat => "StringConcat",
            Strings::Normalizer { .. } => "StringNormalizer",
            Strings::Split { .. } => "StringSplit",
            Strings::RegexFullMatch => "RegexFullMatch",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let shape = cx.shape(0).cloned();
        match self {
            Strings::Concat => super::infer_broadcast(cx, Some(DType::String))?,
            Strings::RegexFullMatch => cx.set(0, DType::Bool, shape),
            Strings::Normalizer { drops: false } => cx.set(0, DType::String, shape),
            Strings::Normalizer { drops: true } => {
                // Where every word is dropped, one empty string stays.
                let shape = shape.map(|mut shape: Shape| {
                    if let Some(last) = shape.dims_mut().last_mut() {
                        *last = cx.fresh_dim("words", last.upper().map(|n| n.max(1)));
                    }
                    shape
                });
                cx.set(0, DType::String, shape);
            }
            Strings::Split { parts } => {
                let parts = match shape.as_ref().and_then(Shape::elements) {
                    Some(0) => Dim::Known(0),
                    _ => cx.fresh_dim("parts", *parts),
                };
                let split = shape.clone().map(|mut s| {
                    s.push(parts);
                    s
                });
                cx.set(0, DType::String, split);
                cx.set(1, DType::Int64, shape);
            }
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        calls::without_gradient(l, "strings");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{In, run};
    use crate::{Attribute, Attributes, Type};

    fn texts(dims: &[u64]) -> In {
        In::Typed(Type::tensor(DType::String, Shape::from(dims)))
    }

    #[test]
    fn parts_are_bounded_by_the_splits() {
        let two = Attributes::from([("maxsplit", Attribute::Int(1))]);
        let out = run("StringSplit", 20, two, &[texts(&[2, 2])], 2).unwrap();
        assert_eq!(out[0].0.shape().unwrap()[2].upper(), Some(2));
        assert_eq!(out[1].0, Type::tensor(DType::Int64, Shape::from([2, 2])));
        let empty = run("StringSplit", 20, Attributes::default(), &[texts(&[0])], 2).unwrap();
        assert_eq!(empty[0].0.shape(), Some(&Shape::from([0, 0])));
    }

    #[test]
    fn stop_words_leave_at_least_one_string() {
        let words = Attributes::from([("stopwords", Attribute::Texts(vec!["monday".into()]))]);
        let out = run("StringNormalizer", 10, words, &[texts(&[1, 6])], 1).unwrap();
        let shape = out[0].0.shape().unwrap();
        assert_eq!((shape[0].known(), shape[1].known(), shape[1].upper()), (Some(1), None, Some(6)));
    }
}
