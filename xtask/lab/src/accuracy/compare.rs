//! One estimate beside one reference.

use super::holders;
use super::reference::{Case, Reference, Run};
use memfit_engine::{Estimate, Model, Phase, Plan};
use memfit_graph::{Binding, Problem};
use serde::Serialize;
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// What the framework says and what memfit says.
#[derive(Clone, Copy, Default, Serialize)]
pub(super) struct Pair {
    pub(super) reference: u64,
    pub(super) estimate: u64,
}

impl Pair {
    /// The error as a share of the reference; all of it where the reference is nothing.
    pub(super) fn error(self) -> f64 {
        match (self.reference, self.estimate) {
            (reference, estimate) if reference == estimate => 0.0,
            (0, _) => 1.0,
            (reference, estimate) => (estimate as f64 - reference as f64) / reference as f64,
        }
    }
}

/// A comparison of one step.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) model: String,
    /// Which export of the model was read.
    pub(super) export: String,
    pub(super) batch: u64,
    pub(super) precision: String,
    pub(super) optimizer: String,
    pub(super) peak: Pair,
    pub(super) phase: (String, String),
    /// By the reference's names: what is alive at the peak.
    pub(super) breakdown: Vec<(&'static str, Pair)>,
    pub(super) saved: Pair,
    pub(super) parameters: Pair,
    /// Saved bytes by the functions that hold them, where that was asked for.
    pub(super) holders: Vec<(String, Pair)>,
    /// Operators without a rule.
    pub(super) unknown: Vec<String>,
}

/// Everything that was compared for one model.
pub(super) struct Compared {
    pub(super) model: String,
    pub(super) export: String,
    pub(super) rows: Vec<Row>,
    /// The steps that could not be estimated, and why.
    pub(super) failures: Vec<(String, String)>,
}

/// The exports in the order of preference: those that keep what training needs come first.
const EXPORTS: [&str; 5] = ["ts_train", "dyn_train_noopt", "dyn_train", "ts_eval", "dyn_eval"];

/// The model's files in a folder, `model.export.onnx` or `model.onnx`, the best first, then by name.
pub(super) fn find(folder: &Path, model: &str) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(String, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let export = name.strip_suffix(".onnx")?.strip_prefix(model)?;
            let export = if export.is_empty() { export } else { export.strip_prefix('.')? };
            Some((export.to_owned(), entry.path()))
        })
        .collect();
    let rank = |export: &str| EXPORTS.iter().position(|e| *e == export).unwrap_or(EXPORTS.len());
    files.sort_by(|(a, _), (b, _)| (rank(a), a).cmp(&(rank(b), b)));
    files
}

/// Compares every step of a reference that `wanted` accepts.
pub(super) fn compare(
    reference: &Reference,
    export: String,
    path: &Path,
    wanted: &(dyn Fn(&str) -> bool + Sync),
    by_holder: bool,
) -> Compared {
    let mut compared =
        Compared { model: reference.model.clone(), export, rows: Vec::new(), failures: Vec::new() };
    let key = |case: &Case, run: &Run| {
        format!("{} b{} {} {}", reference.model, case.batch, case.precision, run.optimizer)
    };
    if !reference.cases.iter().any(|c| c.runs.iter().any(|r| wanted(&key(c, r)))) {
        return compared;
    }
    let model = match load(path) {
        Ok(model) => model,
        Err(why) => {
            compared.failures.push((reference.model.clone(), why));
            return compared;
        }
    };
    for case in &reference.cases {
        for run in case.runs.iter().filter(|run| wanted(&key(case, run))) {
            let row = plan(reference, case, run, &compared.export)
                .ok_or_else(|| format!("memfit has no precision `{}`", case.precision))
                .and_then(|plan| {
                    let binding = binding(&model, case);
                    let estimate = caught(|| model.estimate(&binding, &plan))?;
                    let mut row = row(reference, case, run, &compared.export, &estimate);
                    if by_holder {
                        let held = caught(|| model.saved_by_function(&binding, &plan))?;
                        row.holders = holders::compare(&case.holders, &held);
                    }
                    Ok(row)
                });
            match row {
                Ok(row) => compared.rows.push(row),
                Err(why) => compared.failures.push((key(case, run), why)),
            }
        }
    }
    compared
}

