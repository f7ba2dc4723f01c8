//! What stands in a model's list of layers: an input, a layer, or a model of its own.

use crate::builder::{Builder, Flow, Layered, Request};
use crate::config::refused;
use crate::functional::Functional;
use crate::layer::Keras;
use crate::object::Object;
use crate::policy;
use crate::reader::Reader;
use crate::sequential::Sequential;
use crate::spec::Spec;
use memfit_graph::{DType, Dim, Problem, Shape};
use serde_json::Value;
use std::cell::RefCell;
use std::rc::Rc;

/// One entry of a model's list of layers.
#[derive(Debug)]
pub(crate) enum Item {
    Input { spec: Spec },
    Layer(Rc<RefCell<Layered>>),
    Model(Box<Model>),
}

/// A model.
#[derive(Debug)]
pub(crate) enum Model {
    Functional(Functional),
    Sequential(Sequential),
}

/// What is said of a model whose config does not hold its layers.
const SUBCLASSED: &str =
    "the model is a Python class of its own (subclassed), so its file does not hold its layers";
const SUBCLASSED_HINT: &str = "rebuild it with the functional API (outputs = model.call(keras.Input(...)), then keras.Model(inputs, outputs)), \
     or export it to ONNX (model.export(\"model.onnx\", format=\"onnx\")) and give that";

impl Item {
    /// Reads an entry.
    pub(crate) fn read(
        object: &Object<'_>,
        reader: &Reader<'_>,
        within: bool,
        path: &str,
    ) -> Result<Item, Vec<Problem>> {
        if object.class_name == "InputLayer" {
            let spec = input_spec(object.config, object.name()).map_err(|message| {
                let mut problem = Problem::new(path, message);
                problem.op = object.class().to_owned();
                vec![problem]
            })?;
            return Ok(Item::Input { spec });
        }
        if Model::is(object) {
            return Model::read(object, reader, within, path).map(|m| Item::Model(Box::new(m)));
        }
        let layer = reader.layer(object, within).map_err(|message| {
            let mut problem = Problem::new(path, message);
            problem.op = object.class().to_owned();
            vec![problem]
        })?;
        Ok(Item::Layer(layer))
    }

    /// Calls it.
    pub(crate) fn call(&mut self, builder: &mut Builder<'_>, request: Request<'_>) -> Vec<Flow> {
        match self {
            // An input that is called is an identity; Keras writes no such node.
            Item::Input { .. } => request.tensors,
            Item::Layer(layer) => builder.call(&mut layer.borrow_mut(), request),
            Item::Model(_) if !builder.enters(request.path) => Vec::new(),
            Item::Model(model) => {
                let first = request.arguments.first();
                let inputs: Vec<Flow> = match first.is_empty() {
                    true => request.tensors,
                    false => first.into_iter().filter_map(|i| request.tensors.get(i).cloned()).collect(),
                };
                model.run(builder, request.path, &inputs)
            }
        }
    }
}

impl Model {
    /// Whether the object is a model rather than a layer.
    pub(crate) fn is(object: &Object<'_>) -> bool {
        let named = matches!(object.class_name, "Sequential" | "Functional" | "Model" | "ModuleWrapper");
        (named && (object.is_builtin() || !object.module.is_empty()))
            || (object.config.get("layers").is_some() && object.config.get("input_layers").is_some())
    }

    /// Reads a model, nested ones included.
    pub(crate) fn read(
        object: &Object<'_>,
        reader: &Reader<'_>,
        within: bool,
        path: &str,
    ) -> Result<Model, Vec<Problem>> {
        let config = object.config;
        // Keras 3 sets a model's flag before it has its layers, so within another model the layers' own flags count
        // (models/functional.py, `Functional.__init__`); Keras 2 gathers nothing from a model that is frozen.
        let flagged = path.is_empty() || reader.keras != Keras::V3;
        let within = within && (!flagged || config.get("trainable").and_then(Value::as_bool).unwrap_or(true));
        if config.get("input_layers").is_some() && config.get("layers").is_some() {
            return Functional::read(config, reader, within, path).map(Model::Functional);
        }
        if object.class_name == "Sequential" {
            return Sequential::read(object, reader, within, path).map(Model::Sequential);
        }
        let mut problem = Problem::new(if path.is_empty() { "model" } else { path }, SUBCLASSED);
        problem.op = object.class().to_owned();
        Err(vec![problem.hint(SUBCLASSED_HINT)])
    }

    /// The inputs that it declares, or what is missing to tell them.
    pub(crate) fn declared_inputs(&self, builder: &Builder<'_>) -> Result<Vec<(String, Spec)>, Problem> {
        match self {
            Model::Functional(model) => Ok(model.declared_inputs()),
            Model::Sequential(model) => model.declared_input(builder.options).map(|i| vec![i]),
        }
    }

    /// Calls it on `inputs`.
    pub(crate) fn run(&mut self, builder: &mut Builder<'_>, path: &str, inputs: &[Flow]) -> Vec<Flow> {
        let expected = match self {
            Model::Functional(model) => model.input_count(),
            Model::Sequential(_) => 1,
        };
        if inputs.len() != expected {
            builder.problem(path, "", format!("expected {expected} input(s), found {}", inputs.len()));
            return Vec::new();
        }
        match self {
            Model::Functional(model) => model.run(builder, path, inputs),
            Model::Sequential(model) => model.run(builder, path, inputs),
        }
    }
}

/// The spec that an `InputLayer` declares: `batch_shape` (Keras 3), `batch_input_shape` (Keras 2), or `shape` without the batch.
fn input_spec(config: &Value, name: &str) -> Result<Spec, String> {
    let list = |key: &str| config.get(key).and_then(Value::as_array);
    let dtype = match config.get("dtype").filter(|dtype| !dtype.is_null()) {
        None => DType::Float32,
        Some(given) => {
            let known = given.as_str().and_then(policy::dtype);
            known.ok_or_else(|| refused("dtype", "the name of a dtype", given))?
        }
    };
    let shape = match list("batch_shape").or_else(|| list("batch_input_shape")) {
        Some(dims) => dims_of(dims, name),
        None => {
            let rest = list("shape").or_else(|| list("input_shape")).map_or(&[][..], |v| &v[..]);
            dims_of(&[&[Value::Null], rest].concat(), name)
        }
    };
    Ok(Spec::new(shape, dtype))
}

/// Dims with their batch first; open ones become symbols: `batch`, then `<name>_d1`.
pub(crate) fn dims_of(dims: &[Value], name: &str) -> Shape {
    let dim = |(i, value): (usize, &Value)| match (value.as_u64(), i) {
        (Some(n), _) => Dim::Known(n),
        (None, 0) => Dim::symbol("batch"),
        (None, i) => Dim::symbol(&format!("{name}_d{i}")),
    };
    dims.iter().enumerate().map(dim).collect()
}

/// The version of Keras that wrote this object, where nothing else says it: version 2 writes no module beside the model's class.
pub(crate) fn keras_of(root: &Value, version: Option<&str>) -> Keras {
    let version = version.or_else(|| root.get("keras_version").and_then(Value::as_str));
    let mut numbers = version.into_iter().flat_map(|v| v.split('.')).map_while(|n| n.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), _) if major > 2 => Keras::V3,
        (None, _) if root.get("module").is_some() => Keras::V3,
        (Some(2), Some(minor)) => Keras::V2(minor),
        (Some(..2), _) => Keras::V2(0),
        _ => Keras::V2(u32::MAX),
    }
}
