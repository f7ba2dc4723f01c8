//! What real exports do that one would not expect, one test each.
//!
//! Models are those of this repository where one shows it, else graphs of a few nodes.

#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::{Category, Estimate, Framework, Model, OptimizerImpl, Phase, Plan, Precision};
use memfit_graph::{Attribute, Attributes, Binding, DType, Graph, Role, Shape, TensorId, Type, Value, infer};
use std::path::Path;

fn load(file: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(format!("{file}.onnx"));
    let imported = memfit_onnx::import(&std::fs::read(path).unwrap()).unwrap();
    Model::new(imported.graph, file, "onnx", imported.operators)
}

fn estimate(model: &Model, batch: u64, plan: &Plan) -> Estimate {
    model.estimate(&Binding { batch: Some(batch), ..Binding::default() }, plan).unwrap()
}

/// A graph that is drawn node by node.
#[derive(Default)]
struct Sketch(Graph);

impl Sketch {
    fn input(&mut self, shape: &[u64]) -> TensorId {
        let id = self.0.add_tensor("x", Type::tensor(DType::Float32, Shape::from(shape)), Role::Input);
        self.0.inputs.push(id);
        id
    }

    fn weight(&mut self, name: &str, shape: &[u64]) -> TensorId {
        self.0.add_tensor(name, Type::tensor(DType::Float32, Shape::from(shape)), Role::Initializer)
    }

    fn number(&mut self, x: f64) -> TensorId {
        let name = format!("c{}", self.0.tensors.len());
        self.0.add_constant(name, Value::scalar(DType::Float32, x))
    }

    fn push(&mut self, op: &str, inputs: &[TensorId]) -> TensorId {
        self.push_with(op, Attributes::default(), inputs)
    }

    fn push_with(&mut self, op: &str, attributes: Attributes, inputs: &[TensorId]) -> TensorId {
        let name = format!("{op}{}", self.0.tensors.len());
        self.0.push(op, attributes, inputs, &name).unwrap()
    }

    fn model(mut self, output: TensorId) -> Model {
        self.0.outputs = vec![output];
        let operators = self.0.nodes.len() as u64;
        Model::new(self.0, "sketch", "onnx", operators)
    }
}

fn plain(model: &Model, precision: Precision) -> Estimate {
    let plan = Plan { precision, loss: memfit_engine::Loss::None, ..Plan::default() };
    model.estimate(&Binding::default(), &plan).unwrap()
}

#[test]
fn a_batch_norm_with_one_output_trains() {
    // The newer exporter, not optimizing, writes norms of a training model with one output and no training_mode.
    let norm = |outputs_of_training: bool| {
        let mut s = Sketch::default();
        let x = s.input(&[4, 8, 16, 16]);
        let w = s.weight("conv.weight", &[8, 8, 3, 3]);
        let pads = Attributes::from([("pads", Attribute::Ints(vec![1; 4]))]);
        let mut inputs = vec![s.push_with("Conv", pads, &[x, w])];
        for part in ["weight", "bias", "running_mean", "running_var"] {
            inputs.push(s.weight(&format!("bn.{part}"), &[8]));
        }
        let mode = Attributes::from([("training_mode", Attribute::Int(i64::from(outputs_of_training)))]);
        let y = s.push_with("BatchNormalization", mode, &inputs);
        plain(&s.model(y), Precision::Fp32)
    };
    let (inference, training) = (norm(false), norm(true));
    assert_eq!(inference.saved_for_backward, training.saved_for_backward);
    assert_eq!(inference.peak.allocated, training.peak.allocated);
    // Its Dropout has no mask among its outputs; training keeps one all the same.
    let saved = estimate(&load("vit.dyn_train"), 4, &Plan::default()).saved_for_backward;
    assert_eq!(saved, estimate(&load("vit.ts_train"), 4, &Plan::default()).saved_for_backward);
}

#[test]
fn folded_norms_are_missed_and_put_back() {
    let (training, folded) = (load("resnet18.ts_train"), load("resnet18.dyn_eval"));
    let plan = Plan::default();
    let lost = estimate(&folded, 4, &plan);
    assert_eq!(lost.model.parameters_trainable, 11_684_712);
    assert!(lost.warnings.iter().any(|w| w.contains("--assume-batchnorm")), "{:?}", lost.warnings);
    let assumed = estimate(&folded, 4, &Plan { assume_batchnorm: true, ..plan.clone() });
    let whole = estimate(&training, 4, &plan);
    assert_eq!(assumed.model.parameters_trainable, whole.model.parameters_trainable);
    assert_eq!(assumed.model.buffers, whole.model.buffers);
    assert_eq!(assumed.peak.allocated, whole.peak.allocated);
}

