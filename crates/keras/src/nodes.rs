//! The nodes of a functional model: which calls of which layers a call reads, in the two forms that Keras writes.
//!
//! Keras 3: a node holds `args` and `kwargs` in which tensors are `{"class_name": "__keras_tensor__", "config": {"shape", "dtype",
//! "keras_history": [layer, node, tensor]}}` (keras/src/models/functional.py, `serialize_node`). Keras 2: a node is a structure of
//! `[layer, node, tensor, kwargs]` (engine/functional.py, `get_network_config`). Both may stand in one file's nested models.

use crate::Recorded;
use crate::arguments::{Argument, Arguments};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// Output `tensor` of call `node` of layer `layer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reference {
    pub(crate) layer: usize,
    pub(crate) node: usize,
    pub(crate) tensor: usize,
}

/// A call as the file writes it: its arguments, and what their tensors are.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) arguments: Arguments,
    pub(crate) tensors: Vec<Reference>,
}

/// Reads nodes: names become references, and what the file records of a tensor is kept.
pub(crate) struct Nodes<'a> {
    by_name: BTreeMap<&'a str, usize>,
    pub(crate) recorded: HashMap<Reference, Recorded>,
    tensors: Vec<Reference>,
}

/// A layer gives at most this many tensors.
pub(crate) const MAX_OUTPUTS: usize = 4096;

