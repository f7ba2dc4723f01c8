//! Checks a document against the part of JSON Schema that `docs/*.schema.json` and SARIF's use. Unlike the schema itself it
//! also refuses keys that the schema does not describe: a key is not documented by being tolerated.

use serde_json::Value;

/// Everything in which a document differs from `docs/{name}.schema.json`, by path.
pub(crate) fn of(name: &str, document: &Value) -> Vec<String> {
    let path = format!("{}/docs/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
    against(&std::fs::read_to_string(path).unwrap(), document)
}

/// Everything in which a document differs from a schema, by path.
pub(crate) fn against(schema: &str, document: &Value) -> Vec<String> {
    let schema: Value = serde_json::from_str(schema).unwrap();
    problems(&schema, &schema, document, "")
}

/// Everything in which `value` differs from `schema`, by path.
fn problems(root: &Value, schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut wrong = |what: String| found.push(format!("{path}: {what}"));
    let Some(keywords) = schema.as_object() else { return vec![format!("{path}: no schema")] };
    for (keyword, rule) in keywords {
        let numbers = || (value.as_i64().map(i128::from).or(value.as_u64().map(i128::from)), rule);
        let bound = |n: &Value| n.as_i64().map(i128::from).or(n.as_u64().map(i128::from));
        match &**keyword {
            "type" => {
                let names = rule.as_array().map_or_else(|| vec![rule], |all| all.iter().collect());
                if !names.iter().any(|name| is(value, name.as_str().unwrap())) {
                    wrong(format!("expected {rule}, found {value}"));
                }
            }
            "const" if value != rule => wrong(format!("expected {rule}, found {value}")),
            "enum" if !rule.as_array().unwrap().contains(value) => {
                wrong(format!("{value} is none of {rule}"))
            }
            "minimum" if numbers().0.is_some_and(|n| n < bound(rule).unwrap()) => {
                wrong(format!("{value} < {rule}"))
            }
            "maximum" if numbers().0.is_some_and(|n| n > bound(rule).unwrap()) => {
                wrong(format!("{value} > {rule}"))
            }
            "required" if value.is_object() => {
                for key in rule.as_array().unwrap() {
                    if value.get(key.as_str().unwrap()).is_none() {
                        wrong(format!("{key} is missing"));
                    }
                }
            }
            "minItems"
                if value.as_array().is_some_and(|items| (items.len() as u64) < rule.as_u64().unwrap()) =>
            {
                wrong(format!("fewer items than {rule}"));
            }
            "uniqueItems"
                if value
                    .as_array()
                    .is_some_and(|v| v.iter().any(|a| v.iter().filter(|b| a == *b).count() > 1)) =>
            {
                wrong("an item twice".to_owned());
            }
            // A URI has none of these (RFC 3986).
            "format"
                if value.as_str().is_some_and(|text| text.contains([' ', '\\', '"', '<', '>', '{', '}'])) =>
            {
                wrong(format!("{value} is no {rule}"));
            }
            "anyOf" | "oneOf"
                if rule.as_array().unwrap().iter().all(|r| !problems(root, r, value, path).is_empty()) =>
            {
                wrong(format!("is none of {rule}"));
            }
            "minItems" | "uniqueItems" | "format" | "anyOf" | "oneOf" => {}
            // Keys that are not described are refused below in any case.
            "additionalProperties" | "default" | "id" | "definitions" => {}
            "const" | "enum" | "minimum" | "maximum" | "required" | "properties" | "items" | "$ref" => {}
            "$schema" | "$defs" | "title" | "description" => {}
            other => wrong(format!("the keyword {other} is not checked")),
        }
    }
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.strip_prefix('#').unwrap()).unwrap();
        found.extend(problems(root, target, value, path));
    }
    if let (Some(properties), Some(object)) = (schema["properties"].as_object(), value.as_object()) {
        for (key, inner) in object {
            match properties.get(key) {
                Some(schema) => found.extend(problems(root, schema, inner, &format!("{path}.{key}"))),
                None => found.push(format!("{path}.{key}: not described")),
            }
        }
    }
    if let (Some(items), Some(array)) = (schema.get("items"), value.as_array()) {
        for (i, inner) in array.iter().enumerate() {
            found.extend(problems(root, items, inner, &format!("{path}[{i}]")));
        }
    }
    found
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        _ => false,
    }
}

#[test]
fn a_wrong_document_is_seen() {
    use serde_json::json;
    let schema = json!({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "integer", "minimum": 0}}});
    let check = |value: Value| problems(&schema, &schema, &value, "").len();
    assert_eq!(check(json!({"a": 1})), 0);
    for wrong in [
        json!({}),
        json!({"a": -1}),
        json!({"a": 1.5}),
        json!({"a": "1"}),
        json!({"a": 1, "b": 2}),
        json!([]),
    ] {
        assert!(check(wrong.clone()) > 0, "{wrong}");
    }
}
