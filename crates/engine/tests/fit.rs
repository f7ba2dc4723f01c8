//! The largest batch of real models: the answer's own replay goes through, the next one's does not.
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::devices::Card;
use memfit_engine::fit::{self, Axis, Cell, Subject};
use memfit_engine::{Life, Model, Plan, Precision, Verdict};
use memfit_graph::{Binding, Bytes};

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");

fn model(name: &str) -> Model {
    let bytes = std::fs::read(format!("{MODELS}/{name}.onnx")).unwrap();
    let imported = memfit_onnx::import(&bytes).unwrap();
    Model::new(imported.graph, name, "onnx", imported.operators)
}

fn batch(n: u64) -> Binding {
    Binding { batch: Some(n), ..Binding::default() }
}

#[test]
fn the_largest_batch_fits_and_the_next_does_not() {
    let model = model("resnet18.ts_train");
    let cards: Vec<Card> = ["8GiB", "rtx-3060"].map(|name| Card::find(name).unwrap()).into();
    let plan =
        |precision, optimizer: &str| Plan { precision, optimizer: optimizer.into(), ..Plan::default() };
    let plans = [plan(Precision::Fp32, "adam"), plan(Precision::MixedFp16, "sgd")];
    let mut told = Vec::new();
    let cells = fit::matrix(Subject::batch(&model, &Binding::default()), &plans, &cards, &mut |done, of| {
        told.push((done, of));
    });
    let cells = cells.unwrap();
    assert_eq!(told, [(1, 4), (2, 4), (3, 4), (4, 4)]);
    assert_eq!(cells.iter().map(|c| &*c.gpu).collect::<Vec<_>>(), ["8GiB", "8GiB", "rtx-3060", "rtx-3060"]);
    for (cell, (card, plan)) in cells.iter().zip(cards.iter().flat_map(|c| plans.iter().map(move |p| (c, p))))
    {
        let verdict = |n: u64| {
            let estimate = model.estimate_on(&batch(n), plan, Some(card)).unwrap();
            (estimate.fit.as_ref().unwrap().verdict, estimate)
        };
        let (at, estimate) = verdict(cell.largest);
        assert!(at != Verdict::DoesNotFit && verdict(cell.largest + 1).0 == Verdict::DoesNotFit, "{cell:?}");
        assert!(verdict(cell.safe).0 == Verdict::Fits && cell.safe < cell.largest, "{cell:?}");
        let fit = estimate.fit.unwrap();
        assert_eq!((cell.device, cell.usable), (fit.reserved + estimate.breakdown.context, fit.usable));
    }
    assert!(cells[1].largest > cells[0].largest && cells[2].largest > cells[0].largest);
    let names =
        |cells: &[Cell]| -> Vec<String> { fit::smallest(cells).iter().map(|c| c.gpu.clone()).collect() };
    assert_eq!(names(&cells), ["8GiB", "8GiB"]);
    let asked = batch(cells[0].largest + 1);
    let cells = fit::matrix(Subject::batch(&model, &asked), &plans, &cards, &mut |_, _| {}).unwrap();
    assert_eq!(names(&cells), ["rtx-3060", "8GiB"]);
}

#[test]
fn none_above_the_largest_fits() {
    // Four sizes fit above the first that does not.
    let (model, card) = (model("densenet.ts_train"), Card::find("1500MiB").unwrap());
    let plan = Plan { precision: Precision::MixedBf16, ..Plan::default() };
    let (plans, cards) = (std::slice::from_ref(&plan), std::slice::from_ref(&card));
    let cells = fit::matrix(Subject::batch(&model, &Binding::default()), plans, cards, &mut |_, _| {});
    let cell = &cells.unwrap()[0];
    let run = |n: u64| model.estimate_on(&batch(n), &plan, Some(&card)).unwrap();
    let fits = |n: u64| run(n).fit.unwrap().verdict != Verdict::DoesNotFit;
    let hopeless = |n: &u64| run(*n).peak.allocated > cell.usable;
    let last = (cell.largest..).step_by(8).find(hopeless).unwrap();
    assert!(fits(cell.largest) && last - cell.largest > 16, "{last} {cell:?}");
    assert!((cell.largest + 1..last).all(|n| !fits(n)), "{cell:?}");
    // A hole below the largest is no size that the card takes.
    let hole = (1..64).map(|k| cell.largest - k).find(|n| !fits(*n)).unwrap();
    let takes = |n| {
        let asked = batch(n);
        fit::matrix(Subject::batch(&model, &asked), plans, cards, &mut |_, _| {}).unwrap()[0].takes
    };
    assert!(!takes(hole) && takes(cell.largest) && !takes(last), "{hole} {cell:?}");
    assert!(!cell.monotone && (1..64).any(|k| !fits(cell.largest - k)), "{cell:?}");
}

#[test]
fn nothing_fits_where_the_context_alone_does_not() {
    let cards = [Card::find("1GiB").unwrap()];
    let (model, binding) = (model("lenet.ts_train"), Binding::default());
    let cells = fit::matrix(Subject::batch(&model, &binding), &[Plan::default()], &cards, &mut |_, _| {});
    assert_eq!((cells.as_ref().unwrap()[0].largest, cells.unwrap()[0].device), (0, Bytes::ZERO));
}

