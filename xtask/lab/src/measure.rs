//! What `cargo xtask peers` starts: the work alone, without the start of a program, and the files for it.

use anyhow::{Result, anyhow, bail};
use memfit_engine::{Model, Plan};
use memfit_graph::{Binding, Graph, Problem, infer};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Timed {
    /// `inspect`, `estimate`; `infer` and `ready` are these of a model that has been read before
    work: String,
    file: PathBuf,
    batch: u64,
    repeats: usize,
}

/// Prints version, answer and the median of the seconds, between tabs.
pub(crate) fn time(timed: &Timed) -> Result<bool> {
    let symbols = [("sequence".to_owned(), 128)].into();
    let binding = Binding { batch: Some(timed.batch), symbols, ..Binding::default() };
    let mut work: Box<dyn FnMut() -> Result<String, Vec<Problem>>> = match &*timed.work {
        "inspect" => Box::new(|| inspect(&timed.file, &binding)),
        "infer" => {
            let graph = import(&timed.file).map_err(told)?.graph;
            let binding = &binding;
            Box::new(move || shapes(&graph, binding))
        }
        "estimate" => Box::new(|| peak(&ready(&timed.file)?, &binding)),
        "ready" => {
            let model = ready(&timed.file).map_err(told)?;
            let binding = &binding;
            Box::new(move || peak(&model, binding))
        }
        other => bail!("there is no work `{other}`"),
    };
    let mut seconds = Vec::new();
    let mut answer = String::new();
    for _ in 0..timed.repeats.max(1) {
        let begin = Instant::now();
        answer = work().map_err(told)?;
        seconds.push(begin.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    println!("memfit {}\t{answer}\t{}", env!("CARGO_PKG_VERSION"), seconds[seconds.len() / 2]);
    Ok(true)
}

/// Writes the file of 2 GiB, or a transformer with so many nodes.
pub(crate) fn make(path: &Path, nodes: Option<usize>) -> Result<bool> {
    match nodes {
        Some(nodes) => std::fs::write(path, memfit_bench_models::transformer(nodes))?,
        None => memfit_bench_models::write_large(path, 2 << 30)?,
    }
    Ok(true)
}

fn import(path: &Path) -> Result<memfit_onnx::Model, Vec<Problem>> {
    let file = File::open(path).map_err(|e| vec![Problem::new(path.to_string_lossy(), e.to_string())])?;
    memfit_onnx::import_from(BufReader::new(file))
}

fn inspect(path: &Path, binding: &Binding) -> Result<String, Vec<Problem>> {
    shapes(&import(path)?.graph, binding)
}

fn shapes(graph: &Graph, binding: &Binding) -> Result<String, Vec<Problem>> {
    let inferred = infer(graph, binding)?;
    let outputs = graph.nodes.iter().flat_map(|node| node.outputs.iter().flatten());
    let known =
        outputs.filter(|id| inferred.shape(**id).is_some_and(|shape| shape.known().is_some())).count();
    Ok(format!("{known} values with a known shape"))
}

fn ready(path: &Path) -> Result<Model, Vec<Problem>> {
    let imported = import(path)?;
    Ok(Model::new(imported.graph, "model", "onnx", imported.operators))
}

fn peak(model: &Model, binding: &Binding) -> Result<String, Vec<Problem>> {
    Ok(format!("{} bytes", model.estimate(binding, &Plan::default())?.peak.allocated.0))
}

fn told(problems: Vec<Problem>) -> anyhow::Error {
    anyhow!("{problems:?}")
}
