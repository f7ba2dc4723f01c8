//! Reading a file: ResNet-50, and transformers of growing length to show that time grows as they do.

mod common;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use memfit_bench_models::transformer;

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

criterion_group!(benches, importer);
criterion_main!(benches);
