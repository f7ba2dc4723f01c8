//! This repository's numbers: `models/reference/pytorch.json`, written by the program beside it.

use super::{Case, Reference, Run};
use anyhow::{Context, Result};
use memfit_engine::Loss;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
struct File {
    models: Vec<FileModel>,
}

#[derive(Deserialize)]
struct FileModel {
    model: String,
    loss: LossWord,
    /// Shapes with a null in the place of the batch axis.
    inputs: BTreeMap<String, Vec<Option<u64>>>,
    params: Params,
    cases: Vec<FileCase>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LossWord {
    CrossEntropy,
    Mse,
    Bce,
    None,
}

#[derive(Deserialize)]
struct Params {
    numel: u64,
}

#[derive(Deserialize)]
struct FileCase {
    batch: u64,
    precision: String,
    saved: u64,
    peak_breakdown: BTreeMap<String, u64>,
    runs: Vec<FileRun>,
}

#[derive(Deserialize)]
struct FileRun {
    optimizer: String,
    state: u64,
    peak: u64,
    peak_phase: String,
}

/// Reads the file.
pub(in crate::accuracy) fn read(path: &Path) -> Result<Vec<Reference>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let file: File = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(file.models.into_iter().map(reference).collect())
}

fn reference(model: FileModel) -> Reference {
    let loss = match model.loss {
        LossWord::CrossEntropy => Loss::CrossEntropy,
        LossWord::Mse => Loss::Mse,
        LossWord::Bce => Loss::Bce,
        LossWord::None => Loss::None,
    };
    let cases = model.cases.into_iter().map(|c| case(c, &model.inputs)).collect();
    Reference { model: model.model, loss, parameters: model.params.numel, cases }
}

fn case(case: FileCase, inputs: &BTreeMap<String, Vec<Option<u64>>>) -> Case {
    let bound = |dims: &[Option<u64>]| dims.iter().map(|d| d.unwrap_or(case.batch)).collect();
    let inputs = inputs.iter().map(|(name, dims)| (name.clone(), bound(dims))).collect();
    let run = |run: FileRun| {
        // The breakdown is that of forward and backward, to which an optimizer adds its state.
        let mut breakdown = BTreeMap::new();
        if run.peak_phase != "optimizer_step" {
            breakdown = case.peak_breakdown.clone();
            breakdown.insert("opt".to_owned(), run.state);
        }
        Run { optimizer: run.optimizer, peak: run.peak, phase: run.peak_phase, breakdown }
    };
    Case {
        batch: case.batch,
        precision: case.precision,
        inputs,
        saved: case.saved,
        holders: BTreeMap::new(),
        runs: case.runs.into_iter().map(run).collect(),
    }
}
