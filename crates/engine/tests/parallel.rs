//! Several GPUs on a real model: what is split is split, what is gathered is seen.
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::parallel::{DeepSpeed, Parallel, Sharding};
use memfit_engine::{Breakdown, Estimate, EventKind, Model, Plan, Precision};
use memfit_graph::{Binding, Bytes};

fn model(name: &str) -> Model {
    let path = format!("{}/../../models/{name}.ts_train.onnx", env!("CARGO_MANIFEST_DIR"));
    let imported = memfit_onnx::import(&std::fs::read(path).unwrap()).unwrap();
    Model::new(imported.graph, name, "onnx", imported.operators)
}

fn run(name: &str, batch: u64, plan: &Plan) -> Estimate {
    model(name).estimate(&Binding { batch: Some(batch), ..Binding::default() }, plan).unwrap()
}

fn estimate(sharding: Option<Sharding>, gpus: u32) -> Estimate {
    let parallel = sharding.map(|sharding| Parallel::data(gpus, sharding));
    run("resnet50", 4, &Plan { parallel, ..Plan::default() })
}

/// Every storage is allocated and freed in turn, and what is alive at the peak re-adds to it.
fn is_balanced(e: &Estimate) {
    let mut alive = vec![false; e.timeline.storages.len()];
    for event in &e.timeline.events {
        let slot = &mut alive[event.storage.0 as usize];
        assert_eq!(*slot, event.kind == EventKind::Free, "{event:?}");
        *slot = event.kind == EventKind::Allocate;
    }
    assert_eq!(e.breakdown.allocated(), e.peak.allocated);
}

#[test]
fn shards_are_as_large_as_their_share() {
    let alone = estimate(None, 1);
    assert_eq!(estimate(Some(Sharding::Zero3), 1).peak, alone.peak);
    let parameters = Bytes(alone.model.parameters_trainable * 4);
    let close = |a: Bytes, b: Bytes| a.0.abs_diff(b.0) < 1 << 20;
    // Buckets hold all gradients once more.
    let ddp = estimate(Some(Sharding::Ddp), 8);
    let buckets = |e: &Estimate| -> Bytes {
        let of = |s: &&memfit_engine::Storage| &*e.timeline.labels[s.label as usize] == "gradient bucket";
        e.timeline.storages.iter().filter(of).map(|s| s.bytes).sum()
    };
    assert_eq!(buckets(&ddp), parameters);
    let state = |e: &Estimate| e.breakdown.optimizer;
    assert!(close(state(&ddp), parameters + parameters));
    assert!(close(state(&estimate(Some(Sharding::Zero1), 8)), Bytes(parameters.0 / 4)));
    let zero3 = estimate(Some(Sharding::Zero3), 8);
    assert!(close(zero3.breakdown.parameters, Bytes(parameters.0 / 8)), "{:?}", zero3.breakdown);
    let peaks = [Sharding::Ddp, Sharding::Zero1, Sharding::Zero2, Sharding::Zero3]
        .map(|s| estimate(Some(s), 8).peak.allocated);
    assert!(peaks.is_sorted_by(|a, b| a >= b), "{peaks:?}");
}

#[test]
fn deepspeed_has_its_buckets_and_keeps_what_comes_again() {
    let under = |sharding, deepspeed| {
        let parallel = Some(Parallel { deepspeed: Some(deepspeed), ..Parallel::data(4, sharding) });
        let e = run("resnet50", 4, &Plan { parallel, ..Plan::default() });
        is_balanced(&e);
        e.peak.allocated
    };
    let usual = DeepSpeed::default();
    let small = DeepSpeed { reduce_bucket: 1_000, ..usual };
    for sharding in [Sharding::Zero1, Sharding::Zero2, Sharding::Zero3] {
        // The bucket is there in full, however small the model is.
        let more = under(sharding, usual) - under(sharding, small);
        assert!(more.0.abs_diff(4 * (500_000_000 - 1_000)) < 16 << 20, "{sharding:?} {more}");
    }
    let thrifty = DeepSpeed { max_reuse: 0, prefetch_bucket: 0, persistence: 0, ..small };
    assert!(under(Sharding::Zero3, thrifty) < under(Sharding::Zero3, small));
}

#[test]
fn there_are_no_more_stages_than_blocks() {
    let (model, plan) = (model("gpt"), |pipeline| {
        let parallel = Parallel { gpus: pipeline, pipeline, ..Parallel::data(1, Sharding::Ddp) };
        Plan { parallel: Some(parallel), ..Plan::default() }
    });
    let binding = Binding { batch: Some(1), ..Binding::default() };
    // Every block a stage of its own: as many as there are, and no more.
    let most = (2..64).take_while(|n| model.estimate(&binding, &plan(*n)).is_ok()).last().unwrap();
    assert!((3..63).contains(&most), "{most}");
    let said = model.estimate(&binding, &plan(most + 1)).unwrap_err();
    assert!(said[0].to_string().contains(&format!("at most {most} stages")), "{}", said[0]);
}

#[test]
fn every_rewritten_step_frees_what_it_makes_and_re_adds() {
    for sharding in [Sharding::Ddp, Sharding::Zero1, Sharding::Zero2, Sharding::Zero3] {
        let e = estimate(Some(sharding), 4);
        is_balanced(&e);
        let layers: Bytes = e.layers.iter().map(|l| Breakdown::allocated(&l.at_peak)).sum();
        assert_eq!(layers, e.peak.allocated, "{sharding:?}");
    }
}

fn split(name: &str, tensor: u32, pipeline: u32, accumulate: u32) -> Estimate {
    let parallel =
        Parallel { gpus: tensor * pipeline, sharding: Sharding::Ddp, tensor, pipeline, deepspeed: None };
    run(name, 8, &Plan { parallel: Some(parallel), accumulate, ..Plan::default() })
}

