//! The parts of a process as timelines, each with what is alive beside it, and which of them is the worst inside of a card.

use super::{
    INFERENCE, Ran, TRAINING, gradients, joins_predictions, prediction, set_up, step_of, validation,
};
use crate::devices::Card;
use crate::model::block;
use crate::timeline::{Event, Storage};
use crate::{Category, EventKind, Fit, Mode, Phase, Plan, Timeline, placement, sizes};
use memfit_graph::{Bytes, Problem, order};

/// A part of the process as a timeline, with all that is alive beside it.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) timeline: Timeline,
}

impl Ran<'_> {
    /// What happens in the process: the step, validation and prediction where there are any, and the steps of others.
    pub(crate) fn parts(self) -> Vec<Part> {
        let Ran { plan, life, mut step, others, .. } = self;
        let part = |name: &str, timeline| Part { name: name.into(), timeline };
        let name = if plan.mode == Mode::Train { TRAINING } else { INFERENCE };
        if life.is_step_alone() && others.is_empty() {
            return vec![part(name, step)];
        }
        let block = block(plan.framework);
        let alive = |timeline: &Timeline, of: &[Category], times| {
            repeated(&set_up(timeline, of).collect::<Vec<_>>(), times, block)
        };
        let at_rest = |timeline: &Timeline, of: &[Category], times| {
            let once: Vec<Bytes> = set_up(timeline, of).chain(gradients(timeline)).collect();
            repeated(&once, times, block)
        };
        let stale = at_rest(&step, WEIGHTS, life.stale_models);
        let own = at_rest(&step, WEIGHTS, 1);
        let state = at_rest(&step, &[Category::OptimizerState], 1);
        let waiting = alive(&step, &[Category::Input], life.prefetch);
        let beside: Vec<Vec<Bytes>> = others.iter().map(|other| at_rest(&other.step, WEIGHTS, 1)).collect();
        let beside_all = beside.concat();
        let mut parts = Vec::new();
        if let Some((batch, mut forward)) = self.validation {
            let ahead = alive(&forward, &[Category::Input], life.ahead(plan));
            hold(&mut forward, &[&state, &stale, &beside_all, &ahead]);
            parts.push(part(&validation(batch), forward));
        }
        if let Some((mut forward, of_one)) = self.prediction {
            let ahead = alive(&forward, &[Category::Input], life.prefetch);
            let kept = repeated(&[of_one], life.predict_batches - 1, block);
            hold(&mut forward, &[&state, &stale, &beside_all, &ahead, &kept]);
            if joins_predictions(plan) {
                join(&mut forward, of_one, life.predict_batches);
            }
            parts.push(part(&prediction(life.predict_batches), forward));
        }
        for (i, other) in others.iter().enumerate() {
            let mut timeline = other.step.clone();
            let rest = beside.iter().enumerate().filter(|(other, _)| *other != i);
            let rest: Vec<Bytes> = rest.flat_map(|(_, bytes)| bytes.iter().copied()).collect();
            hold(&mut timeline, &[&own, &stale, &rest, &waiting]);
            parts.push(part(&step_of(other.name), timeline));
        }
        let ahead = alive(&step, &[Category::Input], life.ahead(plan));
        hold(&mut step, &[&stale, &beside_all, &ahead]);
        parts.insert(0, part(name, step));
        parts
    }

    /// How the process gets on inside of a card: its worst part, and how that does.
    pub(crate) fn worst_on(self, card: &Card) -> Result<(String, Fit), Vec<Problem>> {
        let plan = self.plan;
        let mut worst: Option<(String, Fit)> = None;
        for Part { name, timeline } in self.parts() {
            sizes::adds_up(&timeline, sizes::LARGEST_PROCESS)?;
            let fit = placed(&timeline, plan, card);
            // Of parts that are equally bad the first, which is the step.
            if worst.as_ref().is_none_or(|(_, worst)| fit.badness() > worst.badness()) {
                worst = Some((name, fit));
            }
        }
        worst.ok_or_else(|| vec![Problem::new("step", "nothing is run")])
    }
}

/// How a part gets on inside of a card.
fn placed(timeline: &Timeline, plan: &Plan, card: &Card) -> Fit {
    let open = placement::open(timeline, plan.framework, &plan.allocator, Some(&card.device));
    placement::place(timeline, plan, card, &open)
}

