//! Advice for real models: what it promises is what an estimate of the changed plan says.
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::Life;
use memfit_engine::advise::{Advice, Around, advise as advise_around};
use memfit_engine::devices::Card;
use memfit_engine::{Model, Plan, Precision, Verdict};
use memfit_graph::{Binding, Bytes, Problem};

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");

fn model(name: &str) -> Model {
    let bytes = std::fs::read(format!("{MODELS}/{name}.onnx")).unwrap();
    let imported = memfit_onnx::import(&bytes).unwrap();
    Model::new(imported.graph, name, "onnx", imported.operators)
}

fn batch(n: u64) -> Binding {
    Binding { batch: Some(n), ..Binding::default() }
}

fn advise(model: &Model, binding: &Binding, plan: &Plan, card: &Card) -> Result<Advice, Vec<Problem>> {
    advise_around(model, binding, plan, card, &Around::default())
}

fn names(advice: &Advice) -> Vec<&str> {
    advice.changes.iter().map(|change| change.name).collect()
}

#[test]
fn a_step_that_is_too_large_gets_changes_that_make_it_fit() {
    let model = model("resnet50.ts_train");
    let (plan, card) = (Plan::default(), Card::find("rtx-3060").unwrap());
    let advice = advise(&model, &batch(192), &plan, &card).unwrap();
    assert_eq!((advice.now.verdict, advice.before.batch), (Verdict::DoesNotFit, Some(192)));
    let change = |name: &str| advice.changes.iter().find(|c| c.name == name).unwrap();
    // The number is that of the changed plan, not a rule of thumb.
    let mixed = Plan { precision: Precision::MixedBf16, ..plan.clone() };
    let estimate = model.estimate_on(&batch(192), &mixed, Some(&card)).unwrap();
    let outcome = change("mixed-precision").outcome;
    assert_eq!((outcome.reserved, outcome.verdict), (estimate.peak.reserved, estimate.fit.unwrap().verdict));
    assert_eq!(change("accumulate").title, "2 micro-batches of 96 a step");
    assert!(change("accumulate").snippet.contains("batch_size=96"));
    // A loop that halves comes to the same. A layout saves copies and no more, and in float32 not those.
    assert_eq!(change("retry").outcome, change("accumulate").outcome);
    assert!(!names(&advice).contains(&"channels-last"));
    let half = Plan { precision: Precision::MixedFp16, ..plan.clone() };
    let advised = advise(&self::model("resnet18.ts_train"), &batch(1024), &half, &card).unwrap();
    let layout = advised.changes.iter().find(|c| c.name == "channels-last").unwrap();
    assert!(layout.saving > 0 && layout.outcome.verdict == Verdict::DoesNotFit);
    // One change is enough, and it is no drastic one.
    let combination = advice.combination.as_ref().unwrap();
    assert_eq!((combination.parts.len(), combination.outcome.verdict), (1, Verdict::Fits));
    assert!(!names(&advice).contains(&"close-others"));
}

#[test]
fn what_one_change_can_not_do_several_can() {
    let model = model("resnet50.ts_train");
    let plan = Plan { accumulate: 1, ..Plan::default() };
    let mut card = Card::find("4GiB").unwrap();
    card.other_processes = Bytes::mib(600);
    let advice = advise(&model, &batch(64), &plan, &card).unwrap();
    let combination = advice.combination.unwrap();
    assert!(combination.outcome.verdict > advice.now.verdict, "{combination:?}");
    let parts: std::collections::BTreeSet<_> = combination.parts.iter().map(|part| part.0).collect();
    assert_eq!(parts.len(), combination.parts.len());
}

#[test]
fn a_step_that_fits_needs_nothing() {
    let advice =
        advise(&model("lenet.ts_train"), &batch(8), &Plan::default(), &Card::find("a100-80gb").unwrap())
            .unwrap();
    assert_eq!((advice.now.verdict, advice.combination), (Verdict::Fits, None));
}

#[test]
fn what_else_happens_in_the_process_counts() {
    let model = model("resnet18.ts_train");
    let (plan, card) = (Plan::default(), Card::find("rtx-3060").unwrap());
    let look = |life| {
        advise_around(&model, &batch(32), &plan, &card, &Around { life, ..Around::default() }).unwrap()
    };
    let alone = look(Life::default());
    assert_eq!(alone.now.verdict, Verdict::Fits);
    let life = Life { validation_batch: Some(4096), stale_models: 40, prefetch: 3, ..Life::default() };
    let crowded = look(life);
    assert_eq!(crowded.now.verdict, Verdict::DoesNotFit);
    let change = |name: &str| crowded.changes.iter().find(|c| c.name == name);
    let validation = change("validation-batch").unwrap();
    assert!(validation.saving > 0 && validation.snippet.contains("batch_size="), "{validation:?}");
    let set = crowded.combination.as_ref().unwrap();
    assert_eq!(set.outcome.verdict, Verdict::Fits);
    assert_eq!(look(Life { stale_models: 40, ..Life::default() }).changes[0].name, "fewer-models");
}

#[test]
fn a_step_and_a_validation_that_are_both_far_too_large_shrink_together() {
    let model = model("resnet18.ts_train");
    let (plan, card) = (Plan::default(), Card::find("4GiB").unwrap());
    let life = Life { validation_batch: Some(8192), ..Life::default() };
    let around = Around { life, ..Around::default() };
    let advice = advise_around(&model, &batch(2048), &plan, &card, &around).unwrap();
    let combination = advice.combination.unwrap();
    assert!(combination.parts.iter().any(|(name, ..)| *name == "validation-batch"), "{combination:?}");
    assert!(combination.parts.len() == 2 && combination.outcome.verdict != Verdict::DoesNotFit);
}

#[test]
fn tensorflow_leaves_to_others_what_it_does_not_need() {
    let model = model("resnet18.ts_train");
    let plan = Plan { framework: memfit_engine::Framework::Tensorflow, ..Plan::default() };
    let card = Card::find("rtx-3090").unwrap();
    let advice = advise(&model, &batch(8), &plan, &card).unwrap();
    for name in ["memory-growth", "logical-limit"] {
        let change = advice.changes.iter().find(|c| c.name == name).unwrap();
        assert!(change.for_others && change.saving > 4 << 30, "{change:?}");
        assert_eq!(change.outcome.verdict, Verdict::Fits);
    }
}
