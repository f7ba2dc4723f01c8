//! Sequential models: one layer after the other, with or without an input.
//!
//! keras/src/models/sequential.py. Keras 3 writes an `InputLayer` first if the model was built; Keras 2 may instead write
//! `batch_input_shape` into the first layer, and until 2.2.3 a config that is the list of layers itself.

use crate::Recorded;
use crate::arguments::Arguments;
use crate::builder::{Builder, Flow, Request};
use crate::functional::join;
use crate::model::{Item, dims_of};
use crate::object::Object;
use crate::options::Options;
use crate::policy;
use crate::reader::Reader;
use crate::spec::Spec;
use memfit_graph::{DType, Dim, Problem};
use serde_json::Value;

/// A sequential model.
#[derive(Debug)]
pub(crate) struct Sequential {
    input: Option<(String, Spec)>,
    layers: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    item: Item,
    /// What the layer was built for, which is what the one before it gave.
    built: Option<Recorded>,
}

impl Sequential {
    /// Reads the config of a sequential model.
    pub(crate) fn read(
        object: &Object<'_>,
        reader: &Reader<'_>,
        within: bool,
        path: &str,
    ) -> Result<Sequential, Vec<Problem>> {
        let list = object.config.get("layers").unwrap_or(object.config).as_array();
        let Some(list) = list else {
            return Err(vec![Problem::new(path, "expected a list of layers in its config")]);
        };
        let (mut problems, mut layers, mut input) = (Vec::new(), Vec::new(), None);
        for (i, layer) in list.iter().enumerate() {
            let object = match Object::read(layer) {
                Ok(object) => object,
                Err(message) => {
                    problems.push(Problem::new(join(path, &format!("layer {i}")), message));
                    continue;
                }
            };
            let name = object.name();
            if i == 0 {
                input = first_shape(&object);
            }
            match Item::read(&object, reader, within, &join(path, name)) {
                Ok(Item::Input { spec }) => input = Some((name.to_owned(), spec)),
                Ok(item) => {
                    let built = Recorded::of_build(&object);
                    layers.push(Entry { name: name.to_owned(), item, built });
                }
                Err(found) => problems.extend(found),
            }
        }
        let dtype = input.as_ref().map_or(DType::Float32, |(_, spec)| spec.dtype);
        let built = object.config.get("build_input_shape");
        let built =
            built.or_else(|| object.raw.get("build_config")?.get("input_shape")).and_then(Value::as_array);
        if let (None, Some(dims)) = (&input, built) {
            input = Some(("input_layer".to_owned(), Spec::new(dims_of(dims, "input_layer"), dtype)));
        }
        if problems.is_empty() { Ok(Sequential { input, layers }) } else { Err(problems) }
    }

    /// The input that it declares, or that the user gives for it.
    pub(crate) fn declared_input(&self, options: &Options) -> Result<(String, Spec), Problem> {
        if let Some(input) = &self.input {
            return Ok(input.clone());
        }
        let given = options.inputs.get("input_layer").or_else(|| options.inputs.get(""));
        let given = given.or_else(|| options.inputs.values().next().filter(|_| options.inputs.len() == 1));
        let Some(dims) = given.filter(|d| !d.is_empty()) else {
            let message =
                "the model was saved before it was built, so its file does not tell the shape of its input";
            return Err(
                Problem::new("model", message).hint("give it with the batch first: --input 32x224x224x3")
            );
        };
        let dims = dims.iter().enumerate();
        let dims = dims.map(|(i, n)| if i == 0 { Dim::symbol("batch") } else { Dim::Known(*n) });
        Ok(("input_layer".to_owned(), Spec::new(dims.collect(), DType::Float32)))
    }

    /// Calls every layer on what the one before gave.
    pub(crate) fn run(&mut self, builder: &mut Builder<'_>, path: &str, inputs: &[Flow]) -> Vec<Flow> {
        let mut flow = inputs.to_vec();
        for i in 0..self.layers.len() {
            let recorded = self.layers.get(i + 1).and_then(|next| next.built.clone());
            let Some(Entry { name, item, .. }) = self.layers.get_mut(i) else { break };
            let request = Request {
                path: &join(path, name),
                arguments: Arguments::plain(flow.len()),
                tensors: flow,
                recorded: vec![recorded],
            };
            flow = item.call(builder, request);
        }
        flow
    }
}

/// The input that Keras 2 writes into the first layer.
fn first_shape(object: &Object<'_>) -> Option<(String, Spec)> {
    let dims =
        object.config.get("batch_input_shape").or_else(|| object.config.get("batch_shape"))?.as_array()?;
    let name = format!("{}_input", object.name());
    let dtype = object.config.get("dtype").and_then(Value::as_str).and_then(policy::dtype);
    Some((name.clone(), Spec::new(dims_of(dims, &name), dtype.unwrap_or(DType::Float32))))
}
