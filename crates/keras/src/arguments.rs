//! The arguments of one layer call: tensors where Keras has tensors, JSON where it has numbers and flags.

use crate::policy;
use crate::spec::Spec;
use memfit_graph::{DType, Dim, Shape};
use serde_json::Value;
use std::collections::BTreeMap;

/// One argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// Input of this index.
    Tensor(usize),
    /// A list or tuple.
    List(Vec<Argument>),
    /// A dict.
    Map(BTreeMap<String, Argument>),
    /// Anything else.
    Json(Value),
}

impl Argument {
    /// The indices of all tensors in it, in Keras' order: lists in order, dicts by key.
    pub fn tensors(&self) -> Vec<usize> {
        match self {
            Argument::Tensor(i) => vec![*i],
            Argument::List(list) => list.iter().flat_map(Argument::tensors).collect(),
            Argument::Map(map) => map.values().flat_map(Argument::tensors).collect(),
            Argument::Json(_) => Vec::new(),
        }
    }

    /// The tensor, where it is one.
    pub fn tensor(&self) -> Option<usize> {
        match self {
            Argument::Tensor(i) => Some(*i),
            _ => None,
        }
    }

    /// Whether it says `None`.
    pub fn is_null(&self) -> bool {
        matches!(self, Argument::Json(Value::Null))
    }

    /// As an integer.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Argument::Json(value) => value.as_i64(),
            _ => None,
        }
    }

    /// As a truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Argument::Json(value) => value.as_bool(),
            _ => None,
        }
    }

    /// As a text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Argument::Json(value) => value.as_str(),
            _ => None,
        }
    }

    /// The tensor that it is, one of the call's or one that the file holds with its elements. `weak` is the dtype of whole numbers,
    /// which have none of their own.
    pub fn spec(&self, inputs: &[Spec], weak: DType) -> Option<Spec> {
        match self {
            Argument::Tensor(i) => inputs.get(*i).cloned(),
            Argument::List(list) => {
                let mut spec = list.first()?.spec(inputs, weak)?;
                spec.shape.insert(0, Dim::Known(list.len() as u64));
                Some(spec)
            }
            Argument::Map(_) => None,
            Argument::Json(value) => constant(value, weak),
        }
    }

    /// As a list of integers; one integer is a list of one.
    pub fn ints(&self) -> Option<Vec<i64>> {
        match self {
            Argument::Json(Value::Array(list)) => list.iter().map(Value::as_i64).collect(),
            Argument::List(list) => list.iter().map(Argument::as_i64).collect(),
            other => other.as_i64().map(|n| vec![n]),
        }
    }
}

/// What numbers, lists of them, and serialised arrays (`serialization_lib.py`: `__numpy__`, `__tensor__`) are as a tensor.
fn constant(value: &Value, weak: DType) -> Option<Spec> {
    match value {
        Value::Number(n) if n.is_f64() && !weak.is_float() => {
            Some(Spec::new(Shape::scalar(), DType::Float32))
        }
        Value::Number(_) => Some(Spec::new(Shape::scalar(), weak)),
        Value::Bool(_) => Some(Spec::new(Shape::scalar(), DType::Bool)),
        Value::Array(list) => {
            let mut spec =
                list.first().map_or(Some(Spec::new(Shape::scalar(), weak)), |v| constant(v, weak))?;
            spec.shape.insert(0, Dim::Known(list.len() as u64));
            Some(spec)
        }
        Value::Object(object) => {
            let class = object.get("class_name").and_then(Value::as_str);
            let config = class
                .filter(|c| ["__numpy__", "__tensor__"].contains(c))
                .and_then(|_| object.get("config"))?;
            let spec = constant(config.get("value")?, weak)?;
            let dtype = config.get("dtype").and_then(Value::as_str).and_then(policy::dtype);
            Some(Spec { dtype: dtype.unwrap_or(spec.dtype), ..spec })
        }
        _ => None,
    }
}

/// All arguments of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments {
    /// By position.
    pub positional: Vec<Argument>,
    /// By name.
    pub named: BTreeMap<String, Argument>,
}

impl Arguments {
    /// A call with tensors `0..count`: one alone, or a list of them.
    pub fn plain(count: usize) -> Arguments {
        let first = match count {
            1 => Argument::Tensor(0),
            n => Argument::List((0..n).map(Argument::Tensor).collect()),
        };
        Arguments { positional: vec![first], named: BTreeMap::new() }
    }

    /// The argument at `position` or of `name`, unless it is `None`.
    pub fn get(&self, position: usize, name: &str) -> Option<&Argument> {
        self.positional.get(position).or_else(|| self.named.get(name)).filter(|a| !a.is_null())
    }

    /// The tensor at `position` or of `name`.
    pub fn tensor(&self, position: usize, name: &str) -> Option<usize> {
        self.get(position, name)?.tensor()
    }

    /// A named truth value.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.named.get(name)?.as_bool()
    }

    /// The tensors of the first argument, which is what a layer without named tensors is called on.
    pub fn first(&self) -> Vec<usize> {
        let first = self.positional.first().or_else(|| MAIN.iter().find_map(|name| self.named.get(*name)));
        first.map(Argument::tensors).unwrap_or_default()
    }
}

/// What layers name the argument that they are called on.
const MAIN: &[&str] = &["inputs", "sequences", "sequence", "query", "data", "x"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arrays_and_numbers_of_the_file_are_tensors_too() {
        let of = |value: Value| {
            let spec = Argument::Json(value).spec(&[], DType::Int32);
            spec.map(|s| (s.shape.known().unwrap(), s.dtype))
        };
        let array =
            json!({"class_name": "__numpy__", "config": {"value": [[1.0, 2.0, 3.0]], "dtype": "float16"}});
        assert_eq!(of(array), Some((vec![1, 3], DType::Float16)));
        assert_eq!(of(json!([0, 2])), Some((vec![2], DType::Int32)));
        assert_eq!(of(json!(0.5)), Some((vec![], DType::Float32)));
        assert_eq!(of(json!([])), Some((vec![0], DType::Int32)));
        assert_eq!(of(json!("valid")), None);
        let mixed = Argument::List(vec![Argument::Json(json!(2)), Argument::Json(json!(3))]);
        assert_eq!(mixed.spec(&[], DType::Int64).unwrap().shape.known().unwrap(), [2]);
    }
}
