//! Every tensor of the reference corpus against the shapes that onnx and ONNX Runtime infer.
//!
//! `MODEL=swin cargo test -p memfit-onnx --test shapes -- --nocapture` prints what is wrong with files of that name.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use memfit_graph::{Binding, DType, Inferred, Shape, infer};
use serde_json::Value as Json;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

#[derive(Default)]
struct Counts {
    agree: u64,
    disagree: u64,
    /// Known to the reference tools, not to us, by the operator that makes it.
    unknown_to_us: BTreeMap<String, u64>,
    unknown_to_them: u64,
    refused: u64,
}

#[test]
fn shapes_agree_with_the_reference_tools() {
    let wanted = std::env::var("MODEL").unwrap_or_default();
    let mut files = common::files("truth/shapes", ".json.gz");
    files.retain(|path| path.to_str().unwrap().contains(&wanted));
    let compared = common::in_parallel(files, |path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let truth: Json = serde_json::from_reader(flate2::read::GzDecoder::new(file)).unwrap();
        let compared = compare(name, &truth, !wanted.is_empty());
        compared.unwrap_or_else(|problem| {
            println!("{name}: {problem}");
            Counts { refused: 1, ..Counts::default() }
        })
    });
    let mut counts = Counts::default();
    for one in compared {
        counts.agree += one.agree;
        counts.disagree += one.disagree;
        counts.unknown_to_them += one.unknown_to_them;
        counts.refused += one.refused;
        for (op, n) in one.unknown_to_us {
            *counts.unknown_to_us.entry(op).or_default() += n;
        }
    }
    let unknown: u64 = counts.unknown_to_us.values().sum();
    println!(
        "{} agree, {} disagree, {unknown} unknown to us, {} unknown to them; {} files refused",
        counts.agree, counts.disagree, counts.unknown_to_them, counts.refused
    );
    for (op, n) in &counts.unknown_to_us {
        println!("  unknown to us after {op}: {n}");
    }
    assert_eq!((counts.disagree, unknown, counts.refused), (0, 0, 0), "disagree, unknown to us, refused");
}

fn compare(name: &str, truth: &Json, print: bool) -> Result<Counts, String> {
    let mut counts = Counts::default();
    let file = truth["file"].as_str().unwrap();
    let corpus = common::shared("corpus/onnx").unwrap();
    let file = std::fs::File::open(Path::new(&corpus).join(file)).map_err(|e| e.to_string())?;
    let mut model = memfit_onnx::import_from(file).map_err(|p| p[0].to_string())?;
    common::forget_declared(&mut model.graph);
    let batch = truth["batch"].as_u64().filter(|b| *b > 0);
    let binding = Binding { batch, ..Binding::default() };
    let inferred = infer(&model.graph, &binding).map_err(|p| format!("{} problems: {}", p.len(), p[0]))?;
    let ids: HashMap<&str, usize> =
        model.graph.tensors.iter().enumerate().map(|(i, t)| (&*t.name, i)).collect();
    let producers = model.graph.producers();
    for (tensor, tools) in truth["tensors"].as_object().unwrap() {
        let Some(i) = ids.get(tensor.as_str()) else { continue };
        let known = ["onnx", "ort"].iter().find_map(|tool| known(&tools[tool]));
        match (known, of(&inferred, *i)) {
            (None, Some(_)) => counts.unknown_to_them += 1,
            (None, None) => {}
            (Some(expected), Some(found)) if found == expected => counts.agree += 1,
            (Some(expected), Some(found)) => {
                counts.disagree += 1;
                println!("{name}: {tensor}: expected {expected:?}, found {found:?}");
            }
            (Some(expected), None) => {
                let node = producers[*i].map(|n| &model.graph.nodes[n.index()]);
                // The cause is a node whose inputs are known; what follows from it is counted together.
                let inputs = node.iter().flat_map(|n| n.inputs.iter().flatten());
                let caused = inputs.clone().all(|id| of(&inferred, id.index()).is_some());
                let op = node.filter(|_| caused).map_or("another unknown", |n| n.op.name());
                *counts.unknown_to_us.entry(op.to_owned()).or_default() += 1;
                if print && caused {
                    println!(
                        "{name}: {tensor} ({op}): expected {expected:?}, found {:?}",
                        inferred.types[*i]
                    );
                }
            }
        }
    }
    Ok(counts)
}

fn of(inferred: &Inferred, i: usize) -> Option<(DType, Vec<u64>)> {
    let ty = &inferred.types[i];
    let dtype = ty.dtype().filter(|d| *d != DType::Undefined)?;
    Some((dtype, ty.shape().and_then(Shape::known)?))
}

/// A type whose every dim is a number.
fn known(said: &Json) -> Option<(DType, Vec<u64>)> {
    let dims = said.get(1)?.as_array()?.iter().map(Json::as_u64).collect::<Option<_>>()?;
    Some((common::dtype(said.get(0)?.as_str()?), dims))
}
