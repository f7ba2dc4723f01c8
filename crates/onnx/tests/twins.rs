//! Tensor by tensor: a file with a fixed batch, at another batch, against its twin with a dynamic batch axis. Real twins, and
//! every dynamic file of the corpus frozen at a batch, as an exporter would that folds whatever it can.
//!
//! `MODEL=swin cargo test -p memfit-onnx --test twins -- --nocapture` prints what differs in files of that name.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use memfit_graph::{Binding, Graph, Inferred, Node, NodeId, Role, TensorId, Type, Value, infer};
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

#[derive(Default)]
struct Counts {
    same: u64,
    wrong: u64,
    /// What hangs on constants alone, as a baked `Range` does, keeps its batch and broadcasts.
    stayed: u64,
}

impl Counts {
    /// Compares a tensor; `ids` in `fixed` and where `expected` was inferred.
    fn compare(&mut self, pair: &Pair<'_>, (f, d): (TensorId, TensorId), made_by: Option<NodeId>) {
        let (found, expected) = (&pair.found.types[f.index()], &pair.expected.types[d.index()]);
        let follows = pair.fixed.outputs.contains(&f) || reads_batch(pair, made_by);
        if said(found) == said(expected) {
            self.same += 1;
        } else if said(found) == said(&pair.exported.types[f.index()]) && !follows {
            self.stayed += 1;
        } else {
            self.wrong += 1;
            let op = made_by.map_or("nothing", |n| pair.fixed.nodes[n.index()].op.name());
            let name = &pair.fixed.tensor(f).name;
            println!("{}: {name} ({op}): expected {}, found {}", pair.name, said(expected), said(found));
        }
    }

    fn refuse(&mut self, name: &str, problem: &str) {
        self.wrong += 1;
        println!("{name}: {problem}");
    }
}

/// A fixed graph as it was exported and at another batch, with what is expected there.
struct Pair<'p> {
    name: &'p str,
    fixed: &'p Graph,
    exported: Inferred,
    found: Inferred,
    expected: Inferred,
}

/// Whether a node reads a tensor whose shape follows the batch.
fn reads_batch(pair: &Pair<'_>, node: Option<NodeId>) -> bool {
    let inputs = node.into_iter().flat_map(|id| pair.fixed.nodes[id.index()].inputs.iter().flatten());
    let changed = |id: &TensorId| pair.exported.types[id.index()] != pair.found.types[id.index()];
    inputs.into_iter().any(changed)
}

/// Runs a comparison on all files whose name suits, and wants nothing to be wrong.
fn compare_all(suits: impl Fn(&str) -> bool, compare: impl Fn(&Path, &str, &mut Counts) + Sync) {
    let wanted = std::env::var("MODEL").unwrap_or_default();
    let mut files = common::files("corpus/onnx", ".onnx");
    files.retain(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.contains(&wanted) && suits(name)
    });
    let counts = common::in_parallel(files, |path| {
        let mut counts = Counts::default();
        compare(&path, path.file_name().unwrap().to_str().unwrap(), &mut counts);
        counts
    });
    let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>();
    let (same, wrong, stayed) = (sum(|c| c.same), sum(|c| c.wrong), sum(|c| c.stayed));
    println!("{same} the same, {wrong} not, {stayed} keep the batch of a constant");
    assert_eq!(wrong, 0);
}

/// The dynamic twin of a file, and whether it is the same export: else it is another export of the model, which has the
/// same outputs.
fn twin(path: &Path, name: &str) -> (Graph, bool) {
    let same = path.with_file_name(name.replace("_b1", ""));
    if same.exists() {
        return (imported(&same), true);
    }
    let model = format!("{}.", name.split('.').next().unwrap());
    let other = common::files("corpus/onnx", ".onnx").into_iter().find(|p| {
        let other = p.file_name().unwrap().to_str().unwrap();
        other.starts_with(&model) && !other.contains("_b1")
    });
    (imported(&other.unwrap()), false)
}

