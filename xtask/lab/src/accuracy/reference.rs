//! The frameworks' own numbers, as they were written down by running a step on fake tensors.

use anyhow::{Context, Result};
use memfit_engine::{Loss, OptimizerImpl, Precision};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// A model's numbers.
#[derive(Deserialize)]
pub(super) struct Reference {
    pub(super) model: String,
    pub(super) settings: Settings,
    pub(super) params: Count,
    pub(super) cases: Vec<Case>,
}

/// How the step was run.
#[derive(Deserialize)]
pub(super) struct Settings {
    pub(super) device: String,
    pub(super) loss: String,
}

#[derive(Deserialize)]
pub(super) struct Count {
    pub(super) numel: u64,
}

/// One input size in one precision.
#[derive(Deserialize)]
pub(super) struct Case {
    pub(super) batch: u64,
    pub(super) precision: String,
    #[serde(default)]
    pub(super) input_shapes: BTreeMap<String, Vec<u64>>,
    pub(super) saved_for_backward: Saved,
    pub(super) runs: Vec<Run>,
}

/// What autograd holds at the end of forward.
#[derive(Deserialize)]
pub(super) struct Saved {
    pub(super) bytes: u64,
    #[serde(default)]
    pub(super) by_holder_set: BTreeMap<String, Held>,
}

/// What one set of autograd nodes holds.
#[derive(Deserialize)]
pub(super) struct Held {
    pub(super) bytes: u64,
}

/// A whole step with one optimizer.
#[derive(Deserialize)]
pub(super) struct Run {
    pub(super) optimizer: String,
    pub(super) peak_bytes: u64,
    pub(super) peak_phase: String,
    #[serde(default)]
    pub(super) breakdown_at_peak: BTreeMap<String, u64>,
}

impl Reference {
    /// Whether it is about the GPU's kernels.
    pub(super) fn is_cuda(&self) -> bool {
        self.settings.device.starts_with("cuda")
    }

    /// The loss that was run. A language model's own loss over its labels is a cross-entropy too.
    pub(super) fn loss(&self) -> Loss {
        match &self.settings.loss {
            text if text.contains("mse_loss") => Loss::Mse,
            text if text.contains("binary_cross_entropy") => Loss::Bce,
            text if text.contains(".mean()") => Loss::None,
            _ => Loss::CrossEntropy,
        }
    }
}

impl Case {
    /// The precision in memfit's words.
    pub(super) fn precision(&self) -> Option<Precision> {
        Some(match &*self.precision {
            "fp32" => Precision::Fp32,
            "amp_bf16" => Precision::MixedBf16,
            "amp_fp16" => Precision::MixedFp16,
            "bf16" => Precision::Bf16,
            "fp16" => Precision::Fp16,
            _ => return None,
        })
    }
}

impl Run {
    /// The optimizer's name and implementation in memfit's words, and whether it decays weights.
    pub(super) fn optimizer(&self) -> (&str, OptimizerImpl, bool) {
        let (name, implementation) = match self.optimizer.rsplit_once('_') {
            Some((name, "forloop")) => (name, OptimizerImpl::Loop),
            Some((name, "fused")) => (name, OptimizerImpl::Fused),
            Some((name, "foreach")) => (name, OptimizerImpl::Foreach),
            _ => (&*self.optimizer, OptimizerImpl::Foreach),
        };
        (name.strip_prefix("sgd_").unwrap_or(name), implementation, name == "adamw")
    }
}

/// Reads the file of one model, or a list of them.
pub(super) fn read(path: &Path) -> Result<Vec<Reference>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum File {
        Many { models: Vec<Reference> },
        One(Box<Reference>),
    }
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let file = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(match file {
        File::Many { models } => models,
        File::One(model) => vec![*model],
    })
}

/// Reads every file of a folder, in the order of their names.
pub(super) fn read_all(folder: &Path) -> Result<Vec<Reference>> {
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
