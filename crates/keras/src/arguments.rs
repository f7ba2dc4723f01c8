//! The arguments of one layer call: tensors where Keras has tensors, JSON where it has numbers and flags.

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

    /// As a list of integers; one integer is a list of one.
    pub fn ints(&self) -> Option<Vec<i64>> {
        match self {
            Argument::Json(Value::Array(list)) => list.iter().map(Value::as_i64).collect(),
            Argument::List(list) => list.iter().map(Argument::as_i64).collect(),
            other => other.as_i64().map(|n| vec![n]),
        }
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