impl<'a> Nodes<'a> {
    /// For a model whose layers have these names.
    pub(crate) fn new(by_name: BTreeMap<&'a str, usize>) -> Nodes<'a> {
        Nodes { by_name, recorded: HashMap::new(), tensors: Vec::new() }
    }

    /// One node.
    pub(crate) fn node(&mut self, node: &'a Value) -> Result<Pending, String> {
        self.tensors.clear();
        let arguments = match node {
            Value::Object(object) if object.contains_key("args") || object.contains_key("kwargs") => {
                let positional = match object.get("args") {
                    Some(Value::Array(args)) => {
                        args.iter().map(|a| self.argument(a)).collect::<Result<_, _>>()?
                    }
                    _ => Vec::new(),
                };
                let named = match object.get("kwargs") {
                    Some(Value::Object(named)) => named
                        .iter()
                        .map(|(k, v)| Ok((k.clone(), self.argument(v)?)))
                        .collect::<Result<_, String>>()?,
                    _ => BTreeMap::new(),
                };
                Arguments { positional, named }
            }
            legacy => {
                let mut named = BTreeMap::new();
                let first = self.legacy(legacy, &mut named)?;
                let first = match first {
                    Argument::List(mut list) if list.len() == 1 => list.remove(0),
                    first => first,
                };
                Arguments { positional: vec![first], named }
            }
        };
        Ok(Pending { arguments, tensors: std::mem::take(&mut self.tensors) })
    }

    /// The structure of `[layer, node, tensor, kwargs]` that Keras 2 writes, which also gives the call its named arguments.
    fn legacy(
        &mut self,
        value: &'a Value,
        named: &mut BTreeMap<String, Argument>,
    ) -> Result<Argument, String> {
        let Value::Array(list) = value else {
            return match value {
                Value::Object(map) => {
                    let map = map.iter().map(|(k, v)| Ok((k.clone(), self.legacy(v, named)?)));
                    Ok(Argument::Map(map.collect::<Result<_, String>>()?))
                }
                other => Ok(Argument::Json(other.clone())),
            };
        };
        if let [Value::String(name), Value::Number(node), rest @ ..] = &list[..] {
            if let Some(Value::Object(kwargs)) = rest.get(1) {
                for (key, value) in kwargs {
                    let value = self.keyword(value)?;
                    named.insert(key.clone(), value);
                }
            }
            if name == "_CONSTANT_VALUE" {
                return Ok(Argument::Json(rest.first().cloned().unwrap_or_default()));
            }
            let index = rest.first().and_then(Value::as_u64).unwrap_or(0);
            return self.reference(name, node.as_u64(), Some(index)).map(|r| self.tensor(r));
        }
        list.iter().map(|v| self.legacy(v, named)).collect::<Result<_, _>>().map(Argument::List)
    }

    /// A named argument of Keras 2, in which `[layer, node, tensor]` is a tensor where there is such a layer.
    fn keyword(&mut self, value: &'a Value) -> Result<Argument, String> {
        match value {
            Value::Array(list) => match &list[..] {
                [Value::String(name), Value::Number(node), Value::Number(tensor), ..]
                    if self.by_name.contains_key(name.as_str()) =>
                {
                    self.reference(name, node.as_u64(), tensor.as_u64()).map(|r| self.tensor(r))
                }
                [Value::String(name), Value::Number(_), constant] if name == "_CONSTANT_VALUE" => {
                    Ok(Argument::Json(constant.clone()))
                }
                list if list.iter().any(Value::is_array) => {
                    list.iter().map(|v| self.keyword(v)).collect::<Result<_, _>>().map(Argument::List)
                }
                _ => Ok(Argument::Json(value.clone())),
            },
            other => Ok(Argument::Json(other.clone())),
        }
    }

    /// An argument of Keras 3.
    fn argument(&mut self, value: &'a Value) -> Result<Argument, String> {
        match value {
            Value::Array(list) => {
                list.iter().map(|v| self.argument(v)).collect::<Result<_, _>>().map(Argument::List)
            }
            Value::Object(object) => {
                let config = object.get("config").unwrap_or(&Value::Null);
                match object.get("class_name").and_then(Value::as_str) {
                    Some("__keras_tensor__") => {
                        let history = config.get("keras_history").and_then(Value::as_array);
                        let Some([Value::String(name), node, tensor]) = history.map(|h| &h[..]) else {
                            return Err("expected a tensor's `keras_history`".into());
                        };
                        let reference = self.reference(name, node.as_u64(), tensor.as_u64())?;
                        if let Some(recorded) = Recorded::read(config) {
                            self.recorded.insert(reference, recorded);
                        }
                        Ok(self.tensor(reference))
                    }
                    Some(_) => Ok(Argument::Json(value.clone())),
                    None => {
                        let map = object.iter().map(|(k, v)| Ok((k.clone(), self.argument(v)?)));
                        Ok(Argument::Map(map.collect::<Result<_, String>>()?))
                    }
                }
            }
            other => Ok(Argument::Json(other.clone())),
        }
    }

    fn tensor(&mut self, reference: Reference) -> Argument {
        self.tensors.push(reference);
        Argument::Tensor(self.tensors.len() - 1)
    }

    fn reference(&self, name: &str, node: Option<u64>, tensor: Option<u64>) -> Result<Reference, String> {
        let layer =
            *self.by_name.get(name).ok_or_else(|| format!("it reads from `{name}`, which is no layer"))?;
        let index = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok()).filter(|n| *n < 1 << 31);
        match (index(node), index(tensor)) {
            (Some(node), Some(tensor)) if tensor < MAX_OUTPUTS => Ok(Reference { layer, node, tensor }),
            _ => Err(format!("it reads from `{name}` by numbers that are none")),
        }
    }

    /// `input_layers` and `output_layers`: one reference, a list of them, or a dict.
    pub(crate) fn references(&self, value: &Value) -> Result<Vec<Reference>, String> {
        match value {
            Value::Array(list) => match &list[..] {
                [Value::String(name), node, tensor] => {
                    self.reference(name, node.as_u64(), tensor.as_u64()).map(|r| vec![r])
                }
                list => Ok(list.iter().map(|v| self.references(v)).collect::<Result<Vec<_>, _>>()?.concat()),
            },
            Value::Object(map) => {
                Ok(map.values().map(|v| self.references(v)).collect::<Result<Vec<_>, _>>()?.concat())
            }
            _ => Ok(Vec::new()),
        }
    }
}
