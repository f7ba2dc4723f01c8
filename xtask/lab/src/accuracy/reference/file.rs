//! The files that hold the numbers: one with all models (`models/reference/pytorch.json`), or one for each model.

use super::{Case, Reference, Run};
use anyhow::{Context, Result};
use memfit_engine::Loss;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    Many { models: Vec<Model> },
    One(Box<Model>),
}

#[derive(Deserialize)]
struct Model {
    model: String,
    settings: Settings,
    params: Params,
    cases: Vec<FileCase>,
}

#[derive(Deserialize)]
struct Settings {
    device: String,
    loss: String,
}

#[derive(Deserialize)]
struct Params {
    numel: u64,
}

#[derive(Deserialize)]
struct FileCase {
    batch: u64,
    precision: String,
    input_shapes: BTreeMap<String, Vec<u64>>,
    saved_for_backward: Saved,
    runs: Vec<FileRun>,
}

#[derive(Deserialize)]
struct Saved {
    bytes: u64,
    by_holder_set: BTreeMap<String, Held>,
}

#[derive(Deserialize)]
struct Held {
    bytes: u64,
}

#[derive(Deserialize)]
struct FileRun {
    optimizer: String,
    peak_bytes: u64,
    peak_phase: String,
    breakdown_at_peak: BTreeMap<String, u64>,
}

/// Reads a file, and of it what is about the GPU's kernels.
pub(in crate::accuracy) fn read(path: &Path) -> Result<Vec<Reference>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let file = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let models = match file {
        File::Many { models } => models,
        File::One(model) => vec![*model],
    };
    let of_gpu = models.into_iter().filter(|model| model.settings.device.starts_with("cuda"));
    Ok(of_gpu.map(reference).collect())
}

/// Reads every file of a folder, in the order of their names.
pub(in crate::accuracy) fn read_all(folder: &Path) -> Result<Vec<Reference>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "json"));
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        all.extend(read(&path)?);
    }
    Ok(all)
}

fn reference(model: Model) -> Reference {
    Reference {
        loss: loss(&model.settings.loss),
        model: model.model,
        parameters: model.params.numel,
        cases: model.cases.into_iter().map(case).collect(),
    }
}

/// The loss is told as code. A language model's own loss over its labels is a cross-entropy too.
fn loss(code: &str) -> Loss {
    match code {
        code if code.contains("mse_loss") => Loss::Mse,
        code if code.contains("binary_cross_entropy") => Loss::Bce,
        code if code.contains(".mean()") => Loss::None,
        _ => Loss::CrossEntropy,
    }
}

fn case(case: FileCase) -> Case {
    let held = case.saved_for_backward.by_holder_set;
    Case {
        batch: case.batch,
        precision: case.precision,
        inputs: case.input_shapes,
        saved: case.saved_for_backward.bytes,
        holders: held.into_iter().map(|(names, held)| (names, held.bytes)).collect(),
        runs: case.runs.into_iter().map(run).collect(),
    }
}

fn run(run: FileRun) -> Run {
    let mut breakdown = run.breakdown_at_peak;
    // Where the optimizer's step is the peak, its temporaries are counted with its state, and both apart too.
    if let Some(state) = breakdown.remove("opt_state") {
        breakdown.insert("opt".to_owned(), state);
    }
    if let Some(temporaries) = breakdown.remove("opt_temporaries") {
        *breakdown.entry("temp".to_owned()).or_default() += temporaries;
    }
    Run { optimizer: run.optimizer, peak: run.peak_bytes, phase: run.peak_phase, breakdown }
}
