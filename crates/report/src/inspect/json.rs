//! An inspection as JSON: `{"tensors": {NAME: {"dtype": "float32", "shape": [8, 64, 56, 56]}}, …}`.
//!
//! A dim that is not known is null, and so is a shape whose rank is not known. A sequence is `{"sequence": [item, …]}`, null
//! where its length is not known; an absent optional is `{"optional": null}`, a present one is written as what it holds.

use super::Inspection;
use crate::json::{SCHEMA_VERSION, TOOL, Tool, to_text};
use memfit_graph::{DType, Dim, TensorId, TensorType, Type};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::collections::BTreeMap;

/// The inspection as indented JSON, with a line break at the end.
pub fn inspection(i: &Inspection<'_>) -> String {
    let names = |ids: &[TensorId]| ids.iter().map(|id| i.graph.tensor(*id).name.to_string()).collect();
    to_text(&Document {
        schema_version: SCHEMA_VERSION,
        tool: TOOL,
        model: Model {
            name: i.name,
            format: i.format,
            producer: i.producer,
            opset: i.opset,
            operators: i.operators,
        },
        inputs: names(&i.graph.inputs),
        outputs: names(&i.graph.outputs),
        tensors: Tensors(i),
        operators: i.histogram(),
        unknown: i.unknown(),
        warnings: i.warnings,
    })
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    tool: Tool,
    model: Model<'a>,
    inputs: Vec<String>,
    outputs: Vec<String>,
    tensors: Tensors<'a>,
    operators: BTreeMap<&'a str, u64>,
    unknown: Vec<&'a str>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Model<'a> {
    name: &'a str,
    format: &'a str,
    producer: &'a str,
    opset: Option<i64>,
    operators: u64,
}

/// All tensors in the graph's order.
struct Tensors<'a>(&'a Inspection<'a>);

impl Serialize for Tensors<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(
            self.0.graph.tensors.iter().zip(&self.0.inferred.types).map(|(t, ty)| (&*t.name, Shown(ty))),
        )
    }
}

/// A type as the schema writes it.
struct Shown<'a>(&'a Type);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Type::Unknown => tensor(s, None, false),
            Type::Tensor(t) => tensor(s, Some(t), false),
            Type::Sparse(t) => tensor(s, Some(t), true),
            Type::Sequence { items: Some(items), .. } => {
                one(s, "sequence", Some(items.iter().map(Shown).collect::<Vec<_>>()))
            }
            Type::Sequence { element, items: None } => {
                let mut map = s.serialize_map(Some(2))?;
                map.serialize_entry("sequence", &None::<()>)?;
                map.serialize_entry("element", &Shown(element))?;
                map.end()
            }
            Type::Optional { present: Some(true), element } => Shown(element).serialize(s),
            Type::Optional { present: Some(false), .. } => one(s, "optional", None::<()>),
            Type::Optional { present: None, element } => one(s, "optional", Some(Shown(element))),
            Type::Map(values) => one(s, "map", Some(Shown(values))),
        }
    }
}

fn one<S: Serializer>(s: S, key: &str, value: Option<impl Serialize>) -> Result<S::Ok, S::Error> {
    s.collect_map([(key, value)])
}

fn tensor<S: Serializer>(s: S, t: Option<&TensorType>, sparse: bool) -> Result<S::Ok, S::Error> {
    let dtype = t.map(|t| t.dtype).filter(|d| *d != DType::Undefined).map(DType::name);
    let shape = t.and_then(|t| t.shape.as_ref());
    let shape: Option<Vec<Option<u64>>> = shape.map(|s| s.dims().iter().map(Dim::known).collect());
    let mut map = s.serialize_map(None)?;
    map.serialize_entry("dtype", &dtype)?;
    map.serialize_entry("shape", &shape)?;
    if sparse {
        map.serialize_entry("sparse", &true)?;
    }
    map.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::Shape;

    fn json(ty: &Type) -> String {
        serde_json::to_string(&Shown(ty)).unwrap()
    }

    #[test]
    fn what_is_not_known_is_null() {
        let shape: Shape = [Dim::symbol("batch"), Dim::Known(3)].into_iter().collect();
        let tensor = Type::tensor(DType::Float32, shape);
        assert_eq!(json(&tensor), r#"{"dtype":"float32","shape":[null,3]}"#);
        assert_eq!(json(&Type::Unknown), r#"{"dtype":null,"shape":null}"#);
        let scalar = Type::tensor(DType::Int64, Shape::scalar());
        assert_eq!(
            json(&Type::sequence(vec![scalar.clone()])),
            r#"{"sequence":[{"dtype":"int64","shape":[]}]}"#
        );
        let element = Box::new(scalar);
        let optional = |present| Type::Optional { element: element.clone(), present };
        assert_eq!(json(&optional(Some(false))), r#"{"optional":null}"#);
        assert_eq!(json(&optional(Some(true))), r#"{"dtype":"int64","shape":[]}"#);
        let open = Type::Sequence { element, items: None };
        assert_eq!(json(&open), r#"{"sequence":null,"element":{"dtype":"int64","shape":[]}}"#);
    }
}
