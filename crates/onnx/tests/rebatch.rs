//! A file that was exported with a fixed batch gives at another batch what its twin with a symbolic batch gives.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use memfit_graph::{Binding, infer};
use std::collections::BTreeMap;
use std::path::Path;

type Results = BTreeMap<String, i64>;

/// The same with the element count in place of the shape: simplifiers fold axes together in one of the twins only.
fn by_size(results: &Results) -> Results {
    let mut sizes = Results::new();
    for (what, n) in results {
        let (op, shape) = what.split_once(' ').unwrap();
        let size: Option<u64> = shape.split('x').map(|d| d.parse::<u64>().ok()).product();
        *sizes.entry(format!("{op} {size:?}")).or_default() += n;
    }
    sizes
}

/// How often each kind of large result occurs. Exporters fold what depends on sizes alone out of a fixed file, so only results
/// that a framework computes in both are compared.
fn results(path: &Path, batch: u64) -> Result<Results, String> {
    const COMPUTED: &[&str] = &[
        "Conv",
        "MatMul",
        "Gemm",
        "Relu",
        "Softmax",
        "LayerNormalization",
        "BatchNormalization",
        "Erf",
        "Gelu",
        "Sigmoid",
        "Tanh",
        "MaxPool",
        "AveragePool",
        "GlobalAveragePool",
        "LSTM",
        "GRU",
        "Clip",
        "HardSwish",
        "Transpose",
        "Dropout",
        "Where",
        "Pow",
        "InstanceNormalization",
        "ConvTranspose",
        "Resize",
    ];
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    let model = memfit_onnx::import_from(file).map_err(|p| p[0].to_string())?;
    let binding = Binding { batch: Some(batch), ..Binding::default() };
    let inferred = infer(&model.graph, &binding).map_err(|p| format!("{} problem(s): {}", p.len(), p[0]))?;
    let mut found = BTreeMap::new();
    for node in model.graph.nodes.iter().filter(|n| COMPUTED.contains(&n.op.name())) {
        for id in node.outputs.iter().flatten().take(1) {
            let ty = &inferred.types[id.index()];
            if ty.dtype().is_some_and(|d| d.is_float()) && inferred.value(*id).is_none() {
                let shape = ty.shape().map_or("?".into(), ToString::to_string);
                *found.entry(format!("{} {shape}", node.op.name())).or_default() += 1;
            }
        }
    }
    for id in &model.graph.outputs {
        let shape = inferred.shape(*id).map_or("?".into(), ToString::to_string);
        *found.entry(format!("output {shape}")).or_default() += 1;
    }
    Ok(found)
}

#[test]
fn a_fixed_batch_behaves_as_its_symbolic_twin() {
    let Some(dir) = std::env::var_os("TWINS").map(Into::into).or_else(|| common::shared("corpus/onnx"))
    else {
        return;
    };
    let mut wrong = 0;
    let mut pairs = 0;
    let mut files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some((stem, _)) = name.split_once("_b1").or(name.split_once("_b3")) else { continue };
        let rest = &name[stem.len() + 3..];
        let twin = path.with_file_name(format!("{stem}{rest}"));
        if !name.ends_with(".onnx") || !twin.exists() {
            continue;
        }
        pairs += 1;
        match (results(&path, 6), results(&twin, 6)) {
            (Ok(fixed), Ok(symbolic)) if by_size(&fixed) == by_size(&symbolic) => {}
            (Ok(fixed), Ok(symbolic)) => {
                wrong += 1;
                println!("{name}:");
                for (what, n) in &fixed {
                    let m = symbolic.get(what).copied().unwrap_or(0);
                    if *n != m {
                        println!("    {what}: {n} times fixed, {m} times symbolic");
                    }
                }
                for (what, m) in symbolic.iter().filter(|(what, _)| !fixed.contains_key(*what)) {
                    println!("    {what}: 0 times fixed, {m} times symbolic");
                }
            }
            (Err(problem), _) => {
                wrong += 1;
                println!("{name}: {problem}");
            }
            (_, Err(problem)) => {
                wrong += 1;
                println!("twin of {name}: {problem}");
            }
        }
    }
    println!("{pairs} pairs, {wrong} differ");
    assert_eq!(wrong, 0);
}