/// What of a model stays between its steps.
const WEIGHTS: &[Category] = &[Category::Parameter, Category::Buffer, Category::OptimizerState];

/// No more than this many tensors are held one by one.
const ONE_BY_ONE: usize = 1 << 12;

/// Tensors so many times: one by one as long as they are few, and of those beyond each as one tensor with the bytes of all its
/// copies, so that any number takes a bounded time. How copies share segments the first thousands have shown; each of the others
/// is counted as the block that it gets.
fn repeated(once: &[Bytes], times: u32, block: u64) -> Vec<Bytes> {
    let singly = (ONE_BY_ONE / once.len().max(1)).clamp(1, times.max(1) as usize).min(times as usize);
    let beyond = u64::from(times) - singly as u64;
    let mut all = once.repeat(singly);
    if beyond > 0 {
        all.extend(once.iter().map(|bytes| bytes.round_up(block) * beyond));
    }
    all
}

/// At the end the last batch's predictions and all of them as one tensor.
fn join(timeline: &mut Timeline, of_one: Bytes, batches: u32) {
    let (layer, label) = (0, timeline.label("predictions"));
    let at = timeline.events.len();
    let made = [of_one, of_one * u64::from(batches)];
    let made = made.map(|bytes| timeline.add(Storage { bytes, category: Category::Transient, layer, label }));
    let event = |kind| move |storage| Event { kind, storage, phase: Phase::Forward, layer };
    let made = made.map(event(EventKind::Allocate)).into_iter().chain(made.map(event(EventKind::Free)));
    timeline.insert(order::map([(at, made.collect())]));
}

/// Tensors that are there before the step and stay.
fn hold(timeline: &mut Timeline, held: &[&Vec<Bytes>]) {
    let (layer, label) = (0, timeline.label("of the process"));
    let held = held.iter().flat_map(|bytes| bytes.iter());
    let events: Vec<Event> = held
        .map(|bytes| {
            let storage = timeline.add(Storage { bytes: *bytes, category: Category::Buffer, layer, label });
            Event { kind: EventKind::Allocate, storage, phase: Phase::Setup, layer }
        })
        .collect();
    timeline.insert(order::map([(0, events)]));
}

#[cfg(test)]
mod tests {
    use super::super::testing::dense;
    use super::*;
    use crate::advise::{Runs, Situation};
    use crate::{Companion, Framework, Life, Model, Verdict};
    use memfit_graph::{Attributes, Binding, DType, Graph, Role, Shape, Type};

    #[test]
    fn any_number_of_tensors_is_a_bounded_list_of_as_many_bytes() {
        let once = [Bytes(512), Bytes(4_096), Bytes(1_024)];
        for times in [0, 1, 2, 1_365, 1_366, 100_000, u32::MAX] {
            let all = repeated(&once, times, 512);
            assert!(all.len() <= ONE_BY_ONE + once.len(), "{}", all.len());
            assert_eq!(all.iter().copied().sum::<Bytes>(), Bytes(5_632) * u64::from(times), "{times}");
        }
        assert!(repeated(&[], 9, 512).is_empty());
    }

