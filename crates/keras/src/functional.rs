//! Functional models: layers that call each other.

mod order;

use crate::Recorded;
use crate::builder::{Builder, Flow, Request};
use crate::model::{Item, Model};
use crate::nodes::{MAX_OUTPUTS, Nodes, Pending, Reference};
use crate::object::Object;
use crate::reader::Reader;
use memfit_graph::Problem;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Debug)]
struct Entry {
    name: String,
    item: Item,
    calls: Vec<Pending>,
}

/// A functional model.
#[derive(Debug)]
pub(crate) struct Functional {
    entries: Vec<Entry>,
    inputs: Vec<Reference>,
    outputs: Vec<Reference>,
    recorded: HashMap<Reference, Recorded>,
}

impl Functional {
    /// Reads the config of a functional model.
    pub(crate) fn read(
        config: &Value,
        reader: &Reader<'_>,
        within: bool,
        path: &str,
    ) -> Result<Functional, Vec<Problem>> {
        let problem = |place: &str, message: String| Problem::new(join(path, place), message);
        let no_layers = || vec![problem("", "expected a list `layers` in its config".into())];
        let layers = config.get("layers").and_then(Value::as_array).ok_or_else(no_layers)?;
        let mut problems = Vec::new();
        let mut entries: Vec<Entry> = Vec::with_capacity(layers.len());
        let mut objects = Vec::with_capacity(layers.len());
        for (i, layer) in layers.iter().enumerate() {
            let object = match Object::read(layer) {
                Ok(object) => object,
                Err(message) => {
                    problems.push(problem(&format!("layer {i}"), message));
                    continue;
                }
            };
            let name = object.name();
            match Item::read(&object, reader, within, &join(path, name)) {
                Ok(item) => {
                    entries.push(Entry { name: name.to_owned(), item, calls: Vec::new() });
                    objects.push(object);
                }
                Err(found) => problems.extend(found),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut by_name = BTreeMap::new();
        for (i, object) in objects.iter().enumerate() {
            if by_name.insert(object.name(), i).is_some() {
                problems.push(problem(object.name(), "two layers have this name".into()));
            }
        }
        let mut nodes = Nodes::new(by_name);
        for (entry, object) in entries.iter_mut().zip(&objects) {
            let inbound = object.raw.get("inbound_nodes").and_then(Value::as_array);
            for node in inbound.into_iter().flatten() {
                match nodes.node(node) {
                    Ok(call) => {
                        if let (0, [one], Some(built)) =
                            (entry.calls.len(), &call.tensors[..], Recorded::of_build(object))
                        {
                            nodes.recorded.entry(*one).or_insert(built);
                        }
                        entry.calls.push(call);
                    }
                    Err(message) => problems.push(problem(&entry.name, message)),
                }
            }
        }
        let mut ends = |key: &str| {
            let found = nodes.references(config.get(key).unwrap_or(&Value::Null));
            found.unwrap_or_else(|message| {
                problems.push(problem("", format!("{key}: {message}")));
                Vec::new()
            })
        };
        let (mut inputs, mut outputs) = (ends("input_layers"), ends("output_layers"));
        if problems.is_empty() && (inputs.is_empty() || outputs.is_empty()) {
            problems.push(problem("", "expected `input_layers` and `output_layers` in its config".into()));
        }
        let recorded = nodes.recorded;
        count_calls_alone(&mut entries, inputs.iter_mut().chain(&mut outputs).collect(), is_recent(&objects));
        for reference in
            entries.iter().flat_map(|e| &e.calls).flat_map(|c| &c.tensors).chain(&inputs).chain(&outputs)
        {
            let Reference { layer, node, .. } = *reference;
            let entry = &entries[layer];
            let calls = if matches!(entry.item, Item::Input { .. }) { 1 } else { entry.calls.len() };
            if node >= calls {
                problems.push(problem(&entry.name, format!("its call {node} is read, but it has {calls}")));
            }
        }
        if problems.is_empty() {
            Ok(Functional { entries, inputs, outputs, recorded })
        } else {
            Err(problems)
        }
    }

    /// The input layers with the names and specs that they declare.
    pub(crate) fn declared_inputs(&self) -> Vec<(String, crate::spec::Spec)> {
        let entry = |r: &Reference| match &self.entries[r.layer].item {
            Item::Input { spec } => Some((self.entries[r.layer].name.clone(), spec.clone())),
            _ => None,
        };
        self.inputs.iter().filter_map(entry).collect()
    }

    /// How many tensors the model is called on.
    pub(crate) fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Calls every layer on `inputs`. Variables are made in the file's order, nodes stand in Keras' own.
    pub(crate) fn run(&mut self, builder: &mut Builder<'_>, path: &str, inputs: &[Flow]) -> Vec<Flow> {
        let mut made: HashMap<Reference, Flow> = HashMap::new();
        for (reference, flow) in self.inputs.iter().zip(inputs) {
            made.insert(*reference, flow.clone());
        }
        let mut wanted: HashMap<(usize, usize), usize> = HashMap::new();
        let mut readers: HashMap<(usize, usize), Vec<(usize, usize)>> = HashMap::new();
        let mut waiting: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut ready = BTreeSet::new();
        let (ranks, first) = (self.ranks(), builder.graph.nodes.len());
        let mut ranked = Vec::new();
        for (layer, entry) in self.entries.iter().enumerate() {
            for (node, call) in entry.calls.iter().enumerate() {
                let sources: BTreeSet<(usize, usize)> = call
                    .tensors
                    .iter()
                    .filter(|r| !made.contains_key(*r))
                    .map(|r| (r.layer, r.node))
                    .collect();
                for reference in &call.tensors {
                    let count = wanted.entry((reference.layer, reference.node)).or_default();
                    *count = (*count).max(reference.tensor + 1);
                }
                for source in &sources {
                    readers.entry(*source).or_default().push((layer, node));
                }
                if sources.is_empty() {
                    ready.insert((layer, node));
                } else {
                    waiting.insert((layer, node), sources.len());
                }
            }
        }
        while let Some((layer, node)) = ready.pop_first() {
            let entry = &mut self.entries[layer];
            let call = &entry.calls[node];
            let tensors: Vec<Flow> = call.tensors.iter().filter_map(|r| made.get(r).cloned()).collect();
            let outputs = if tensors.len() < call.tensors.len() {
                // The missing ones were reported where they should have been made.
                Vec::new()
            } else {
                let count = wanted.get(&(layer, node)).copied().unwrap_or(1).min(MAX_OUTPUTS);
                let recorded =
                    (0..count).map(|tensor| self.recorded.get(&Reference { layer, node, tensor }).cloned());
                let request = Request {
                    path: &join(path, &entry.name),
                    arguments: call.arguments.clone(),
                    tensors,
                    recorded: recorded.collect(),
                };
                entry.item.call(builder, request)
            };
            let rank = ranks.get(&(layer, node)).copied().unwrap_or(usize::MAX);
            ranked.resize(builder.graph.nodes.len() - first, rank);
            for (tensor, flow) in outputs.into_iter().enumerate() {
                made.insert(Reference { layer, node, tensor }, flow);
            }
            for reader in readers.remove(&(layer, node)).unwrap_or_default() {
                if let Some(left) = waiting.get_mut(&reader) {
                    *left -= 1;
                    if *left == 0 {
                        waiting.remove(&reader);
                        ready.insert(reader);
                    }
                }
            }
        }
        builder.masks_follow(first, &mut ranked);
        order::sort(&mut builder.graph, first, &ranked);
        if let Some((layer, _)) = waiting.keys().next() {
            let name = join(path, &self.entries[*layer].name);
            builder.problem(
                &name,
                "",
                "the layer depends on its own output, or on an input that the model does not list",
            );
        }
        let outputs: Vec<Flow> = self.outputs.iter().filter_map(|r| made.get(r).cloned()).collect();
        if outputs.len() < self.outputs.len() && builder.problems.is_empty() {
            builder.problem(path, "", "an output of the model is never made");
        }
        outputs
    }
}

/// Whether nodes are written as Keras 3 does.
fn is_recent(objects: &[Object<'_>]) -> bool {
    let nodes = |object: &Object<'_>| object.raw.get("inbound_nodes").and_then(Value::as_array).cloned();
    objects.iter().filter_map(nodes).flatten().any(|node| node.is_object())
}

/// Makes what is read of models inside of this one their calls by number. Keras counts a node that joins such a model's inputs and outputs
/// before its calls: Keras 3 in `ends` of functional models alone (keras/src/models/functional.py, `get_config`), Keras 2 everywhere, and of
/// a sequential one where it has an input layer (engine/functional.py, `_should_skip_first_node`). There the last call's number tells it,
/// since a file holds those calls only that something reads.
fn count_calls_alone(entries: &mut [Entry], mut ends: Vec<&mut Reference>, is_recent: bool) {
    let is_functional =
        |entry: &Entry| matches!(&entry.item, Item::Model(model) if matches!(**model, Model::Functional(_)));
    if is_recent {
        for reference in ends.into_iter().filter(|r| is_functional(&entries[r.layer])) {
            reference.node = reference.node.saturating_sub(1);
        }
        return;
    }
    let calls: Vec<Option<usize>> =
        entries.iter().map(|e| matches!(e.item, Item::Model(_)).then_some(e.calls.len())).collect();
    let tensors = entries.iter_mut().flat_map(|e| &mut e.calls).flat_map(|c| &mut c.tensors);
    let mut all: Vec<&mut Reference> = tensors.chain(ends.drain(..)).collect();
    let is_past = |r: &&mut Reference| calls[r.layer] == Some(r.node);
    let later: BTreeSet<usize> = all.iter().filter(|r| is_past(r)).map(|r| r.layer).collect();
    for reference in all.iter_mut().filter(|r| later.contains(&r.layer)) {
        reference.node = reference.node.saturating_sub(1);
    }
}

/// A path below another.
pub(crate) fn join(path: &str, name: &str) -> String {
    match (path, name) {
        ("", name) => name.to_owned(),
        (path, "") => path.to_owned(),
        (path, name) => format!("{path}/{name}"),
    }
}
