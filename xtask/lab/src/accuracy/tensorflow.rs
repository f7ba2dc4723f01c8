//! Keras models under TensorFlow's rules beside TensorFlow's own allocations.
//!
//! The reference is a traced step of the graph on the CPU (`../shared/README.md`, 5): what kernels allocate and free while the
//! step runs, kernels' scratch memory left out. Variables and the batch were there before, so the same is counted here: events of
//! storages that the step itself made. Variables are added to both sides.

use super::keras;
use anyhow::{Context, Result};
use memfit_engine::{Framework, Plan};
use memfit_graph::Binding;
use serde::Deserialize;
use std::fmt::Write;
use std::path::Path;

#[derive(Deserialize)]
struct File {
    model: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    batch: u64,
    policy: String,
    optimizer: String,
    grappler: bool,
    step_alloc_peak_bytes_without_kernel_workspace: u64,
    trainable_bytes: u64,
    non_trainable_bytes: u64,
    optimizer_variable_bytes: u64,
}

struct Row {
    model: String,
    case: String,
    /// Estimated and measured, variables included.
    bytes: [u64; 2],
}

impl Row {
    /// Hundredths of a percent.
    fn error(&self) -> i128 {
        let [estimated, measured] = self.bytes.map(i128::from);
        (estimated - measured) * 10_000 / measured.max(1)
    }
}

/// The section, where the collection has such references.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn section(collection: &Path) -> Result<Option<String>> {
    let truth = collection.join("truth/tensorflow");
    if !truth.exists() {
        return Ok(None);
    }
    let mut paths: Vec<_> =
        std::fs::read_dir(&truth)?.map(|f| f.map(|f| f.path())).collect::<Result<_, _>>()?;
    paths.sort();
    let mut rows = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path)?;
        // The compile-only figures of XLA have another shape.
        if let Ok(file) = serde_json::from_str::<File>(&text) {
            rows.extend(
                compare(&file, &collection.join("corpus/keras"))
                    .with_context(|| path.display().to_string())?,
            );
        }
    }
    Ok(Some(markdown(&rows)))
}

fn compare(file: &File, models: &Path) -> Result<Vec<Row>> {
    let bytes = std::fs::read(models.join(format!("{}.json", file.model)))?;
    let model = keras::model(&file.model, &bytes)?;
    let mut rows = Vec::new();
    for case in &file.cases {
        let precision = keras::precision(&case.policy);
        let optimizer = case.optimizer.clone();
        let plan = Plan {
            framework: Framework::Tensorflow,
            precision,
            optimizer,
            xla: false,
            grappler: case.grappler,
            loss_scale: false,
            as_fake_tensors: true,
            ..Plan::default()
        };
        let binding = Binding { batch: Some(case.batch), ..Binding::default() };
        let estimate = model
            .estimate(&binding, &plan)
            .map_err(|p| anyhow::anyhow!("{}", p.first().map_or_else(String::new, ToString::to_string)))?;
        let variables = case.trainable_bytes + case.non_trainable_bytes + case.optimizer_variable_bytes;
        let measured = case.step_alloc_peak_bytes_without_kernel_workspace;
        let passes = if case.grappler { "" } else { ", graph optimizers off" };
        rows.push(Row {
            model: file.model.clone(),
            case: format!("{} {}{passes}", case.policy, case.optimizer),
            bytes: [estimate.timeline.step_peak().0 + variables, measured + variables],
        });
    }
    Ok(rows)
}

pub(super) fn percent(hundredths: i128) -> String {
    let sign = if hundredths < 0 { "-" } else { "+" };
    let n = hundredths.unsigned_abs();
    format!("{sign}{}.{:02} %", n / 100, n % 100)
}

fn markdown(rows: &[Row]) -> String {
    let mut errors: Vec<i128> = rows.iter().map(|r| r.error().abs()).collect();
    errors.sort_unstable();
    let at =
        |share: usize| errors.get((errors.len() * share / 100).min(errors.len().saturating_sub(1))).copied();
    let mut text = String::from(
        "\n## Keras models under TensorFlow\n\nTensorFlow's own trace of one training step in graph mode, without XLA: what kernels allocate, \
         scratch memory left out, plus variables. TensorFlow 2.21, Keras 3.15, on a CPU, one thread. The executor reads variables in \
         an order that depends on addresses: an update whose slot or learning rate is read late waits, and holds its gradient, until all else is \
         done. So one step has many peaks: TensorFlow itself gave 17.3 MB in 11 of 22 sessions of the autoencoder with Adam, \
         22 MB in 6 and up to 26.3 MB in the others, and with SGD 24.6 MB in 18 of 19, variables left out; the traces that are \
         compared with here are one session each. A variable that is updated while its old value is still read has two buffers, of which the trace does not see the first go: both are counted on both sides here.\n\n",
    );
    let _ = writeln!(
        text,
        "Of {} steps: median error {}, nine in ten within {}, largest {}.\n",
        rows.len(),
        percent(at(50).unwrap_or(0)).trim_start_matches('+'),
        percent(at(90).unwrap_or(0)).trim_start_matches('+'),
        percent(errors.last().copied().unwrap_or(0)).trim_start_matches('+'),
    );
    text.push_str("| model | step | estimated | TensorFlow | error |\n| --- | --- | ---: | ---: | ---: |\n");
    for row in rows {
        let [estimated, measured] = row.bytes;
        let _ = writeln!(
            text,
            "| {} | {} | {estimated} | {measured} | {} |",
            row.model,
            row.case,
            percent(row.error())
        );
    }
    text
}