#[test]
fn a_transformer_is_split_as_megatron_splits_it() {
    for name in ["vit", "transformer_encoder"] {
        let [one, two, four] = [1, 2, 4].map(|n| split(name, n, 1, 1));
        // What stands between the products of a block is whole, the rest is split: a + b / n bytes.
        let saved = |e: &Estimate| e.saved_for_backward.0;
        let (first, second) = (saved(&one) - saved(&two), saved(&two) - saved(&four));
        assert!(first.abs_diff(2 * second) < saved(&one) / 1000, "{name} {first} {second}");
        assert!(first > saved(&one) / 8, "{name}: {first} of {}", saved(&one));
        // All but norms and biases behind rows is split.
        let parameters = |e: &Estimate| e.breakdown.parameters.0;
        assert!(parameters(&two) < parameters(&one) * 11 / 20, "{name}: {}", parameters(&two));
        assert_eq!(two.breakdown.allocated(), two.peak.allocated);
    }
    // Two heads of keys and values: of four GPUs each has one of them, as each of two has; its queries' one of four.
    let [one, two, four] = [1, 2, 4].map(|n| split("llama", n, 1, 1));
    let [of_one, of_two, of_four] = [&one, &two, &four].map(|e| e.saved_for_backward.0);
    assert!(of_two < of_one * 4 / 5 && of_four < of_two, "{of_one} {of_two} {of_four}");
    let (first, second) = (of_one - of_two, of_two - of_four);
    assert!(first > 2 * second && first < 3 * second, "{first} {second}");
    // In a bottleneck of a residual network the first of three convolutions is split by channels.
    let [one, two] = [1, 2].map(|n| split("resnet50", n, 1, 1).saved_for_backward.0);
    assert!(two < one * 9 / 10, "{two} of {one}");
}

#[test]
fn logits_of_split_layers_are_cast_up_as_those_of_whole_ones() {
    let largest = |tensor| {
        let parallel = Some(Parallel { tensor, ..Parallel::data(tensor, Sharding::Ddp) });
        let e = run("gpt", 16, &Plan { parallel, precision: Precision::Bf16, ..Plan::default() });
        let of = |s: &&memfit_engine::Storage| &*e.timeline.labels[s.label as usize] == "_log_softmax";
        e.timeline.storages.iter().filter(of).map(|s| s.bytes).max()
    };
    assert!(largest(1).is_some());
    assert_eq!(largest(2), largest(1));
}

#[test]
fn what_does_not_divide_is_padded_or_told() {
    let said = |e: &Estimate, of: &str| e.assumptions.iter().any(|a| a.contains(of));
    // 4,000 words over three GPUs: 1,408 rows of 192 numbers on each of them.
    let [two, three] = [2, 3].map(|n| split("gpt", n, 1, 1));
    assert!(said(&three, "4000 is padded to 4224") && !said(&two, "padded"), "{:?}", three.assumptions);
    let table = |e: &Estimate| e.layers.iter().map(|l| l.parameter_bytes.0).max();
    assert_eq!([table(&two), table(&three)], [Some(2_000 * 192 * 4), Some(1_408 * 192 * 4)]);
    // Six heads go over three GPUs, not over four or eight.
    let four = split("gpt", 4, 1, 1);
    assert!(said(&four, "6 heads of attention do not go over 4 GPUs"), "{:?}", four.assumptions);
    assert!(!said(&three, "heads of attention"), "{:?}", three.assumptions);
    // Four heads of queries are not given to eight GPUs, whatever their keys have.
    let eight = split("llama", 8, 1, 1);
    assert!(said(&eight, "4 heads of attention do not go over 8 GPUs"), "{:?}", eight.assumptions);
}

#[test]
fn a_stage_has_its_layers_and_what_is_in_flight() {
    let (one, two) = (split("gpt", 1, 1, 2), split("gpt", 1, 2, 2));
    assert!(two.peak.allocated < one.peak.allocated, "{} {}", two.peak.allocated, one.peak.allocated);
    let state = |e: &Estimate| e.breakdown.optimizer.0;
    // More than half of it is that of the matrix that embeds and gives the logits: both stages have it.
    let share = state(&two) * 100 / state(&one);
    assert!((75..85).contains(&share), "{} {}", state(&two), state(&one));
    assert!(two.assumptions.iter().any(|a| a.contains("2 pipeline stages")), "{:?}", two.assumptions);
    for e in [two, split("gpt", 2, 2, 1)] {
        is_balanced(&e);
    }
}

#[test]
fn an_averaged_model_is_whole_unless_parameters_are_split() {
    let state = |ema, sharding: Option<Sharding>| {
        let parallel = sharding.map(|sharding| Parallel::data(8, sharding));
        let plan =
            Plan { ema, parallel, optimizer: "sgd".into(), freeze: vec!["layer*".into()], ..Plan::default() };
        let e = run("resnet18", 4, &plan);
        let all = e.model.parameters_trainable + e.model.parameters_frozen + e.model.buffers;
        (e.breakdown.optimizer.0, all * 4)
    };
    assert_eq!(state(false, None).0, 0);
    for (sharding, parts) in
        [(None, 1), (Some(Sharding::Zero1), 1), (Some(Sharding::Zero2), 8), (Some(Sharding::Zero3), 8)]
    {
        let (bytes, all) = state(true, sharding);
        // Blocks of 512 bytes, and counts of eight bytes.
        assert!(bytes >= all / parts && bytes < all / parts + (1 << 17), "{bytes} of {all}, {sharding:?}");
    }
}
