//! What a file says never makes an estimate panic: whatever sizes, types and attributes an operator or a layer is given, a step of it under
//! every framework is an error or a number.
//!
//! `PROPTEST_CASES` in the environment runs as many cases as it says.

#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::devices::Card;
use memfit_engine::fit::{self, Subject};
use memfit_engine::{Checkpoint, Framework, Life, Mode, Model, Plan, Precision};
use memfit_graph::{Binding, DType, Dim, Graph, Role, Shape, Type, ops};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{RngSeed, TestRunner};
use serde_json::{Value, json};
use std::cell::Cell;
use std::sync::LazyLock;

mod operators;

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");

/// Sizes at which something ends: nothing, one, a few, and so many that two of them have a product near or beyond 2^64.
const SIZES: &[u64] = &[0, 1, 2, 3, 1 << 20, 1 << 40];

/// So many cases, always the same; where the environment asks for a number, as many.
fn cases(cases: u32, seed: u64) -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { config.cases } else { cases };
    let rng_seed =
        if std::env::var_os("PROPTEST_RNG_SEED").is_some() { config.rng_seed } else { RngSeed::Fixed(seed) };
    ProptestConfig { cases, rng_seed, max_shrink_iters: 256, ..config }
}

/// A plan, and whether the largest batch is looked for.
fn plan() -> impl Strategy<Value = (Plan, bool)> {
    let frameworks = select(&[Framework::Pytorch, Framework::Tensorflow, Framework::Burn][..]);
    let precisions = select(
        &[Precision::Fp32, Precision::MixedFp16, Precision::MixedBf16, Precision::Fp16, Precision::Bf16][..],
    );
    let optimizers = select(&["adam", "sgd", "adafactor", "muon", "lamb"][..]);
    let checkpoints = select(&[Checkpoint::None, Checkpoint::None, Checkpoint::Block, Checkpoint::Full][..]);
    let flags = any::<[bool; 6]>();
    let plan = (frameworks, precisions, optimizers, checkpoints, flags, 1_u32..3).prop_map(
        |(framework, precision, optimizer, checkpoint, flags, accumulate)| {
            let [xla, infer, composed_attention, clip_norm, eager, channels_last] = flags;
            Plan {
                framework,
                precision,
                optimizer: optimizer.into(),
                checkpoint: if framework == Framework::Burn { Checkpoint::None } else { checkpoint },
                xla,
                eager: eager && !xla,
                mode: if infer { Mode::Infer } else { Mode::Train },
                composed_attention,
                clip_norm,
                channels_last,
                accumulate,
                ..Plan::default()
            }
        },
    );
    (plan, prop::bool::weighted(0.08))
}

/// All that is asked of a model, now and then the largest batch as well, which takes long. Gives whether it has a step at all.
fn use_up(graph: Graph, format: &str, batch: Option<u64>, (plan, searches): &(Plan, bool)) -> bool {
    let model = Model::new(graph, "damaged", format, 1);
    let binding = Binding { batch, ..Binding::default() };
    let Ok(mut estimate) = model.estimate(&binding, plan) else { return false };
    let rows: memfit_graph::Bytes = estimate.layers.iter().map(|row| row.at_peak.allocated()).sum();
    assert_eq!((rows, estimate.breakdown.allocated()), (estimate.peak.allocated, estimate.peak.allocated));
    let card = Card::find("8GiB").unwrap();
    model.estimate_on(&binding, plan, Some(&card)).unwrap();
    model.saved_by_function(&binding, plan).unwrap();
    let many = u32::MAX * u32::from(plan.clip_norm);
    let life = Life { stale_models: many, prefetch: 1, validation_batch: Some(2), ..Life::default() };
    let _ = model.add_process(&mut estimate, &binding, &life, &[], Some(&card));
    if *searches {
        let (subject, plans) = (Subject::batch(&model, &binding), std::slice::from_ref(plan));
        let _ = fit::matrix(subject, plans, std::slice::from_ref(&card), &mut |_, _| {});
    }
    true
}

/// Models of this repository whose steps are short.
static GRAPHS: LazyLock<Vec<Graph>> = LazyLock::new(|| {
    let names = [
        "autoencoder.ts_train",
        "lenet.ts_train",
        "gru.ts_train",
        "pointnet.ts_train",
        "two_tower.ts_train",
        "cnn3d.ts_train",
        "dcgan_generator.ts_train",
        "mlp.dyn_eval",
    ];
    let read = |name: &str| {
        let file = std::fs::read(format!("{MODELS}/{name}.onnx")).unwrap();
        memfit_onnx::import(&file).unwrap().graph
    };
    names.map(read).into()
});

/// The configs of Keras models with every layer, and the paths of the whole numbers in each.
static CONFIGS: LazyLock<Vec<(Value, Vec<String>)>> = LazyLock::new(|| {
    let text = std::fs::read_to_string(format!("{MODELS}/keras/layers.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let configs = all["models"].as_array().unwrap().iter().map(|truth| truth["config"].clone());
    let with_numbers = |config: Value| {
        let mut paths = Vec::new();
        numbers(&config, "", &mut paths);
        (config, paths)
    };
    configs.map(with_numbers).collect()
});

/// JSON pointers to all whole numbers.
fn numbers(value: &Value, at: &str, paths: &mut Vec<String>) {
    match value {
        Value::Number(n) if n.is_u64() => paths.push(at.to_owned()),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| numbers(item, &format!("{at}/{i}"), paths));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| numbers(field, &format!("{at}/{name}"), paths));
        }
        _ => {}
    }
}

/// A layer as a file has it.
fn layer(class: &str, config: Value) -> Value {
    let mut config = config;
    config["name"] = class.to_ascii_lowercase().into();
    json!({"module": "keras.layers", "class_name": class, "config": config})
}

