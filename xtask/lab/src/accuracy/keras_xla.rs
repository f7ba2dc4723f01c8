//! Keras models under XLA beside what XLA's buffer assignment gives a step (`models/reference/keras_xla_steps.py`).

use super::keras;
use super::tensorflow::percent;
use anyhow::{Context, Result};
use memfit_engine::{Framework, Loss, Plan};
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write;

#[derive(Deserialize)]
struct File {
    tensorflow: String,
    keras: String,
    jax: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    model: String,
    batch: u64,
    /// Whether the rules were as they are when it was first compared.
    held_out: bool,
    policy: String,
    optimizer: String,
    loss: String,
    config: Value,
    step_bytes: u64,
}

/// The section.
///
/// # Errors
/// A file or a model that cannot be read.
pub(super) fn section() -> Result<Option<String>> {
    let path = crate::root().join("models/reference/keras_xla_steps.json");
    if !path.exists() {
        return Ok(None);
    }
    let file: File =
        serde_json::from_str(&std::fs::read_to_string(&path)?).with_context(|| path.display().to_string())?;
    let mut text = format!(
        "\n## Keras models under XLA\n\nKeras' own `train_step`, compiled ahead of time for an A100 without one: what XLA's buffer assignment gives \
         the step (`models/reference/keras_xla_steps.py`). TensorFlow {}, Keras {}, the XLA of JAX {}; products are cuBLAS'. Scratch memory of \
         cuDNN, which XLA chooses by measuring, is in neither. One more step held out is not in the table nor in these shares: of four convolutions \
         of 5 x 5, two ahead, with batch norms and ReLU6 (batch 64, 96 x 96), 92165888 bytes are estimated and XLA assigns 68455932 (+34.63 %): \
         it orders that step depth first from its results, an order that is not tried here.\n\n",
        file.tensorflow, file.keras, file.jax
    );
    let mut rows = String::new();
    let mut errors = [Vec::new(), Vec::new()];
    let mut inside = 0;
    for step in &file.steps {
        let plan = plan(step);
        let estimated = keras::peak(&step.model, &step.config, step.batch, &plan)?;
        let assigned = i128::from(step.step_bytes);
        inside += usize::from(keras::inside(estimated, assigned, &plan));
        let error = (estimated - assigned) * 10_000 / assigned.max(1);
        errors[usize::from(step.held_out)].push(error.abs());
        let Step { model, batch, policy, optimizer, .. } = step;
        let held_out = if step.held_out { "yes" } else { "" };
        let _ = writeln!(
            rows,
            "| {model} | {policy} {optimizer}, batch {batch} | {held_out} | {estimated} | {assigned} | {} |",
            percent(error)
        );
    }
    for (errors, which) in errors.iter_mut().zip(["that the rules were made on", "held out"]) {
        errors.sort_unstable();
        let at =
            |hundredths: usize| percent(errors.get(errors.len() * hundredths / 100).copied().unwrap_or(0));
        let largest = percent(errors.last().copied().unwrap_or(0));
        let (number, median, nine) = (errors.len(), at(50), at(90));
        let _ = writeln!(
            text,
            "- Of {number} steps {which}: median error {}, nine in ten within {}, largest {}.",
            &median[1..],
            &nine[1..],
            &largest[1..]
        );
    }
    let _ = writeln!(text, "- Of all {} {inside} lie inside of the estimate's range.", file.steps.len());
    let _ = write!(
        text,
        "\n| model | step | held out | estimated | XLA | error |\n| --- | --- | --- | ---: | ---: | ---: |\n{rows}"
    );
    Ok(Some(text))
}

/// How it was compiled.
fn plan(step: &Step) -> Plan {
    Plan {
        framework: Framework::Tensorflow,
        precision: keras::precision(&step.policy),
        optimizer: step.optimizer.clone(),
        loss: if step.loss == "mse" { Loss::Mse } else { Loss::CrossEntropy },
        xla: true,
        ..Plan::default()
    }
}
