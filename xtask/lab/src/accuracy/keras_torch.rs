//! Keras models on its PyTorch backend beside PyTorch's own allocations (`models/reference/keras_torch_steps.py`).

use super::keras;
use super::tensorflow::percent;
use anyhow::{Context, Result};
use memfit_engine::{Framework, Plan};
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write;

#[derive(Deserialize)]
struct File {
    torch: String,
    keras: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    model: String,
    optimizer: String,
    policy: String,
    batch: u64,
    peak_bytes: u64,
    config: Value,
    #[serde(default)]
    options: Options,
}

/// What the optimizer was given.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    global_clipnorm: Option<f64>,
    gradient_accumulation_steps: Option<u32>,
    #[serde(default)]
    use_ema: bool,
}

impl Options {
    /// In words.
    fn said(&self) -> String {
        let mut said = String::new();
        if let Some(norm) = self.global_clipnorm {
            let _ = write!(said, ", clipped to {norm}");
        }
        if let Some(steps) = self.gradient_accumulation_steps {
            let _ = write!(said, ", {steps} accumulated");
        }
        if self.use_ema {
            said.push_str(", averaged");
        }
        said
    }
}

/// The section.
///
/// # Errors
/// A file or a model that cannot be read.
pub(super) fn section() -> Result<Option<String>> {
    let path = crate::root().join("models/reference/keras_torch_steps.json");
    if !path.exists() {
        return Ok(None);
    }
    let file: File =
        serde_json::from_str(&std::fs::read_to_string(&path)?).with_context(|| path.display().to_string())?;
    let mut text = format!(
        "\n## Keras models on its PyTorch backend\n\nKeras' own `train_step` on fake tensors of the device `cuda`, the second of two, counted \
         as above. Torch {}, Keras {}. What is missing are scalars of the optimizer, the loss and the metrics, of 512 bytes each.\n\n\
         | model | step | estimated | PyTorch | error |\n| --- | --- | ---: | ---: | ---: |\n",
        file.torch, file.keras
    );
    for step in &file.steps {
        let (estimated, measured) = (estimate(step)?, i128::from(step.peak_bytes));
        let error = (estimated - measured) * 10_000 / measured.max(1);
        let (model, policy, optimizer) = (&step.model, &step.policy, &step.optimizer);
        let _ = writeln!(
            text,
            "| {model} | {policy} {optimizer}{} | {estimated} | {measured} | {} |",
            step.options.said(),
            percent(error)
        );
    }
    Ok(Some(text))
}

/// The peak in bytes.
fn estimate(step: &Step) -> Result<i128> {
    let plan = Plan {
        framework: Framework::Pytorch,
        optimizer: step.optimizer.clone(),
        as_fake_tensors: true,
        clip_norm: step.options.global_clipnorm.is_some(),
        accumulate: step.options.gradient_accumulation_steps.unwrap_or(1),
        ema: step.options.use_ema,
        ..Plan::default()
    };
    keras::peak(&step.model, &step.config, step.batch, &plan)
}