    #[test]
    fn a_process_that_cannot_be_added_up_is_refused() {
        let mut g = Graph::default();
        let float = |dims: &[u64]| Type::tensor(DType::Float32, Shape::from(dims));
        let x = g.add_tensor("x", float(&[8, 1 << 20]), Role::Input);
        g.inputs = vec![x];
        let w = g.add_tensor("w", float(&[1 << 20, 1 << 20]), Role::Initializer);
        g.outputs = vec![g.push("MatMul", Attributes::default(), &[x, w], "y").unwrap()];
        let (model, card) = (Model::new(g, "a", "onnx", 1), Card::find("rtx-3060").unwrap());
        let (binding, plan) = (Binding::default(), Plan::default());
        let mut estimate = model.estimate_on(&binding, &plan, Some(&card)).unwrap();
        let mut with = |stale_models| {
            let life = Life { stale_models, ..Life::default() };
            model.add_process(&mut estimate, &binding, &life, &[], Some(&card))
        };
        assert!(with(16).is_ok());
        assert!(with(u32::MAX).unwrap_err()[0].message.contains("at most 4 EiB"));
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config {
            failure_persistence: None,
            ..proptest::test_runner::Config::with_cases(48)
        })]

        #[test]
        fn a_card_is_asked_for_what_the_process_holds(
            (stale_models, prefetch) in (count(), count()),
            predict_batches in count(),
            validation_batch in proptest::option::of(1_u64..100_000),
            tensorflow in proptest::bool::ANY,
            train in proptest::bool::ANY,
        ) {
            let framework = if tensorflow { Framework::Tensorflow } else { Framework::Pytorch };
            let mode = if train { Mode::Train } else { Mode::Infer };
            let life = Life { validation_batch, prefetch, predict_batches, stale_models, steps_per_execution: 1 };
            is_asked_for(Plan { framework, mode, ..Plan::default() }, life)?;
        }
    }

    #[test]
    fn a_step_beyond_all_addresses_is_asked_for_in_blocks() {
        let plan = Plan { framework: Framework::Tensorflow, ..Plan::default() };
        let life = Life { stale_models: 5_592_404, ..Life::default() };
        is_asked_for(plan, life).unwrap();
    }

    /// What the card is asked for is never less than what the table of the process says is alive at once.
    fn is_asked_for(plan: Plan, life: Life) -> Result<(), proptest::test_runner::TestCaseError> {
        let (model, card) = (dense("a"), Card::find("rtx-3060").unwrap());
        let binding = Binding::default();
        let mut estimate = model.estimate_on(&binding, &plan, Some(&card)).unwrap();
        model.add_process(&mut estimate, &binding, &life, &[], Some(&card)).unwrap();
        let largest = estimate.scenario.as_ref().unwrap().largest().unwrap().allocated;
        let fit = estimate.fit.unwrap();
        proptest::prop_assert!(fit.reserved >= largest, "{} of {largest}, {life:?}", fit.reserved);
        let fits = fit.verdict != Verdict::DoesNotFit;
        proptest::prop_assert!(!fits || largest <= fit.usable, "{largest} in {}, {life:?}", fit.usable);
        // Advice is about the same process.
        let now = Situation {
            plan,
            binding,
            batch: None,
            card,
            life: life.clone(),
            code: crate::advise::Code::default(),
            api: None,
        };
        let now = Runs::of(&model).evaluate(&now).unwrap();
        proptest::prop_assert!(now.reserved >= largest, "{} of {largest}, {life:?}", now.reserved);
        proptest::prop_assert_eq!(now.verdict, fit.verdict);
        Ok(())
    }

    /// Few or many, up to more bytes than an allocator has addresses for.
    fn count() -> impl proptest::strategy::Strategy<Value = u32> {
        proptest::prop_oneof![0_u32..4, 0_u32..100_000, proptest::prelude::any::<u32>()]
    }

    #[test]
    fn a_verdict_is_that_of_the_worst_part() {
        let (model, other) = (dense("a"), dense("b"));
        let (binding, plan, card) = (Binding::default(), Plan::default(), Card::find("4GiB").unwrap());
        let verdict = |life: Life, others: &[Companion<'_>]| {
            let mut estimate = model.estimate_on(&binding, &plan, Some(&card)).unwrap();
            assert_eq!(estimate.fit.as_ref().unwrap().verdict, Verdict::Fits);
            let warnings = estimate.warnings.len();
            model.add_process(&mut estimate, &binding, &life, others, Some(&card)).unwrap();
            (estimate.fit.unwrap(), estimate.warnings.split_off(warnings).join("; "))
        };
        let alone = verdict(Life { prefetch: 1, ..Life::default() }, &[]);
        assert_eq!((alone.0.verdict, &*alone.1), (Verdict::Fits, ""));
        let (fit, warnings) = verdict(Life { validation_batch: Some(1 << 20), ..Life::default() }, &[]);
        assert_eq!(fit.verdict, Verdict::DoesNotFit);
        assert!(warnings.contains("fits is said of validation, batch 1048576"), "{warnings}");
        // A thousand models of 12 MiB do not go with another step, nor does one with a batch of 4 GiB.
        assert_eq!(
            verdict(Life { stale_models: 1000, ..Life::default() }, &[]).0.verdict,
            Verdict::DoesNotFit
        );
        let large = Binding { batch: Some(1 << 20), ..Binding::default() };
        let teacher = Companion::run("teacher", &other, &large, &plan, Some(&card)).unwrap();
        let (fit, warnings) = verdict(Life::default(), &[teacher]);
        assert_eq!(fit.verdict, Verdict::DoesNotFit);
        assert!(warnings.contains("step of teacher"), "{warnings}");
    }
}
