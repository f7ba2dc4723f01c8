//! The models of this repository: every export is read, and training exports hold what PyTorch's own step holds.
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::{Loss, Model, Plan, Precision};
use memfit_graph::{Binding, infer};
use serde_json::Value;
use std::path::{Path, PathBuf};

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");

/// Networks that are byte for byte what PyTorch allocates, in all precisions, batch sizes and optimizers measured.
/// The others hold something that a file does not say: an activation in place or not, Python variables that outlive
/// their use, positions, the kernel behind a maximum.
const EXACT: &[&str] = &[
    "cnn3d",
    "convnext",
    "dcgan_discriminator",
    "dcgan_generator",
    "densenet",
    "lenet",
    "mixer",
    "resnet18",
    "resnet50",
    "se_net",
    "two_tower",
];

fn load(path: &Path) -> Model {
    let imported = memfit_onnx::import(&std::fs::read(path).unwrap());
    let imported = imported.unwrap_or_else(|problems| panic!("{}: {problems:?}", path.display()));
    Model::new(imported.graph, "model", "onnx", imported.operators)
}

fn batch_of(size: u64) -> Binding {
    Binding { batch: Some(size), ..Binding::default() }
}

#[test]
fn every_export_is_read_and_takes_any_batch_size() {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(MODELS).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "onnx"));
    paths.sort();
    assert!(paths.len() > 40, "{} files", paths.len());
    for path in paths {
        let model = load(&path);
        let graph = model.graph();
        let inferred = infer(graph, &batch_of(3)).unwrap_or_else(|p| panic!("{}: {p:?}", path.display()));
        for output in &graph.outputs {
            let shape = inferred.shape(*output).unwrap_or_else(|| panic!("{}: no shape", path.display()));
            let dims = shape.known().unwrap_or_else(|| panic!("{}: {shape}", path.display()));
            assert_eq!(dims.first(), Some(&3), "{}: {shape}", path.display());
        }
    }
}

#[test]
fn training_exports_hold_what_pytorch_holds() {
    let text = std::fs::read_to_string(format!("{MODELS}/reference/pytorch.json")).unwrap();
    let references: Value = serde_json::from_str(&text).unwrap();
    let mut compared = 0;
    for reference in references["models"].as_array().unwrap() {
        let name = reference["model"].as_str().unwrap();
        if !EXACT.contains(&name) {
            continue;
        }
        let model = load(&Path::new(MODELS).join(format!("{name}.ts_train.onnx")));
        let loss = match reference["settings"]["loss"].as_str().unwrap() {
            text if text.contains("binary_cross_entropy") => Loss::Bce,
            text if text.contains("mse_loss") => Loss::Mse,
            text if text.contains(".mean()") => Loss::None,
            _ => Loss::CrossEntropy,
        };
        for case in reference["cases"].as_array().unwrap() {
            let precision = match case["precision"].as_str().unwrap() {
                "amp_bf16" => Precision::MixedBf16,
                "bf16" => Precision::Bf16,
                _ => Precision::Fp32,
            };
            for run in case["runs"].as_array().unwrap() {
                let optimizer = run["optimizer"].as_str().unwrap();
                let plan = Plan {
                    precision,
                    loss,
                    optimizer: optimizer.trim_start_matches("sgd_").trim_end_matches("_foreach").into(),
                    as_fake_tensors: true,
                    ..Plan::default()
                };
                let estimate = model.estimate(&batch_of(case["batch"].as_u64().unwrap()), &plan).unwrap();
                let label = format!("{name} batch {} {precision:?} {optimizer}", case["batch"]);
                let number = |value: &Value| value.as_u64().unwrap();
                let summary = &estimate.model;
                assert_eq!(summary.parameters_trainable, number(&reference["params"]["numel"]), "{label}");
                assert_eq!(summary.buffers, number(&reference["buffers"]["numel"]), "{label}");
                assert_eq!(estimate.peak.allocated.0, number(&run["peak_bytes"]), "peak of {label}");
                let saved = &case["saved_for_backward"]["bytes"];
                assert_eq!(estimate.saved_for_backward.0, number(saved), "saved by {label}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, EXACT.len() * 12);
}