pub(super) fn load(path: &Path) -> Result<Model, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let imported = caught(|| memfit_onnx::import(&bytes))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok(Model::new(imported.graph, name.as_ref(), "onnx", imported.operators))
}

/// The result, with problems as text; a panic is a problem too, and says where it happened.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, Vec<Problem>>) -> Result<T, String> {
    thread_local!(static PLACE: RefCell<String> = const { RefCell::new(String::new()) });
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|info| PLACE.set(info.to_string().replace('\n', " "))));
    });
    match std::panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|problems| joined(&problems)),
        Err(_) => Err(PLACE.take()),
    }
}

fn joined(problems: &[Problem]) -> String {
    let shown: Vec<String> = problems.iter().take(3).map(ToString::to_string).collect();
    let more = problems.len().saturating_sub(3);
    format!("{}{}", shown.join("; "), if more > 0 { format!("; and {more} more") } else { String::new() })
}

fn binding(model: &Model, case: &Case) -> Binding {
    let mut binding = Binding { batch: Some(case.batch), ..Binding::default() };
    for id in &model.graph().inputs {
        let name = &*model.graph().tensor(*id).name;
        if let Some(shape) = case.inputs.get(name) {
            binding.shapes.insert(name.to_owned(), shape.clone());
        }
    }
    binding
}

fn plan(reference: &Reference, case: &Case, run: &Run, export: &str) -> Option<Plan> {
    let (optimizer, optimizer_impl, weight_decay) = run.optimizer();
    Some(Plan {
        precision: case.precision()?,
        optimizer: optimizer.to_owned(),
        optimizer_impl,
        weight_decay,
        loss: reference.loss,
        as_fake_tensors: true,
        // All but the legacy exporter in training mode fold them.
        assume_batchnorm: !export.starts_with("ts_train"),
        assume_dropout: drops(reference),
        ..Plan::default()
    })
}

/// Whether the model has dropout, which its author knows.
fn drops(reference: &Reference) -> bool {
    let mut holders = reference.cases.iter().flat_map(|case| case.holders.keys());
    holders.any(|nodes| nodes.contains("NativeDropoutBackward0"))
}

fn row(reference: &Reference, case: &Case, run: &Run, export: &str, estimate: &Estimate) -> Row {
    let b = &estimate.breakdown;
    // The reference calls all that forward made an activation, and all that backward made beside gradients temporary.
    let passing = (b.activation_gradients + b.transients + b.workspace).0;
    let (act, temp) = match estimate.peak.phase {
        Phase::Setup | Phase::Forward => (b.activations.0 + passing, 0),
        Phase::Backward | Phase::OptimizerStep => (b.activations.0, passing),
    };
    let theirs = |name| run.breakdown.get(name).copied().unwrap_or(0);
    let breakdown = [
        ("param", b.parameters.0),
        ("buffer", b.buffers.0),
        ("grad", b.gradients.0),
        ("act", act),
        ("temp", temp),
        ("opt", b.optimizer.0),
        ("oth", b.inputs.0),
    ];
    let phase = match estimate.peak.phase {
        Phase::Setup => "setup",
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::OptimizerStep => "optimizer_step",
    };
    Row {
        model: reference.model.clone(),
        export: export.to_owned(),
        batch: case.batch,
        precision: case.precision.clone(),
        optimizer: run.optimizer.clone(),
        peak: Pair { reference: run.peak, estimate: estimate.peak.allocated.0 },
        phase: (run.phase.clone(), phase.to_owned()),
        breakdown: breakdown
            .into_iter()
            .map(|(name, estimate)| (name, Pair { reference: theirs(name), estimate }))
            .collect(),
        saved: Pair { reference: case.saved, estimate: estimate.saved_for_backward.0 },
        parameters: Pair {
            reference: reference.parameters,
            estimate: estimate.model.parameters_trainable + estimate.model.parameters_frozen,
        },
        holders: Vec::new(),
        unknown: estimate.unknown.clone(),
    }
}
