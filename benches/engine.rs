//! Estimating a step: ResNet-50 and transformers of growing length under PyTorch, a model with attention and stacks of growing height
//! under Keras and TensorFlow, to show that time grows as they do.

mod common;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use memfit_bench_models::{dense, transformer};
use memfit_engine::{Framework, Plan};
use memfit_graph::Binding;

fn engine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("estimate");
    let plan = Plan::default();
    let mut binding = Binding { batch: Some(32), ..Binding::default() };
    if let Some(bytes) = common::resnet50() {
        let model = common::model(&bytes);
        group.bench_function("resnet50", |b| b.iter(|| model.estimate(&binding, &plan)));
    }
    binding.symbols.insert("sequence".into(), 128);
    for nodes in common::NODES {
        let model = common::model(&transformer(nodes));
        if let Err(problems) = model.estimate(&binding, &plan) {
            panic!("{problems:?}");
        }
        group.throughput(Throughput::Elements(nodes as u64));
        group.bench_with_input(BenchmarkId::new("transformer", nodes), &model, |b, model| {
            b.iter(|| model.estimate(&binding, &plan));
        });
    }
}

fn keras(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("estimate keras");
    let plan = Plan { framework: Framework::Tensorflow, ..Plan::default() };
    let binding = Binding { batch: Some(32), ..Binding::default() };
    if let Some(bytes) = common::keras_archive() {
        let model = common::keras(&bytes);
        group.bench_function("transformer block", |b| b.iter(|| model.estimate(&binding, &plan)));
    }
    for layers in common::NODES {
        let model = common::keras(dense(layers).as_bytes());
        if let Err(problems) = model.estimate(&binding, &plan) {
            panic!("{problems:?}");
        }
        group.throughput(Throughput::Elements(layers as u64));
        group.bench_with_input(BenchmarkId::new("dense", layers), &model, |b, model| {
            b.iter(|| model.estimate(&binding, &plan));
        });
    }
}

criterion_group!(benches, engine, keras);
criterion_main!(benches);
