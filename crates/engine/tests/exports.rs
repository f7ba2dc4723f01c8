//! The exports of one model agree: training, inference with its batch norms put back, a fixed batch, the newer exporter.
//!
//! Each export is estimated beside the model's best one at the same batch, in three precisions, and must have the same
//! parameters, and the same peak and the same saved bytes up to [`TOLERANCE`]. What an export lost is no matter of rules: those
//! exceptions stand in `data/exports.toml` with their reason and how far off they are, and one that is not needed is an error.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::{Estimate, Loss, Model, Plan, Precision, glob_matches};
use memfit_graph::Binding;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The share by which peaks and saved bytes of two exports may differ: a table of positions that one of them holds cut to
/// length, a mask that the other makes of its input.
const TOLERANCE: f64 = 0.002;

const PRECISIONS: [Precision; 3] = [Precision::Fp32, Precision::MixedBf16, Precision::Bf16];

/// A model and some of its exports that differ from its best one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    /// Models, `*` for any letters.
    models: Vec<String>,
    /// Exports, likewise.
    exports: Vec<String>,
    /// Shares of the best export's peak and saved bytes, the lowest and the highest.
    #[serde(default)]
    peak: Option<[f64; 2]>,
    #[serde(default)]
    saved: Option<[f64; 2]>,
    /// Whether the parameters differ.
    #[serde(default)]
    parameters: bool,
    /// What the export lost.
    why: String,
}

#[derive(Deserialize)]
struct File {
    exception: Vec<Exception>,
}

/// What differs between two exports.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Difference {
    Parameters(i64),
    Peak(f64),
    Saved(f64),
}

impl Exception {
    fn is_about(&self, model: &str, export: &str) -> bool {
        let any = |globs: &[String], name: &str| globs.iter().any(|glob| glob_matches(glob, name));
        any(&self.models, model) && any(&self.exports, export)
    }

    fn explains(&self, difference: Difference) -> bool {
        let inside =
            |limits: Option<[f64; 2]>, x: f64| limits.is_some_and(|[low, high]| (low..=high).contains(&x));
        match difference {
            Difference::Parameters(_) => self.parameters,
            Difference::Peak(x) => inside(self.peak, x),
            Difference::Saved(x) => inside(self.saved, x),
        }
    }
}

/// The exports of each model in a folder, the one that keeps the most of training first.
fn models(folder: &Path) -> BTreeMap<String, Vec<(String, PathBuf)>> {
    let mut models: BTreeMap<String, Vec<(String, PathBuf)>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let file = entry.file_name().into_string().unwrap();
        let Some((model, export)) = file.strip_suffix(".onnx").and_then(|name| name.split_once('.')) else {
            continue;
        };
        models.entry(model.into()).or_default().push((export.into(), entry.path()));
    }
    let rank = |export: &str| {
        let order = ["ts_train", "dyn_train_noopt", "dyn_train", "ts_eval", "dyn_eval"];
        order.iter().position(|e| *e == export).unwrap_or(order.len())
    };
    models.values_mut().for_each(|exports| exports.sort_by(|(a, _), (b, _)| (rank(a), a).cmp(&(rank(b), b))));
    models.retain(|_, exports| exports.len() > 1);
    models
}

/// The estimates of a file at a batch of four in each precision; shapes are given so that files with another length agree.
fn estimates(path: &Path, export: &str, loss: Loss) -> Result<Vec<Estimate>, String> {
    let bytes = std::fs::read(path).unwrap();
    let imported = memfit_onnx::import(&bytes).map_err(|p| p[0].to_string())?;
    let model = Model::new(imported.graph, "model", "onnx", imported.operators);
    let binding = Binding { batch: Some(4), ..Binding::default() };
    let plan = |precision| Plan {
        precision,
        loss,
        assume_batchnorm: !export.starts_with("ts_train"),
        ..Plan::default()
    };
    PRECISIONS.iter().map(|p| model.estimate(&binding, &plan(*p)).map_err(|p| p[0].to_string())).collect()
}

fn differences(best: &[Estimate], other: &[Estimate]) -> Vec<Difference> {
    let share = |a: u64, b: u64| (b as f64 - a as f64) / (a as f64).max(1.0);
    let mut found = Vec::new();
    for (a, b) in best.iter().zip(other) {
        let parameters = b.model.parameters_trainable as i64 - a.model.parameters_trainable as i64;
        let peak = share(a.peak.allocated.0, b.peak.allocated.0);
        let saved = share(a.saved_for_backward.0, b.saved_for_backward.0);
        found.extend((parameters != 0).then_some(Difference::Parameters(parameters)));
        found.extend((peak.abs() > TOLERANCE).then_some(Difference::Peak(peak)));
        found.extend((saved.abs() > TOLERANCE).then_some(Difference::Saved(saved)));
    }
    found
}

/// What is wrong with a model's exports, and which exceptions were needed.
fn compare(
    model: &str,
    exports: &[(String, PathBuf)],
    exceptions: &[Exception],
) -> (Vec<String>, BTreeSet<usize>) {
    let (mut problems, mut needed) = (Vec::new(), BTreeSet::new());
    let mut best = None;
    for (export, path) in exports {
        let found = match estimates(path, export, Loss::Auto) {
            Ok(found) => found,
            Err(why) => {
                problems.push(format!("{model}.{export}: {why}"));
                continue;
            }
        };
        let Some(best) = &best else {
            best = Some(found);
            continue;
        };
        let differences = differences(best, &found);
        if std::env::var("SHOW").is_ok() && !differences.is_empty() {
            println!("{model}.{export}: {differences:?}");
        }
        for difference in differences {
            let mut about = exceptions.iter().enumerate().filter(|(_, e)| e.is_about(model, export));
            match about.find(|(_, e)| e.explains(difference)) {
                Some((i, _)) => drop(needed.insert(i)),
                None => problems.push(format!("{model}.{export}: {difference:?}")),
            }
        }
    }
    (problems, needed)
}

/// Compares all models of a folder; gives what is wrong, and the exceptions that were needed.
fn check(folder: &Path, exceptions: &[Exception]) -> (Vec<String>, BTreeSet<usize>) {
    let models: Vec<_> = models(folder).into_iter().collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut problems, mut needed) = (Vec::new(), BTreeSet::new());
        while let Some((model, exports)) = models.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (found, used) = compare(model, exports, exceptions);
            problems.extend(found);
            needed.extend(used);
        }
        (problems, needed)
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let done: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let (problems, needed): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    (problems.concat(), needed.into_iter().flatten().collect())
}

fn exceptions() -> Vec<Exception> {
    let file: File = toml::from_str(include_str!("data/exports.toml")).unwrap();
    file.exception
}

#[test]
fn exports_of_one_model_agree() {
    let exceptions = exceptions();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut problems, mut needed) = check(&root.join("models"), &exceptions);
    let shared = root.join("../shared/corpus/onnx");
    let all = shared.exists();
    if all {
        let (more, also) = check(&shared, &exceptions);
        problems.extend(more);
        needed.extend(also);
    } else {
        println!("skipped: the larger collection is not beside the repository");
    }
    assert!(problems.is_empty(), "{} differences:\n{}", problems.len(), problems.join("\n"));
    if !all {
        return;
    }
    let idle: Vec<&str> =
        (0..).zip(&exceptions).filter(|(i, _)| !needed.contains(i)).map(|(_, e)| e.why.as_str()).collect();
    assert!(idle.is_empty(), "exceptions that nothing needs: {idle:?}");
}