#[test]
fn images_and_sequences_grow_with_the_card() {
    let cards = ["4GiB", "a100-80gb"].map(|name| Card::find(name).unwrap());
    let search = |name: &str, axis: Axis| {
        let (model, binding) = (model(name), batch(8));
        let subject = Subject { axis: &axis, ..Subject::batch(&model, &binding) };
        fit::matrix(subject, &[Plan::default()], &cards, &mut |_, _| {}).unwrap()
    };
    let images = search("unet.ts_train", Axis::Image);
    assert!(images[0].largest % 32 == 0 && images[0].largest > 0 && images[0].largest < images[1].largest);
    let sequences = search("llama.ts_train", Axis::Sequence);
    assert!(sequences[0].largest < sequences[1].largest, "{sequences:?}");
    // A table of 96 positions.
    let positions = search("gpt.ts_train", Axis::Sequence);
    assert!(positions.iter().all(|cell| cell.largest == 96 && cell.ends), "{positions:?}");
    let gpt = model("gpt.ts_train");
    let input = gpt.graph().tensor(gpt.graph().inputs[0]).name.to_string();
    let beyond = Binding { shapes: [(input, vec![16, 8085])].into(), ..Binding::default() };
    let problems = gpt.estimate(&beyond, &Plan::default()).unwrap_err();
    assert!(problems.iter().any(|p| p.to_string().contains("a table of 96")), "{problems:?}");
}

#[test]
fn the_whole_process_must_fit() {
    let (model, binding, plan) = (model("resnet18.ts_train"), Binding::default(), Plan::default());
    let card = Card::find("8GiB").unwrap();
    let largest = |life: &Life| {
        let subject = Subject { life, ..Subject::batch(&model, &binding) };
        let (plans, cards) = (std::slice::from_ref(&plan), std::slice::from_ref(&card));
        fit::matrix(subject, plans, cards, &mut |_, _| {}).unwrap()[0].largest
    };
    let alone = largest(&Life::ALONE);
    for life in [
        Life { stale_models: 8, ..Life::ALONE },
        Life { prefetch: 3, ..Life::ALONE },
        Life { predict_batches: 100_000, ..Life::ALONE },
    ] {
        let found = largest(&life);
        assert!(0 < found && found < alone, "{found} of {alone}, {life:?}");
        let verdict = |n: u64| {
            let mut estimate = model.estimate_on(&batch(n), &plan, Some(&card)).unwrap();
            model.add_process(&mut estimate, &batch(n), &life, &[], Some(&card)).unwrap();
            estimate.fit.unwrap().verdict
        };
        assert!(
            verdict(found) != Verdict::DoesNotFit && verdict(found + 1) == Verdict::DoesNotFit,
            "{life:?}"
        );
    }
    let validation = |batch| largest(&Life { validation_batch: Some(batch), ..Life::ALONE });
    assert_eq!((validation(1), validation(100_000)), (alone, 0));
}

/// The largest that fits by doubling and halving, each size run and replayed by itself.
fn plainly(fits: &dyn Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, 1);
    while fits(high) {
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 6, failure_persistence: None, ..Default::default() })]

    /// Whatever is drawn, bracketed and remembered on the way from card to card: an answer is the last size that fits before one that
    /// does not. Of large batches there may be several such: a plain search may end at an earlier one, but not at a later one, unless
    /// there were too many to try each, which is told; beyond what is safe nothing is looked for.
    #[test]
    fn a_search_ends_where_a_plain_one_may(
        mib in proptest::collection::vec(2_000_u64..90_000, 3),
        half in proptest::bool::ANY,
        name in proptest::sample::select(vec!["lenet.ts_train", "resnet18.ts_train", "gru.ts_train", "dcgan_generator.ts_train"]),
    ) {
        let model = model(name);
        let cards: Vec<Card> = mib.iter().map(|mib| Card::find(&format!("{mib}MiB")).unwrap()).collect();
        let precision = if half { Precision::MixedFp16 } else { Precision::Fp32 };
        let plan = Plan { precision, ..Plan::default() };
        let plans = std::slice::from_ref(&plan);
        let cells = fit::matrix(Subject::batch(&model, &Binding::default()), plans, &cards, &mut |_, _| {});
        for (cell, card) in cells.unwrap().iter().zip(&cards).filter(|(cell, _)| !cell.ends) {
            let verdict =
                |n: u64| model.estimate_on(&batch(n), &plan, Some(card)).unwrap().fit.unwrap().verdict;
            for (found, least) in [(cell.largest, Verdict::Tight), (cell.safe, Verdict::Fits)] {
                let fits = |n: u64| verdict(n) >= least;
                proptest::prop_assert!(found == 0 || fits(found), "{cell:?}");
                proptest::prop_assert!(!fits(found + 1), "{cell:?}");
            }
            let plain = plainly(&|n| verdict(n) >= Verdict::Tight);
            let is_last = plain <= cell.largest || (!cell.monotone && (plain - cell.largest) * 20 <= plain);
            proptest::prop_assert!(is_last, "{plain} {cell:?}");
        }
    }
}