#[test]
fn an_embedding_that_the_export_untied_counts_once() {
    let (training, untied) = (load("gpt.ts_train"), load("gpt.ts_eval_b1"));
    let parameters = |model: &Model, tied| {
        let plan = Plan { tied_embeddings: tied, ..Plan::default() };
        estimate(model, 2, &plan).model.parameters_trainable
    };
    assert_eq!(parameters(&untied, None), parameters(&training, None));
    assert_eq!(parameters(&untied, Some(false)), parameters(&training, None) + 4000 * 192);
    let warnings = estimate(&untied, 2, &Plan::default()).warnings;
    assert!(warnings.iter().any(|w| w.contains("tokens.weight")), "{warnings:?}");
}

#[test]
fn merged_equal_weights_are_one_for_each_user() {
    let mut s = Sketch::default();
    let x = s.input(&[4, 8]);
    let ones = s.weight("norm1.weight", &[8]);
    let y = s.push("Mul", &[x, ones]);
    let second = s.push("Identity", &[ones]);
    let y = s.push("Mul", &[y, second]);
    assert_eq!(plain(&s.model(y), Precision::Fp32).model.parameters_trainable, 16);
}

#[test]
fn a_simplified_layer_is_the_same_layer() {
    let layer = |simplified: bool| {
        let mut s = Sketch::default();
        let x = s.input(&[4, 8]);
        let (w, b) = (s.weight("fc.weight", &[8, 16]), s.weight("fc.bias", &[16]));
        let y = if simplified {
            s.push("Gemm", &[x, w, b])
        } else {
            let y = s.push("MatMul", &[x, w]);
            s.push("Add", &[y, b])
        };
        let y = s.push("Relu", &[y]);
        plain(&s.model(y), Precision::MixedBf16)
    };
    let (whole, simplified) = (layer(false), layer(true));
    assert_eq!(whole.peak.allocated, simplified.peak.allocated);
    assert_eq!(whole.saved_for_backward, simplified.saved_for_backward);
    // Dropout is gone from every inference export, which is said.
    let warnings = estimate(&load("gpt.ts_eval_b1"), 2, &Plan::default()).warnings;
    assert!(warnings.iter().any(|w| w.contains("dropout")), "{warnings:?}");
}

#[test]
fn stochastic_depth_is_arithmetic_on_a_number_for_each_sample() {
    let block = |drops: bool| {
        let mut s = Sketch::default();
        let x = s.input(&[4, 8, 16, 16]);
        let (w, keep) = (s.weight("conv.weight", &[8, 8, 1, 1]), s.number(0.9));
        let mut y = s.push("Conv", &[x, w]);
        if drops {
            let shape = Value::vector(DType::Int64, [4, 1, 1, 1]);
            let shape = s.0.add_constant("noise_shape", shape);
            let noise = s.push_with("ConstantOfShape", Attributes::default(), &[shape]);
            let noise = s.push("RandomUniformLike", &[noise]);
            let noise = s.push("Less", &[noise, keep]);
            let noise = s.push_with("Cast", Attributes::from([("to", Attribute::Int(1))]), &[noise]);
            let noise = s.push("Div", &[noise, keep]);
            y = s.push("Mul", &[y, noise]);
        }
        let y = s.push("Relu", &[y]);
        plain(&s.model(y), Precision::Fp32)
    };
    let (without, with) = (block(false), block(true));
    assert!(with.unknown.is_empty(), "{:?}", with.unknown);
    // What it keeps is one number a sample, in a block of the allocator; the activation is not kept a second time.
    let more = with.saved_for_backward.0 - without.saved_for_backward.0;
    assert!(more <= 512, "{more} bytes");
}

#[test]
fn stacked_recurrent_layers_are_one_call_in_every_export() {
    // Where the training export fails (dropout between layers), the other one holds what training holds.
    let mut s = Sketch::default();
    let x = s.input(&[10, 2, 8]);
    let mut y = x;
    for inputs in [8, 4] {
        let (w, r) = (s.weight("w", &[1, 16, inputs]), s.weight("r", &[1, 16, 4]));
        y = s.push_with("LSTM", Attributes::from([("hidden_size", Attribute::Int(4))]), &[y, w, r]);
        let axes = s.0.add_constant(format!("axes{inputs}"), Value::vector(DType::Int64, [1]));
        y = s.push("Squeeze", &[y, axes]);
    }
    let model = s.model(y);
    let graph = model.recomposed(&Plan::default());
    assert_eq!(graph.nodes.iter().filter(|n| n.op.name() == "LSTM").count(), 1);
}