/// A model of these layers on an input of these sizes behind the batch.
fn sequential(sizes: &[u64], layers: &[Value]) -> Value {
    let shape: Vec<Value> = std::iter::once(Value::Null).chain(sizes.iter().map(|n| json!(n))).collect();
    let layers = [&[layer("InputLayer", json!({"batch_shape": shape}))], layers].concat();
    json!({"module": "keras", "class_name": "Sequential", "config": {"name": "s", "layers": layers}})
}

fn keras(config: &Value) -> Model {
    let text = config.to_string();
    let imported = memfit_keras::import(text.as_bytes(), &memfit_keras::Options::default()).unwrap();
    Model::new(imported.graph, "m", "keras", 1)
}

#[test]
fn what_a_model_inside_of_a_layer_makes_counts() {
    // Outside of the wrapper nothing is large.
    let repeat = layer("RepeatVector", json!({"n": 1_u64 << 40}));
    let dense = layer("TimeDistributed", json!({"layer": layer("Dense", json!({"units": 4}))}));
    let inner = sequential(&[4], &[repeat, dense, layer("GlobalAveragePooling1D", json!({}))]);
    let model = keras(&sequential(&[1, 4], &[layer("TimeDistributed", json!({"layer": inner}))]));
    let binding = Binding { batch: Some(1 << 40), ..Binding::default() };
    for framework in [Framework::Pytorch, Framework::Tensorflow] {
        for xla in [false, true] {
            let problems = model.estimate(&binding, &Plan { framework, xla, ..Plan::default() }).unwrap_err();
            assert!(problems[0].message.contains("at most 1 EiB"), "{framework:?}: {}", problems[0]);
        }
    }
}

#[test]
fn steps_of_steps_are_written_out_as_long_as_all_of_them_are_few() {
    // Each level is a layer around a layer, or around a model of one layer.
    let storages = |steps: &[u64], in_models: bool, framework| {
        let mut within = layer("Dense", json!({"units": 4}));
        for level in (0..steps.len()).rev() {
            if in_models {
                within = sequential(&[&steps[level + 1..], &[4]].concat(), &[within]);
            }
            within = layer("TimeDistributed", json!({"layer": within}));
        }
        let model = keras(&sequential(&[steps, &[4]].concat(), &[within]));
        let binding = Binding { batch: Some(2), ..Binding::default() };
        let plan = Plan { framework, mode: Mode::Infer, ..Plan::default() };
        model.estimate(&binding, &plan).unwrap().timeline.storages.len()
    };
    for framework in [Framework::Pytorch, Framework::Tensorflow] {
        for in_models in [false, true] {
            let few = storages(&[8, 8], in_models, framework);
            assert!(few > 64, "{few} for {framework:?}");
            let many = storages(&[160, 160], in_models, framework);
            assert!((160..25_600).contains(&many), "{many} for {framework:?}");
            let most = storages(&[512, 512, 512], in_models, framework);
            assert!(most < 16_384, "{most} for {framework:?}");
        }
    }
}

#[test]
fn no_operator_makes_an_estimate_panic() {
    let (mut failures, estimated) = (Vec::new(), Cell::new(0));
    for (i, spec) in ops::all().enumerate() {
        let mut runner = TestRunner::new(cases(16, i as u64));
        let done = runner.run(&(operators::drawn(), plan()), |(drawn, plan)| {
            let used = operators::one_operator(spec, &drawn).map(|graph| use_up(graph, "onnx", None, &plan));
            estimated.set(estimated.get() + u32::from(used == Some(true)));
            Ok(())
        });
        failures.extend(done.err().map(|why| format!("{}: {why}", spec.name)));
    }
    assert!(estimated.get() > 400, "only {} have a step", estimated.get());
    assert!(failures.is_empty(), "{} operators:\n{}", failures.len(), failures.join("\n"));
}

proptest! {
    #![proptest_config(cases(120, 1))]

    #[test]
    fn no_size_in_a_model_makes_an_estimate_panic(
        which in any::<Index>(),
        changes in prop::collection::vec((any::<Index>(), any::<Index>(), select(SIZES)), 0..4),
        batch in prop::option::of(select(SIZES)),
        plan in plan(),
    ) {
        let mut graph = which.get(&GRAPHS).clone();
        let is_given = |i: &usize| matches!(graph.tensors[*i].role, Role::Input | Role::Initializer);
        let given: Vec<usize> = (0..graph.tensors.len()).filter(is_given).collect();
        for (tensor, axis, size) in changes {
            let tensor = &mut graph.tensors[*tensor.get(&given)];
            let Some(shape) = tensor.declared.shape().filter(|shape| shape.rank() > 0) else { continue };
            let mut dims = shape.dims().to_vec();
            *axis.get_mut(&mut dims) = Dim::Known(size);
            let dtype = tensor.declared.dtype().unwrap_or(DType::Float32);
            tensor.declared = Type::tensor(dtype, dims.into_iter().collect::<Shape>());
        }
        use_up(graph, "onnx", batch, &plan);
    }

    #[test]
    fn no_number_in_a_layer_makes_an_estimate_panic(
        which in any::<Index>(),
        changes in prop::collection::vec((any::<Index>(), select(SIZES)), 0..4),
        batch in prop::option::of(select(SIZES)),
        plan in plan(),
    ) {
        let (config, paths) = which.get(&CONFIGS);
        let mut config = config.clone();
        for (at, size) in changes {
            let number = config.pointer_mut(at.get::<String>(paths)).unwrap();
            *number = size.into();
        }
        if let Ok(model) = memfit_keras::import(config.to_string().as_bytes(), &memfit_keras::Options::default()) {
            use_up(model.graph, "keras", batch, &plan);
        }
    }
}
