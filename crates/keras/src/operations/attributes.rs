//! What the attributes of operations can be: axes are whole numbers, an equation is a text. A rule that cannot read one would take it for
//! none, so what Keras refuses is refused before.
//!
//! keras/src/ops/*.py: the constructors, and `canonicalize_axis` and `reduce_shape` that read them.

use super::Operation;
use crate::arguments::Argument;
use crate::config::shown;
use crate::layer::{Call, Keras};
use memfit_graph::OpError;
use serde_json::Value;

/// What a value is.
type Is = fn(&Value) -> bool;

/// Attributes, what they are, and the same in words.
const KINDS: &[(&[&str], Is, &str)] = &[
    (
        &["axis", "axes", "axis1", "axis2", "axisa", "axisb", "axisc", "source", "destination"],
        axes,
        "a whole number, or a list of them",
    ),
    (&["repeats"], repeats, "a whole number of at least zero, or a list of them"),
    (&["subscripts", "equation"], Value::is_string, "a text such as `ab,bc->ac`"),
];

/// Attributes of Keras' own operations alone: TensorFlow's functions know more.
const OF_KERAS: &[(&[&str], Is, &str)] = &[(&["ord"], order, "None, a number, fro or nuc")];

/// What cannot be `None`, by operation.
const NEEDED: &[(&str, &[&str])] = &[
    (
        "axis",
        &[
            "ArraySplit",
            "Concatenate",
            "Diff",
            "ExpandDims",
            "Geomspace",
            "Glu",
            "Linspace",
            "Logspace",
            "OneHot",
            "Sparsemax",
            "Split",
            "Stack",
            "Unstack",
        ],
    ),
    ("newshape", &["Reshape"]),
    ("repeats", &["Repeat", "Tile"]),
];

/// Arrays that the file holds stand as objects.
fn axes(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().all(axes),
        value => value.is_i64() || value.is_object(),
    }
}

fn repeats(value: &Value) -> bool {
    value.is_u64() || value.is_array() || value.is_object()
}

fn order(value: &Value) -> bool {
    value.is_number() || value == "fro" || value == "nuc"
}

/// Whether Keras takes the attributes that the operation was made and called with.
pub(super) fn check(op: &Operation, call: &Call<'_>) -> Result<(), OpError> {
    let made = op.config.as_object().into_iter().flatten();
    let given = call.arguments.named.iter().filter_map(|(name, argument)| match argument {
        Argument::Json(value) => Some((name, value)),
        _ => None,
    });
    let of_keras = if call.facts.keras == Keras::V3 { OF_KERAS } else { &[] };
    for (name, value) in made.chain(given) {
        if value.is_null() {
            let needs = |(needed, classes): &(&str, &[&str])| needed == name && classes.contains(&&*op.class);
            if NEEDED.iter().any(needs) {
                return Err(OpError::attribute(name, "a value", shown(value)));
            }
            continue;
        }
        let kind = KINDS.iter().chain(of_keras).find(|(names, ..)| names.contains(&name.as_str()));
        if let Some((_, _, expected)) = kind.filter(|(_, is, _)| !is(value)) {
            return Err(OpError::attribute(name, *expected, shown(value)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use crate::layer::Facts;
    use serde_json::json;

    fn checked(class: &str, config: Value, keras: Keras) -> Result<(), String> {
        let facts = Facts {
            class: class.into(),
            name: "op".into(),
            trainable: true,
            policy: Default::default(),
            keras,
            data_format: None,
            penalties: Vec::new(),
            activity: Default::default(),
        };
        let arguments = Arguments::plain(1);
        let op = Operation { class: class.into(), config, rule: None };
        check(&op, &Call { facts: &facts, arguments: &arguments }).map_err(|e| e.to_string())
    }

    #[test]
    fn axes_are_whole_numbers() {
        let check = |class, config| checked(class, config, Keras::V3);
        for taken in [json!(null), json!(-2), json!([0, 1]), json!([[1], [0]])] {
            assert_eq!(check("Sum", json!({"axis": taken})), Ok(()));
        }
        for refused in [json!("4"), json!(2.5), json!([0, 1.5]), json!(true)] {
            let error = check("Sum", json!({"axis": refused})).unwrap_err();
            assert!(error.contains("axis") && error.contains(&refused.to_string()), "{error}");
        }
        assert!(check("Stack", json!({"axis": null})).unwrap_err().contains("None"));
        assert!(check("Repeat", json!({"repeats": -2})).is_err());
        assert!(check("Einsum", json!({"subscripts": 5})).is_err());
        assert!(check("Norm", json!({"ord": "smae"})).is_err());
        assert_eq!(check("Norm", json!({"ord": "fro", "axis": null})), Ok(()));
        assert_eq!(checked("Norm", json!({"ord": "euclidean"}), Keras::V2(15)), Ok(()));
    }
}
