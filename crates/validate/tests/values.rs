//! Execution agrees with onnxruntime forward and with PyTorch backward, on the processor and on wgpu where it finds a device. The
//! numbers were written by `models/reference/validate_values.py`, which says by what formula weights and inputs are made.
#![cfg(feature = "cpu")]
#![allow(clippy::unwrap_used)]

mod common;

use burn_backend::tensor::FloatTensor;
use burn_ndarray::{NdArray, NdArrayDevice};
use memfit_engine::frameworks::burn::{Fill, Program, SourceKind, program};
use memfit_engine::{Loss, Mode, Model, Plan};
use memfit_graph::{Binding, Graph, Role, infer};
use memfit_validate::backends::Backend;
use memfit_validate::step::{Trainer, download};
use serde_json::Value as Json;
use std::collections::BTreeMap;

type Processor = NdArray<f32>;

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

fn reference() -> Json {
    let text = std::fs::read_to_string(format!("{DATA}/reference.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn formula(name: &str, shape: &[usize], weight: bool) -> Vec<f64> {
    let count: usize = shape.iter().product();
    let phase = (name.bytes().map(u64::from).sum::<u64>() % 97) as f64;
    let fan = (count / shape.first().copied().unwrap_or(1).max(1)).max(shape.first().copied().unwrap_or(1));
    let element = |i: usize| {
        let k = match shape {
            [_, columns] => (i / columns) * (i % columns) + i / columns + i % columns,
            _ => i,
        };
        let x = (0.61803 * k as f64 + phase).sin();
        match shape.len() {
            _ if !weight => x,
            0 | 1 => 0.75 + 0.25 * x,
            _ => x / (fan as f64).sqrt(),
        }
    };
    (0..count).map(element).collect()
}

/// Elements for all that the file stores elsewhere, and for the inputs.
fn given(graph: &Graph, program: &Program, targets: bool) -> BTreeMap<String, Vec<f64>> {
    let mut given = BTreeMap::new();
    for source in &program.sources {
        let shape = &program.ty(source.slot).shape;
        let count: usize = shape.iter().product();
        let integers = |below: f64| (0..count).map(|i| ((i * 7) % below as usize) as f64).collect::<Vec<_>>();
        let stored = source.tensor.is_some_and(|id| graph.tensor(id).role == Role::Initializer) && count > 1;
        let below = match source.fill {
            Fill::Uniform(0.0, high) => Some(high),
            _ => None,
        };
        let values = match (source.kind, below) {
            (SourceKind::State(_), _) => continue,
            (SourceKind::Target | SourceKind::Input, Some(high)) => integers(high),
            (SourceKind::Target, None) if targets => formula("target", shape, false),
            (SourceKind::Input, None) => formula(&source.name, shape, false),
            _ if stored => formula(&source.name, shape, true),
            _ => continue,
        };
        given.insert(source.name.to_string(), values);
    }
    given
}

fn summary(values: &[f32]) -> [f64; 3] {
    let sum = |f: fn(f64) -> f64| values.iter().map(|x| f(f64::from(*x))).sum::<f64>();
    [values.len() as f64, sum(|x| x), sum(|x| x * x).sqrt()]
}

/// Whether sum and norm agree: 1e-3 of the norm, which is what float32 sums in another order differ by.
fn agrees(found: [f64; 3], expected: &Json) -> bool {
    let [count, sum, norm] = [0, 1, 2].map(|i| expected[i].as_f64().unwrap());
    let slack = 1e-3 * norm + 1e-6;
    found[0] == count
        && (found[1] - sum).abs() <= slack * count.sqrt().max(1.0)
        && (found[2] - norm).abs() <= slack
}

/// `accumulate` batches that are alike add up to as many times the gradient.
#[test]
fn gradients_of_batches_are_added() {
    let path = format!("{DATA}/depthwise.onnx");
    let model = memfit_onnx::import_from(std::fs::File::open(path).unwrap()).unwrap();
    let model = Model::new(model.graph, "depthwise", "onnx", model.operators);
    let gradients = |accumulate| {
        let plan = Plan { optimizer: "sgd".into(), accumulate, ..Plan::default() };
        let graph = model.recomposed(&plan);
        let inferred = infer(graph, &Binding { batch: Some(2), ..Binding::default() }).unwrap();
        let program = program(graph, &inferred, &plan).unwrap();
        let given = given(graph, &program, true);
        let mut trainer = Trainer::<Processor>::new(&program, NdArrayDevice::Cpu, &given).unwrap();
        let mut found = Vec::new();
        let mut see = |_, gradient: &FloatTensor<Processor>| {
            found.push(summary(&download::<Processor>(gradient.clone()).unwrap())[2]);
        };
        trainer.step(&mut |_| {}, &mut see).unwrap().unwrap();
        found
    };
    let (one, three) = (gradients(1), gradients(3));
    assert!(!one.is_empty() && one.len() == three.len());
    for (one, three) in one.iter().zip(&three) {
        assert!((3.0 * one - three).abs() <= 1e-4 * three + 1e-6, "{one} {three}");
    }
}

#[test]
fn forward_agrees_with_onnxruntime() {
    let reference = reference();
    let mut wrong = Vec::new();
    for (key, expected) in reference.as_object().unwrap() {
        let Some(file) = key.strip_prefix("output ") else { continue };
        let model =
            memfit_onnx::import_from(std::fs::File::open(format!("{MODELS}/{file}.onnx")).unwrap()).unwrap();
        let mut graph = model.graph;
        graph.store_generated_weights();
        let inferred = infer(&graph, &Binding { batch: Some(2), ..Binding::default() }).unwrap();
        let plan = Plan { mode: Mode::Infer, ..Plan::default() };
        let program = match program(&graph, &inferred, &plan) {
            Ok(program) => program,
            Err(problems) => {
                wrong.push(format!("{file}: {}", problems[0]));
                continue;
            }
        };
        let trainer =
            Trainer::<Processor>::new(&program, NdArrayDevice::Cpu, &given(&graph, &program, false)).unwrap();
        let outputs = trainer.infer(&mut |_| {}).unwrap();
        for (output, expected) in outputs.into_iter().zip(expected.as_array().unwrap()) {
            let found = summary(&download::<Processor>(output.float().unwrap()).unwrap());
            if !agrees(found, expected) {
                wrong.push(format!("{file}: {found:?}, expected {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn gradients_agree_with_pytorch() {
    let wrong = gradients(Backend::Cpu, &["step", "net"]);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[cfg(feature = "wgpu")]
#[test]
fn gradients_on_wgpu_agree_with_pytorch() {
    if memfit_validate::backends::device(Backend::Wgpu) == "no device" {
        println!("skipped: no adapter");
        return;
    }
    // The larger ones take minutes on a processor that stands for a card.
    let wrong = gradients(Backend::Wgpu, &["net"]);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What is wrong with the loss and the gradients of which network, of these kinds.
fn gradients(backend: Backend, kinds: &[&str]) -> Vec<String> {
    let reference = reference();
    let mut wrong = Vec::new();
    for (key, expected) in reference.as_object().unwrap() {
        let (name, path) = match key.split_once(' ').filter(|(kind, _)| kinds.contains(kind)) {
            Some(("step", name)) => (name, format!("{MODELS}/{name}.ts_train.onnx")),
            // Small networks of one kind of layers each, which `models/reference/small_nets.py` describes.
            Some(("net", name)) => (name, format!("{DATA}/{name}.onnx")),
            _ => continue,
        };
        let model = memfit_onnx::import_from(std::fs::File::open(path).unwrap()).unwrap();
        let model = Model::new(model.graph, name, "onnx", model.operators);
        let loss = match expected["of"].as_str() {
            Some("cross-entropy") => Loss::CrossEntropy,
            Some("mse") => Loss::Mse,
            Some("bce") => Loss::Bce,
            _ => Loss::None,
        };
        let plan = Plan { optimizer: "sgd".into(), loss, ..Plan::default() };
        let graph = model.recomposed(&plan);
        let inferred = infer(graph, &Binding { batch: Some(2), ..Binding::default() }).unwrap();
        let mut program = match program(graph, &inferred, &plan) {
            Ok(program) => program,
            Err(problems) => {
                wrong.push(format!("{name}: {}", problems[0]));
                continue;
            }
        };
        common::keep_everything(&mut program);
        let mut given = given(graph, &program, true);
        for source in &mut program.sources {
            if let Some(values) = given.remove(&*source.name) {
                source.fill = Fill::Values(values.into());
            }
        }
        let (loss, found) = match common::step(backend, &program) {
            Ok(made) => made,
            Err(ended) => {
                wrong.push(format!("{name}: {ended:?}"));
                continue;
            }
        };
        let want = expected["loss"].as_f64().unwrap();
        if (loss - want).abs() > 1e-4 * want.abs().max(1.0) {
            wrong.push(format!("{name}: loss {loss}, expected {want}"));
        }
        for (parameter, expected) in expected["gradients"].as_object().unwrap() {
            match found.get(parameter) {
                None => wrong.push(format!("{name}: {parameter} has no gradient")),
                Some(gradient) => {
                    let found = summary(gradient);
                    if !agrees(found, expected) {
                        wrong.push(format!("{name}: {parameter} {found:?}, expected {expected}"));
                    }
                }
            }
        }
    }
    wrong
}
