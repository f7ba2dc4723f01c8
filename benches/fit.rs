//! The largest batch of a whole matrix: cards by precisions by optimizers, for ResNet-50 and for a transformer of 2,000 operators; for a
//! model of Keras under TensorFlow, whose kernels' order depends on sizes, with XLA and without.

mod common;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use memfit_bench_models::transformer;
use memfit_engine::devices::Card;
use memfit_engine::fit::{Subject, matrix};
use memfit_engine::{Framework, Model, Plan, Precision};
use memfit_graph::Binding;

const CARDS: [&str; 6] = ["rtx-3060", "rtx-3090", "t4", "v100-16gb", "a100-40gb", "h100-80gb"];

fn fit(criterion: &mut Criterion) {
    let cards: Vec<Card> = CARDS.iter().filter_map(|name| Card::find(name).ok()).collect();
    let plan =
        |precision, optimizer: &str| Plan { precision, optimizer: optimizer.into(), ..Plan::default() };
    let precisions = [Precision::Fp32, Precision::MixedFp16, Precision::MixedBf16];
    let of = |precision| ["sgd", "momentum", "adamw"].map(|optimizer| plan(precision, optimizer));
    let plans: Vec<Plan> = precisions.into_iter().flat_map(of).collect();
    let mut binding = Binding::default();
    let mut group = criterion.benchmark_group("fit");
    group.sample_size(10).throughput(Throughput::Elements((cards.len() * plans.len()) as u64));
    let mut run = |name: &str, model: &Model, binding: &Binding| {
        group.bench_function(name, |b| {
            b.iter(|| matrix(Subject::batch(model, binding), &plans, &cards, &mut |_, _| {}));
        });
    };
    if let Some(bytes) = common::resnet50() {
        run("resnet50", &common::model(&bytes), &binding);
    }
    binding.symbols.insert("sequence".into(), 128);
    run("transformer of 2000", &common::model(&transformer(2_000)), &binding);
}

fn keras(criterion: &mut Criterion) {
    let cards: Vec<Card> = CARDS.iter().filter_map(|name| Card::find(name).ok()).collect();
    let Some(model) = common::keras_archive().map(|bytes| common::keras(&bytes)) else { return };
    let mut group = criterion.benchmark_group("fit keras");
    group.sample_size(10).throughput(Throughput::Elements(cards.len() as u64));
    for (name, xla) in [("with XLA", true), ("without", false)] {
        let plan = Plan { framework: Framework::Tensorflow, xla, ..Plan::default() };
        let plans = std::slice::from_ref(&plan);
        group.bench_function(name, |b| {
            b.iter(|| matrix(Subject::batch(&model, &Binding::default()), plans, &cards, &mut |_, _| {}));
        });
    }
}

criterion_group!(benches, fit, keras);
criterion_main!(benches);
