//! Tensor by tensor: a file with a fixed batch, at another batch, against its twin with a dynamic batch axis. Real twins, and
//! every dynamic file of the corpus frozen at a batch, as an exporter would that folds whatever it can.
//!
//! `MODEL=swin cargo test -p memfit-onnx --test twins -- --nocapture` prints what differs in files of that name.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use memfit_graph::{Binding, Graph, Inferred, NodeId, TensorId, Type, infer};
use std::collections::HashMap;
use std::path::Path;

fn imported(path: &Path) -> Graph {
    let mut graph = memfit_onnx::import_from(std::fs::File::open(path).unwrap()).unwrap().graph;
    common::forget_declared(&mut graph);
    graph
}

fn at(graph: &Graph, batch: u64) -> Result<Inferred, String> {
    let binding = Binding { batch: Some(batch), ..Binding::default() };
    infer(graph, &binding).map_err(|p| format!("{} problems, first: {}", p.len(), p[0]))
}

fn said(ty: &Type) -> String {
    format!("{} {}", ty.dtype().map_or("?", |d| d.name()), ty.shape().map_or("?".into(), |s| s.to_string()))
}

/// Whether a node reads a tensor whose shape follows the batch.
fn reads_batch(graph: &Graph, node: Option<NodeId>, one: &Inferred, other: &Inferred) -> bool {
    let node = node.map(|id| &graph.nodes[id.index()]);
    node.is_some_and(|n| n.inputs.iter().flatten().any(|id| one.types[id.index()] != other.types[id.index()]))
}

#[test]
fn a_fixed_batch_is_replaced_as_if_it_were_dynamic() {
    let wanted = std::env::var("MODEL").unwrap_or_default();
    let (mut same, mut wrong, mut stayed) = (0, 0, 0);
    for path in common::files("corpus/onnx", ".onnx") {
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.contains("_b1") || !name.contains(&wanted) {
            continue;
        }
        let fixed = imported(&path);
        // Where the same export has no dynamic twin, another export of the model has the same outputs.
        let twin = path.with_file_name(name.replace("_b1", ""));
        let model = name.split('.').next().unwrap();
        let others = || common::files("corpus/onnx", ".onnx").into_iter();
        let is_dynamic = |p: &std::path::PathBuf| {
            let other = p.file_name().unwrap().to_str().unwrap();
            other.starts_with(&format!("{model}.")) && !other.contains("_b1")
        };
        let is_twin = twin.exists();
        let dynamic = imported(&if is_twin { twin } else { others().find(is_dynamic).unwrap() });
        let ids: HashMap<&str, TensorId> =
            (0..).map(TensorId).zip(&dynamic.tensors).map(|(id, t)| (&*t.name, id)).collect();
        let one = (at(&fixed, 1).unwrap(), at(&dynamic, 1).unwrap());
        for batch in [2, 7] {
            let at_batch = match (at(&fixed, batch), at(&dynamic, batch)) {
                (Ok(found), Ok(expected)) => (found, expected),
                (found, expected) => {
                    wrong += 1;
                    println!("{name} at {batch}: {:?} {:?}", found.err(), expected.err());
                    continue;
                }
            };
            let outputs = fixed.outputs.iter().copied().zip(dynamic.outputs.iter().copied());
            let named =
                (0..).map(TensorId).zip(&fixed.tensors).filter_map(|(id, t)| Some((id, *ids.get(&*t.name)?)));
            let makers = (fixed.producers(), dynamic.producers());
            let op = |graph: &Graph, node: Option<NodeId>| {
                node.map_or("nothing", |n| graph.nodes[n.index()].op.name()).to_owned()
            };
            for (f, d) in outputs.chain(named.filter(|_| is_twin)) {
                // A name that exporters count up (`val_3`) may stand for something else in the other file.
                let made = op(&fixed, makers.0[f.index()]);
                let at_one = said(&one.1.types[d.index()]);
                if made != op(&dynamic, makers.1[d.index()]) || said(&one.0.types[f.index()]) != at_one {
                    continue;
                }
                let (found, expected) =
                    (said(&at_batch.0.types[f.index()]), said(&at_batch.1.types[d.index()]));
                if found == expected {
                    same += 1;
                } else if found == at_one && !reads_batch(&fixed, makers.0[f.index()], &one.0, &at_batch.0) {
                    // It hangs on constants alone, as a baked `Range` does, and broadcasts.
                    stayed += 1;
                } else {
                    wrong += 1;
                    println!(
                        "{name} at {batch}: {} ({made}): expected {expected}, found {found}",
                        fixed.tensor(f).name
                    );
                }
            }
        }
    }
    println!("{same} the same, {wrong} not, {stayed} stayed");
    assert_eq!(wrong, 0);
}

/// The graph as an exporter would write it that folds whatever depends on sizes alone: every folded result becomes a
/// constant, and every input gets a fixed shape.
fn frozen(graph: &Graph, batch: u64) -> Option<Graph> {
    let inferred = at(graph, batch).ok()?;
    let mut fixed = graph.clone();
    for id in &graph.inputs {
        fixed.tensors[id.index()].declared = inferred.types[id.index()].clone();
    }
    let known = |id: &TensorId| inferred.value(*id).is_some_and(memfit_graph::Value::is_known);
    fixed.nodes.retain(|n| !n.outputs.iter().flatten().all(known));
    for node in graph.nodes.iter().filter(|n| n.outputs.iter().flatten().all(known)) {
        for id in node.outputs.iter().flatten() {
            let tensor = &mut fixed.tensors[id.index()];
            tensor.role = memfit_graph::Role::Constant;
            tensor.declared = inferred.types[id.index()].clone();
            tensor.value = inferred.values[id.index()].clone();
        }
    }
    Some(fixed)
}

#[test]
fn frozen_files_follow_the_batch_too() {
    let wanted = std::env::var("MODEL").unwrap_or_default();
    let (mut same, mut wrong, mut stayed) = (0, 0, 0);
    let mut refused = 0;
    for path in common::files("corpus/onnx", ".onnx") {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.contains("_b1") || !name.contains(&wanted) {
            continue;
        }
        let dynamic = imported(&path);
        for traced in [1, 2] {
            let Some(fixed) = frozen(&dynamic, traced) else { continue };
            let (old, expected) = (at(&fixed, traced).unwrap(), at(&dynamic, 5).unwrap());
            let found = match at(&fixed, 5) {
                Ok(found) => found,
                Err(problem) => {
                    refused += 1;
                    println!("{name} frozen at {traced}: {problem}");
                    continue;
                }
            };
            let makers = fixed.producers();
            for (i, tensor) in fixed.tensors.iter().enumerate() {
                let (Some(node), ty) = (makers[i], &found.types[i]) else { continue };
                if said(ty) == said(&expected.types[i]) {
                    same += 1;
                } else if said(ty) == said(&old.types[i])
                    && !fixed.outputs.contains(&TensorId(i as u32))
                    && !reads_batch(&fixed, Some(node), &old, &found)
                {
                    stayed += 1;
                } else {
                    wrong += 1;
                    println!(
                        "{name} frozen at {traced}: {} ({}): expected {}, found {}",
                        tensor.name,
                        fixed.nodes[node.index()].op.name(),
                        said(&expected.types[i]),
                        said(ty)
                    );
                }
            }
        }
    }
    println!("{same} the same, {wrong} not, {stayed} stayed, {refused} refused");
    assert_eq!((wrong, refused), (0, 0));
}
