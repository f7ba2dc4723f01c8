//! Training the head alone: no gradients, no optimizer state and no saved activations for the rest.

use super::{Change, Kind, Level, Situation};
use crate::{Mode, Model};
use memfit_graph::Role;
use std::collections::BTreeSet;

pub(super) const CHANGE: Change = Change {
    name: "freeze",
    effort: 3,
    kind: Kind::Step,
    cost: "only the last module learns; for a model that is trained already",
    levels,
};

fn levels(model: &Model, now: &Situation) -> Vec<Level> {
    let Some((head, rest)) = modules(model) else { return Vec::new() };
    if now.plan.mode != Mode::Train || !now.plan.freeze.is_empty() {
        return Vec::new();
    }
    let mut situation = now.clone();
    situation.plan.freeze = rest;
    let title = format!("train {head} alone");
    let values = [("HEAD", head.replace(['"', '\\', '\n'], "_"))];
    CHANGE.level(title, situation, &values).into_iter().collect()
}

/// The last module that has weights, by the first component of their names (`head.weight`; of Keras' layers `head/kernel`), and globs of
/// all other weights. A parameter of the model itself (`class_token`) has a name without a module, and one that an exporter named anew
/// (`onnx::MatMul_12`) belongs to the module that reads it.
fn modules(model: &Model) -> Option<(String, Vec<String>)> {
    let graph = model.graph();
    let between = if model.is_keras() { '/' } else { '.' };
    let all_of = format!("{between}*");
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for node in &graph.nodes {
        for id in node.inputs.iter().flatten() {
            let tensor = graph.tensor(*id);
            let float = tensor.declared.dtype().is_some_and(|d| d.is_float());
            if tensor.role != Role::Initializer || !float {
                continue;
            }
            let entry = match tensor.name.split_once(between) {
                Some((module, _)) => (Some(module), format!("{module}{all_of}")),
                None => (node.scope.split(between).next().filter(|m| !m.is_empty()), tensor.name.to_string()),
            };
            if seen.insert(entry.clone()) {
                found.push(entry);
            }
        }
    }
    let head = found.iter().rev().find_map(|(module, glob)| module.filter(|_| glob.ends_with(&all_of)))?;
    let rest = found.iter().filter(|(module, _)| *module != Some(head)).map(|(_, glob)| glob.clone());
    let rest: Vec<String> = rest.collect();
    rest.iter().any(|glob| glob.ends_with(&all_of)).then(|| (head.into(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{Attributes, DType, Graph, Shape, Type};

    #[test]
    fn all_but_the_head_is_frozen() {
        let mut g = Graph::default();
        let ty = || Type::tensor(DType::Float32, Shape::from([4, 4]));
        let mut x = g.add_tensor("x", ty(), Role::Input);
        g.inputs = vec![x];
        let weights = [
            ("class_token", ""),
            ("onnx::MatMul_7", "body.mlp"),
            ("body.fc.weight", "body.fc"),
            ("onnx::MatMul_9", "head"),
        ];
        for (name, scope) in weights.into_iter().chain([("head.weight", "head")]) {
            let w = g.add_tensor(name, ty(), Role::Initializer);
            x = g.push("MatMul", Attributes::default(), &[x, w], &format!("y of {name}")).unwrap();
            g.nodes.last_mut().unwrap().scope = scope.into();
        }
        g.outputs = vec![x];
        let (head, rest) = modules(&Model::new(g, "m", "onnx", 5)).unwrap();
        assert_eq!(
            (&*head, rest),
            ("head", ["class_token", "onnx::MatMul_7", "body.*"].map(String::from).to_vec())
        );
    }
}
