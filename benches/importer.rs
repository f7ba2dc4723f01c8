//! Reading a file: ResNet-50 and transformers of growing length from ONNX, a model with attention and stacks of growing height from
//! Keras, to show that time grows as they do.

mod common;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use memfit_bench_models::{dense, transformer};
use memfit_keras::Options;

fn importer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("import");
    if let Some(bytes) = common::resnet50() {
        group.bench_function("resnet50", |b| b.iter(|| memfit_onnx::import(&bytes)));
    }
    for nodes in common::NODES {
        let bytes = transformer(nodes);
        group.throughput(Throughput::Elements(nodes as u64));
        group.bench_with_input(BenchmarkId::new("transformer", nodes), &bytes, |b, bytes| {
            b.iter(|| memfit_onnx::import(bytes));
        });
    }
}

fn keras(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("import keras");
    if let Some(bytes) = common::keras_archive() {
        group.bench_function("transformer block", |b| {
            b.iter(|| memfit_keras::import(&bytes, &Options::default()));
        });
    }
    for layers in common::NODES {
        let text = dense(layers);
        group.throughput(Throughput::Elements(layers as u64));
        group.bench_with_input(BenchmarkId::new("dense", layers), text.as_bytes(), |b, bytes| {
            b.iter(|| memfit_keras::import(bytes, &Options::default()));
        });
    }
}

criterion_group!(benches, importer, keras);
criterion_main!(benches);