#[test]
fn a_fixed_batch_is_replaced_as_if_it_were_dynamic() {
    compare_all(
        |name| name.contains("_b1"),
        |path, name, counts| {
            let fixed = imported(path);
            let (dynamic, same_export) = twin(path, name);
            let ids: HashMap<&str, TensorId> =
                (0..).map(TensorId).zip(&dynamic.tensors).map(|(id, t)| (&*t.name, id)).collect();
            let makers = (fixed.producers(), dynamic.producers());
            let at_one = at(&dynamic, 1).unwrap();
            for batch in [2, 7] {
                let (found, expected) = match (at(&fixed, batch), at(&dynamic, batch)) {
                    (Ok(found), Ok(expected)) => (found, expected),
                    (Err(problem), _) | (_, Err(problem)) => {
                        counts.refuse(name, &problem);
                        continue;
                    }
                };
                let exported = at(&fixed, 1).unwrap();
                let pair = Pair { name, fixed: &fixed, exported, found, expected };
                for (f, d) in fixed.outputs.iter().zip(&dynamic.outputs) {
                    counts.compare(&pair, (*f, *d), makers.0[f.index()]);
                }
                for (f, tensor) in (0..).map(TensorId).zip(&fixed.tensors).filter(|_| same_export) {
                    let Some(d) = ids.get(&*tensor.name) else { continue };
                    let op =
                        |g: &Graph, n: Option<NodeId>| n.map(|n| g.nodes[n.index()].op.name().to_owned());
                    let made = (op(&fixed, makers.0[f.index()]), op(&dynamic, makers.1[d.index()]));
                    // A name that exporters count up (`val_3`) may stand for something else in the other file.
                    let alike = said(&pair.exported.types[f.index()]) == said(&at_one.types[d.index()]);
                    if made.0 == made.1 && alike {
                        counts.compare(&pair, (f, *d), makers.0[f.index()]);
                    }
                }
            }
        },
    );
}

/// The graph as an exporter would write it that folds whatever depends on sizes alone: every folded result becomes a
/// constant, and every input gets a fixed shape.
fn frozen(graph: &Graph, batch: u64) -> Graph {
    let inferred = at(graph, batch).unwrap();
    let mut fixed = graph.clone();
    for id in &graph.inputs {
        fixed.tensors[id.index()].declared = inferred.types[id.index()].clone();
    }
    let known = |id: &TensorId| inferred.value(*id).is_some_and(Value::is_known);
    let (folded, kept): (Vec<Node>, Vec<Node>) =
        fixed.nodes.into_iter().partition(|n| n.outputs.iter().flatten().all(known));
    fixed.nodes = kept;
    for id in folded.iter().flat_map(|n| n.outputs.iter().flatten()) {
        let tensor = &mut fixed.tensors[id.index()];
        tensor.role = Role::Constant;
        tensor.declared = inferred.types[id.index()].clone();
        tensor.value = inferred.values[id.index()].clone();
    }
    fixed
}

#[test]
fn frozen_files_follow_the_batch_too() {
    compare_all(
        |name| !name.contains("_b1"),
        |path, name, counts| {
            let dynamic = imported(path);
            for traced in [1, 2] {
                let fixed = frozen(&dynamic, traced);
                let found = match at(&fixed, 5) {
                    Ok(found) => found,
                    Err(problem) => {
                        counts.refuse(name, &format!("frozen at {traced}: {problem}"));
                        continue;
                    }
                };
                let (exported, expected) = (at(&fixed, traced).unwrap(), at(&dynamic, 5).unwrap());
                let pair = Pair { name, fixed: &fixed, exported, found, expected };
                let made = (0..).map(TensorId).zip(fixed.producers()).filter(|(_, node)| node.is_some());
                made.for_each(|(id, node)| counts.compare(&pair, (id, id), node));
            }
        },
    );
}
