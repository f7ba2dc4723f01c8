//! What a config names by a word or holds as an object: regularizers, constraints, initializers.
//!
//! keras/src/regularizers/__init__.py, constraints/__init__.py, initializers/__init__.py, `get`: `None`, a serialised object, or a word
//! that Keras 3 knows. Keras 2 looks a word up among the user's own functions too, and so does Keras 3 for initializers.

use crate::config::refused;
use crate::layer::Keras;
use serde_json::Value;

/// The words of Keras 3 for what an attribute of this ending names; none where any word may do.
const WORDS: &[(&str, &[&str])] = &[
    (
        "_regularizer",
        &[
            "L1",
            "L1L2",
            "L2",
            "OrthogonalRegularizer",
            "Regularizer",
            "l1",
            "l1l2",
            "l2",
            "orthogonal_regularizer",
            "regularizer",
        ],
    ),
    (
        "_constraint",
        &[
            "Constraint",
            "MaxNorm",
            "MinMaxNorm",
            "NonNeg",
            "UnitNorm",
            "constraint",
            "max_norm",
            "min_max_norm",
            "non_neg",
            "unit_norm",
        ],
    ),
    ("_initializer", &[]),
];

/// Whether Keras can tell what each of these attributes of a layer's config is.
pub(crate) fn check(config: &Value, keras: Keras) -> Result<(), String> {
    for (name, value) in config.as_object().into_iter().flatten() {
        let Some((ending, words)) = WORDS.iter().find(|(ending, _)| name.ends_with(ending)) else { continue };
        let known = match value {
            Value::Null => true,
            Value::String(word) => words.is_empty() || keras != Keras::V3 || words.contains(&word.as_str()),
            Value::Object(object) => object.contains_key("class_name"),
            _ => false,
        };
        if !known {
            let what = ending.trim_start_matches('_');
            let words = if words.is_empty() { "a name".into() } else { words.join(", ") };
            let expected = format!("None, a serialised {what}, or the word for one: {words}");
            return Err(format!("its config: {}", refused(name, &expected, value)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_numbers_and_objects() {
        let check = |value: Value, keras| check(&json!({"kernel_regularizer": value, "units": 3}), keras);
        for known in [json!(null), json!("l2"), json!("L1L2"), json!({"class_name": "Mine", "config": {}})] {
            assert_eq!(check(known, Keras::V3), Ok(()));
        }
        for unknown in [json!("smae"), json!(-3), json!(""), json!([]), json!({})] {
            assert!(check(unknown, Keras::V3).unwrap_err().contains("kernel_regularizer: expected None"));
        }
        // A function of the user's own is written as its name.
        assert_eq!(check(json!("smae"), Keras::V2(15)), Ok(()));
        assert!(check(json!(-3), Keras::V2(15)).is_err());
        assert!(super::check(&json!({"kernel_initializer": "mine"}), Keras::V3).is_ok());
        assert!(super::check(&json!({"bias_initializer": 5}), Keras::V3).is_err());
    }
}
