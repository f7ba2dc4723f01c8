//! What decides how a run goes: what two runs have to have in common for one to say what the other would show.

use memfit_graph::{Binding, Num, Type};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Runs of the same key show the same. Both a suite's records and a search's tries are matched by it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key<'a> {
    /// What wrote it: another version predicts something else.
    pub tool: &'a str,
    /// Who runs the steps.
    pub runner: &'a str,
    /// The framework and its version.
    pub framework: &'a str,
    /// The kind of device.
    pub backend: &'a str,
    /// The device as its driver calls it.
    pub device: &'a str,
    /// The model's structure; what its file is called decides nothing.
    pub structure: &'a str,
    /// The plan, as an estimate's JSON has it.
    pub plan: &'a Value,
    /// What was given of what the model leaves open.
    pub given: &'a Given,
    /// The most that the device was to have.
    pub limit_bytes: Option<u64>,
}

/// What was given of what a model leaves open, but for the batch, which is the plan's. Custom layers are in the model's structure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// Named sizes: `--set`.
    #[serde(default)]
    pub sizes: BTreeMap<String, u64>,
    /// Whole shapes of inputs: `--input`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shapes: BTreeMap<String, Vec<u64>>,
    /// Inputs that are no dense tensors, as `--input` says them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, String>,
    /// Elements of inputs: `--value`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Vec<Value>>,
}

impl Given {
    /// As it was bound.
    pub fn of(binding: &Binding) -> Given {
        let elements = |value: &memfit_graph::Value| value.data.iter().map(element).collect();
        Given {
            sizes: binding.symbols.clone(),
            shapes: binding.shapes.clone(),
            inputs: binding.types.iter().map(|(name, ty)| (name.clone(), written(ty))).collect(),
            values: binding.values.iter().map(|(name, value)| (name.clone(), elements(value))).collect(),
        }
    }
}

/// A number; as text where JSON has none.
fn element(element: &Num) -> Value {
    match element {
        Num::Int(n) => (*n).into(),
        Num::Float(x) if x.is_finite() => (*x).into(),
        Num::Float(x) => x.to_string().into(),
        Num::Dim(dim) => dim.to_string().into(),
        Num::Unknown => Value::Null,
    }
}

/// A type as `--input` says it: `8x3`, `[8x3,4x3]`, `absent`.
fn written(ty: &Type) -> String {
    let dims = |ty: &Type| {
        let dims: Vec<String> =
            ty.shape().into_iter().flat_map(|s| s.dims()).map(ToString::to_string).collect();
        if dims.is_empty() { "scalar".to_owned() } else { dims.join("x") }
    };
    match ty {
        Type::Sequence { items, .. } => {
            let items: Vec<String> = items.iter().flatten().map(dims).collect();
            format!("[{}]", items.join(","))
        }
        Type::Optional { present: Some(false), .. } => "absent".into(),
        Type::Optional { element, .. } => written(element),
        ty => dims(ty),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{DType, Shape};

    #[test]
    fn what_was_typed_is_kept() {
        let tensor = |dims: &[u64]| Type::tensor(DType::Float32, Shape::from(dims));
        let optional = |present| Type::Optional { element: Box::new(tensor(&[2])), present: Some(present) };
        let value = memfit_graph::Value {
            dtype: DType::Float32,
            shape: vec![3],
            data: vec![Num::Int(1), Num::Float(0.5), Num::Float(f64::INFINITY)],
        };
        let binding = Binding {
            symbols: [("seq".to_owned(), 128)].into(),
            shapes: [("x".to_owned(), vec![8, 3])].into(),
            batch: Some(8),
            values: [("v".to_owned(), value)].into(),
            types: [
                ("parts".to_owned(), Type::sequence(vec![tensor(&[4, 3]), tensor(&[])])),
                ("none".to_owned(), optional(false)),
                ("some".to_owned(), optional(true)),
            ]
            .into(),
        };
        let given = Given::of(&binding);
        let text = serde_json::to_string(&given).unwrap();
        assert_eq!(
            text,
            r#"{"sizes":{"seq":128},"shapes":{"x":[8,3]},"inputs":{"none":"absent","parts":"[4x3,scalar]","some":"2"},"values":{"v":[1,0.5,"inf"]}}"#
        );
        assert_eq!(serde_json::from_str::<Given>(&text).unwrap(), given);
        // A record of before has none of them.
        assert_eq!(serde_json::from_str::<Given>(r#"{"sizes":{}}"#).unwrap(), Given::default());
    }
}
