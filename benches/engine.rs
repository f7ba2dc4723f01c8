//! Estimating a step: ResNet-50, and transformers of growing length to show that time grows as they do.

mod common;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use memfit_bench_models::transformer;
use memfit_engine::Plan;
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

criterion_group!(benches, engine);
criterion_main!(benches);