#[test]
fn attention_is_one_kernel_that_keeps_no_square() {
    let model = load("gpt.ts_train");
    let saved = |composed| {
        let plan = Plan { composed_attention: composed, ..Plan::default() };
        estimate(&model, 16, &plan).saved_for_backward.0
    };
    // Three layers of 96 x 96 probabilities for each of 16 samples and four heads at the least.
    let square = 3 * 16 * 4 * 96 * 96 * 4;
    assert!(saved(false) + square < saved(true), "{} and {}", saved(false), saved(true));
}

#[test]
fn autocast_keeps_more_than_half_and_at_one_sample_more_than_all() {
    let model = load("resnet50.ts_train");
    let saved = |batch, precision| {
        estimate(&model, batch, &Plan { precision, ..Plan::default() }).saved_for_backward.0
    };
    let (full, mixed) = (saved(1, Precision::Fp32), saved(1, Precision::MixedBf16));
    assert!(mixed > full, "{mixed} and {full}: casts of all weights are kept");
    let (full, mixed) = (saved(64, Precision::Fp32), saved(64, Precision::MixedBf16));
    assert!(full / 2 < mixed && mixed < full, "{mixed} and {full}");
}

#[test]
fn the_optimizers_step_can_be_the_peak() {
    let model = load("resnet50.ts_train");
    let phase = |optimizer_impl| {
        let plan = Plan { optimizer: "adamw".into(), optimizer_impl, ..Plan::default() };
        estimate(&model, 1, &plan).peak.phase
    };
    assert_eq!(phase(OptimizerImpl::Foreach), Phase::OptimizerStep);
    assert_ne!(phase(OptimizerImpl::Fused), Phase::OptimizerStep);
}

#[test]
fn optimizer_state_is_there_all_the_step() {
    // Two steps in a row give what forward and backward give with the state added.
    let model = load("unet.ts_train");
    let peak = |optimizer: &str| {
        let estimate = estimate(&model, 16, &Plan { optimizer: optimizer.into(), ..Plan::default() });
        assert_eq!(estimate.peak.phase, Phase::Backward);
        let state = estimate.breakdown.optimizer.0;
        (estimate.peak.allocated.0, state)
    };
    let ((plain, none), (adam, state)) = (peak("sgd"), peak("adam"));
    assert_eq!((none, adam), (0, plain + state));
}

#[test]
fn every_shape_of_every_file_is_known() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    let mut tensors = 0;
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let file = entry.file_name().into_string().unwrap();
        let Some(name) = file.strip_suffix(".onnx") else { continue };
        let model = load(name);
        let graph = model.graph();
        let inferred = infer(graph, &Binding { batch: Some(3), ..Binding::default() }).unwrap();
        for id in graph.nodes.iter().flat_map(|n| n.outputs.iter().flatten()) {
            let known = inferred.shape(*id).is_some_and(|s| s.known().is_some());
            assert!(known, "{name}: {}", graph.tensor(*id).name);
            tensors += 1;
        }
    }
    assert!(tensors > 4000, "{tensors} tensors");
}

#[test]
fn what_tensorflows_cpu_kernels_unfold_is_not_on_a_gpu() {
    // Conv2DBackpropFilter on a CPU unfolds its input: nine times as much for a window of three by three.
    let mut s = Sketch::default();
    let x = s.input(&[4, 8, 32, 32]);
    let mut y = x;
    for i in 0..2 {
        let w = s.weight(&format!("conv{i}.weight"), &[8, 8, 3, 3]);
        let pads = Attributes::from([("pads", Attribute::Ints(vec![1; 4]))]);
        y = s.push_with("Conv", pads, &[y, w]);
    }
    let model = s.model(y);
    let plan = Plan { framework: Framework::Tensorflow, loss: memfit_engine::Loss::None, ..Plan::default() };
    let estimate = model.estimate(&Binding::default(), &plan).unwrap();
    let unfolded = 4 * 8 * 9 * 32 * 32 * 4;
    let storages = &estimate.timeline.storages;
    let largest =
        storages.iter().filter(|s| s.category != Category::Workspace).map(|s| s.bytes.0).max().unwrap();
    assert!(largest < unfolded, "{largest} bytes");
}
