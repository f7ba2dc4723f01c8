//! The life of a process around its training step: what is built before, what runs between steps, what else is alive.
//!
//! Each phase has a peak of its own; the largest is what must fit. Validation and prediction run forward alone, while weights
//! and optimizer state stay where they are (keras/src/trainers/trainer.py, `evaluate` inside of `fit`; a PyTorch loop under
//! `no_grad`). Batches that a pipeline puts on the device ahead of their step (`prefetch_to_device`, pinned copies with
//! `non_blocking=True`) are whole batches. Where Keras runs several steps in one graph (`steps_per_execution`), its loop fetches the
//! next batch without waiting for the step (keras/src/backend/tensorflow/trainer.py, `inner_body`), so that one is there as well; run
//! eagerly it is fetched after the step. A model that a notebook cell made and nobody let go of keeps its weights and
//! optimizer state, and so does any other model of the same process between its own steps.

use crate::devices::Card;
use crate::fit::Axis;
use crate::timeline::{Event, Storage};
use crate::{Category, Estimate, EventKind, Fit, Framework, Mode, Model, Phase, Plan, Timeline, placement};
use memfit_graph::{Binding, Bytes, Problem};
use std::cmp::Reverse;

/// What happens in the process beside the step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// The batch size of validation, where there is one.
    pub validation_batch: Option<u64>,
    /// Batches that are on the device before their step.
    pub prefetch: u32,
    /// Batches whose predictions are all kept on the device.
    pub predict_batches: u32,
    /// Models of earlier runs that are still alive.
    pub stale_models: u32,
    /// Steps that Keras runs in one call of its graph; none and one are the same.
    pub steps_per_execution: u32,
}

impl Life {
    /// Whether the step is all that happens.
    pub fn is_step_alone(&self) -> bool {
        let steps_per_execution = self.steps_per_execution;
        !self.loops() && *self == Life { steps_per_execution, ..Life::default() }
    }

    /// Whether one call of Keras's graph runs several steps.
    fn loops(&self) -> bool {
        self.steps_per_execution > 1
    }

    /// Batches on the device ahead of their step: what the pipeline puts there, and the one that a loop in the graph fetches.
    fn ahead(&self, plan: &Plan) -> u32 {
        let loops = self.loops() && plan.framework == Framework::Tensorflow && !plan.eager;
        self.prefetch.saturating_add(u32::from(loops))
    }
}

/// Another model of the same process, with its own plan.
pub struct Companion<'a> {
    /// The model.
    pub model: &'a Model,
    /// What it is called by.
    pub name: &'a str,
    /// Its open sizes.
    pub binding: Binding,
    /// How it is trained, or only run.
    pub plan: Plan,
}

/// One part of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// What it is: `train step`, `validation`.
    pub name: String,
    /// The most bytes that live tensors hold in it.
    pub allocated: Bytes,
}

/// The name of the stretch that is a training step.
pub const TRAINING: &str = "train step";
/// The name of the stretch that is a forward pass alone.
pub const INFERENCE: &str = "inference";

/// All parts of the process, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scenario {
    /// In order.
    pub stretches: Vec<Stretch>,
    /// Index of the largest.
    pub worst: usize,
}

impl Scenario {
    /// The largest part.
    pub fn largest(&self) -> Option<&Stretch> {
        self.stretches.get(self.worst)
    }

    /// What to say beside an estimate of the step, where another part is the largest.
    pub fn warning(&self) -> Option<String> {
        let largest = self.largest().filter(|s| !matches!(&*s.name, TRAINING | INFERENCE))?;
        let name = &largest.name;
        Some(format!("the process holds the most in {name}, not in the step that the tables below are about"))
    }
}

/// What a model holds before a step, and at its highest point.
struct Held {
    weights: Bytes,
    optimizer: Bytes,
    batch: Bytes,
    peak: Bytes,
}

impl Held {
    fn at_rest(&self) -> Bytes {
        self.weights + self.optimizer
    }
}

fn held(model: &Model, binding: &Binding, plan: &Plan) -> Result<Held, Vec<Problem>> {
    let estimate = model.estimate(binding, plan)?;
    let sum = |of: &[Category]| set_up(&estimate.timeline, of).sum();
    Ok(Held {
        weights: sum(&[Category::Parameter, Category::Buffer]),
        optimizer: sum(&[Category::OptimizerState]),
        batch: sum(&[Category::Input]),
        peak: estimate.peak.allocated,
    })
}

/// A part of the process as a timeline, with all that is alive beside it.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) timeline: Timeline,
}

/// What happens in a process: the step, validation and prediction where there are any, and the steps of others.
pub(crate) fn parts(
    model: &Model,
    binding: &Binding,
    plan: &Plan,
    life: &Life,
    others: &[Companion<'_>],
) -> Result<Vec<Part>, Vec<Problem>> {
    let part = |name: &str, timeline| Part { name: name.into(), timeline };
    let mut step = model.step(binding, plan)?.timeline;
    let name = if plan.mode == Mode::Train { TRAINING } else { INFERENCE };
    if life.is_step_alone() && others.is_empty() {
        return Ok(vec![part(name, step)]);
    }
    let stale = alive(&step, WEIGHTS, life.stale_models);
    let own = alive(&step, WEIGHTS, 1);
    let state = alive(&step, &[Category::OptimizerState], 1);
    let mut steps = Vec::new();
    for other in others {
        steps.push((other.name, other.model.step(&other.binding, &other.plan)?.timeline));
    }
    let beside: Vec<Vec<Bytes>> = steps.iter().map(|(_, step)| alive(step, WEIGHTS, 1)).collect();
    let beside_all = beside.concat();
    let infer = Plan { mode: Mode::Infer, parallel: None, ..plan.clone() };
    let mut parts = Vec::new();
    if let Some(batch) = life.validation_batch {
        let binding = Axis::Batch.bind(model.graph(), binding, batch);
        let mut forward = model.step(&binding, &infer)?.timeline;
        let ahead = alive(&forward, &[Category::Input], life.ahead(plan));
        hold(&mut forward, &[&state, &stale, &beside_all, &ahead]);
        parts.push(part(&validation(batch), forward));
    }
    if life.predict_batches > 1 {
        let mut forward = model.step(binding, &infer)?.timeline;
        let kept = vec![model.output_bytes(binding)?; life.predict_batches.min(MOST_KEPT) as usize - 1];
        hold(&mut forward, &[&state, &stale, &beside_all, &kept]);
        parts.push(part(&prediction(life.predict_batches), forward));
    }
    for (i, (name, mut timeline)) in steps.into_iter().enumerate() {
        let rest = beside.iter().enumerate().filter(|(other, _)| *other != i);
        let rest: Vec<Bytes> = rest.flat_map(|(_, bytes)| bytes.iter().copied()).collect();
        hold(&mut timeline, &[&own, &stale, &rest]);
        parts.push(part(&step_of(name), timeline));
    }
    let ahead = alive(&step, &[Category::Input], life.ahead(plan));
    hold(&mut step, &[&stale, &beside_all, &ahead]);
    parts.insert(0, part(name, step));
    Ok(parts)
}

/// What of a model stays between its steps.
const WEIGHTS: &[Category] = &[Category::Parameter, Category::Buffer, Category::OptimizerState];

fn validation(batch: u64) -> String {
    format!("validation, batch {batch}")
}

fn prediction(batches: u32) -> String {
    format!("predict, {batches} batches kept")
}

fn step_of(name: &str) -> String {
    format!("step of {name}")
}

/// No more than this many tensors are held one by one.
const MOST_KEPT: u32 = 4096;

/// What is there before a step, of these categories, so many times.
fn alive(timeline: &Timeline, of: &[Category], times: u32) -> Vec<Bytes> {
    let once: Vec<Bytes> = set_up(timeline, of).collect();
    let times = (times as usize).min(MOST_KEPT as usize / once.len().max(1) + 1);
    once.repeat(times)
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
    timeline.insert([(0, events)].into());
}

/// What is there before the step, of these categories.
fn set_up(timeline: &Timeline, of: &[Category]) -> impl Iterator<Item = Bytes> {
    let before = &timeline.events[..timeline.setup_end()];
    let made = before.iter().filter(|e| e.kind == EventKind::Allocate);
    let storages = made.map(|e| &timeline.storages[e.storage.0 as usize]);
    storages.filter(|s| of.contains(&s.category)).map(|s| s.bytes)
}

/// `times` as much.
fn times(bytes: Bytes, times: u32) -> Bytes {
    Bytes(bytes.0.saturating_mul(u64::from(times)))
}

impl Model {
    /// The parts of a process that trains this model as `plan` says, others beside it.
    ///
    /// # Errors
    /// As [`Model::estimate`].
    pub fn scenario(
        &self,
        binding: &Binding,
        plan: &Plan,
        life: &Life,
        others: &[Companion<'_>],
    ) -> Result<Scenario, Vec<Problem>> {
        let own = held(self, binding, plan)?;
        let others: Vec<(&str, Held)> = others
            .iter()
            .map(|o| Ok((o.name, held(o.model, &o.binding, &o.plan)?)))
            .collect::<Result<_, Vec<Problem>>>()?;
        let stale = times(own.at_rest(), life.stale_models);
        let beside = others.iter().map(|(_, held)| held.at_rest()).sum::<Bytes>() + stale;
        let mut scenario = Scenario::default();
        let mut add = |name: String, allocated| scenario.stretches.push(Stretch { name, allocated });
        add("build".into(), own.weights + beside);
        let training = plan.mode == Mode::Train;
        if training {
            add("optimizer state".into(), own.at_rest() + beside);
        }
        let name = if training { TRAINING } else { INFERENCE };
        let ahead = life.ahead(plan);
        add(name.into(), own.peak + beside + times(own.batch, ahead));
        let infer = Plan { mode: Mode::Infer, ..plan.clone() };
        if let Some(batch) = life.validation_batch {
            let binding = Binding { batch: Some(batch), ..binding.clone() };
            let forward = held(self, &binding, &infer)?;
            let ahead = times(forward.batch, ahead);
            add(validation(batch), forward.peak + own.optimizer + beside + ahead);
        }
        if life.predict_batches > 0 {
            let forward = held(self, binding, &infer)?;
            let outputs = times(self.output_bytes(binding)?, life.predict_batches.saturating_sub(1));
            add(prediction(life.predict_batches), forward.peak + own.optimizer + beside + outputs);
        }
        for (name, held) in &others {
            let rest = beside - held.at_rest() + own.at_rest();
            add(step_of(name), held.peak + rest);
        }
        let largest = scenario.stretches.iter().map(|s| s.allocated).max();
        scenario.worst = scenario.stretches.iter().position(|s| Some(s.allocated) == largest).unwrap_or(0);
        Ok(scenario)
    }

    /// Adds to an estimate of the step what the process around it holds; inside of a card the verdict is that of its worst part.
    ///
    /// # Errors
    /// As [`Model::estimate`].
    pub fn add_process(
        &self,
        estimate: &mut Estimate,
        binding: &Binding,
        life: &Life,
        others: &[Companion<'_>],
        card: Option<&Card>,
    ) -> Result<(), Vec<Problem>> {
        let scenario = self.scenario(binding, &estimate.plan, life, others)?;
        estimate.warnings.extend(scenario.warning());
        if let Some(card) = card {
            let (name, fit) = self.worst_on(binding, &estimate.plan, life, others, card)?;
            if !matches!(&*name, TRAINING | INFERENCE) {
                estimate
                    .warnings
                    .push(format!("whether it fits is said of {name}, the worst part of the process"));
            }
            estimate.fit = Some(fit);
        }
        estimate.scenario = Some(scenario);
        Ok(())
    }

    /// How such a process gets on inside of a card: its worst part, and how that does.
    fn worst_on(
        &self,
        binding: &Binding,
        plan: &Plan,
        life: &Life,
        others: &[Companion<'_>],
        card: &Card,
    ) -> Result<(String, Fit), Vec<Problem>> {
        let plan = plan.on(card);
        let placed = parts(self, binding, &plan, life, others)?.into_iter().map(|Part { name, timeline }| {
            let open = placement::open(&timeline, plan.framework, &plan.allocator, Some(&card.device));
            (name, placement::place(&timeline, &plan, card, &open))
        });
        // Of parts that are equally bad the first, which is the step.
        let worst = placed.reduce(|worst, part| {
            let badness = |fit: &Fit| (Reverse(fit.verdict), fit.reserved);
            if badness(&part.1) > badness(&worst.1) { part } else { worst }
        });
        worst.ok_or_else(|| vec![Problem::new("step", "nothing is run")])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use memfit_graph::{Attributes, DType, Graph, Role, Shape, Type};

    fn dense(name: &str) -> Model {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([8, 1024])), Role::Input);
        g.inputs = vec![x];
        let w = g.add_tensor("w", Type::tensor(DType::Float32, Shape::from([1024, 1024])), Role::Initializer);
        let y = g.push("MatMul", Attributes::default(), &[x, w], "y").unwrap();
        g.outputs = vec![y];
        Model::new(g, name, "onnx", 1)
    }

    #[test]
    fn a_loop_over_steps_has_the_next_batch() {
        let (model, binding) = (dense("a"), Binding::default());
        let step = |steps_per_execution, eager| {
            let plan = Plan { framework: Framework::Tensorflow, eager, ..Plan::default() };
            let life = Life { steps_per_execution, ..Life::default() };
            let scenario = model.scenario(&binding, &plan, &life, &[]).unwrap();
            scenario.stretches.iter().find(|s| s.name == "train step").unwrap().allocated
        };
        let batch = Bytes(8 * 1024 * 4);
        assert!(step(10, false) - step(1, false) >= batch);
        assert_eq!(step(2, false), step(10, false));
        assert_eq!(step(10, true), step(1, true));
        let alone = |steps_per_execution| Life { steps_per_execution, ..Life::default() }.is_step_alone();
        assert!(
            alone(0) && alone(1) && !alone(2) && !Life { prefetch: 1, ..Life::default() }.is_step_alone()
        );
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
        let teacher = Companion { model: &other, name: "teacher", binding: large, plan: plan.clone() };
        let (fit, warnings) = verdict(Life::default(), &[teacher]);
        assert_eq!(fit.verdict, Verdict::DoesNotFit);
        assert!(warnings.contains("step of teacher"), "{warnings}");
    }

    #[test]
    fn the_largest_part_is_named() {
        let (model, other) = (dense("a"), dense("b"));
        let (binding, plan) = (Binding::default(), Plan::default());
        let life = Life {
            validation_batch: Some(65_536),
            prefetch: 2,
            predict_batches: 3,
            stale_models: 1,
            steps_per_execution: 1,
        };
        let teacher = Companion {
            model: &other,
            name: "teacher",
            binding: binding.clone(),
            plan: Plan { mode: Mode::Infer, ..plan.clone() },
        };
        let scenario = model.scenario(&binding, &plan, &life, &[teacher]).unwrap();
        let at =
            |name: &str| scenario.stretches.iter().find(|s| s.name.starts_with(name)).unwrap().allocated.0;
        // Weights of 4 MiB; Adam's moments are two more, and a model of an earlier run has all three.
        let mib = 1 << 20;
        assert_eq!(at("build"), (4 + 12 + 4) * mib);
        assert_eq!(at("optimizer state") - at("build"), 8 * mib);
        let alone = model.estimate(&binding, &plan).unwrap().peak.allocated.0;
        assert_eq!(at("train step"), alone + 16 * mib + 2 * (8 * 1024 * 4));
        // The teacher's weights and activations and cuBLAS's workspace, what the student keeps, and as much of the earlier run.
        assert_eq!(at("step of teacher"), (4 + 12 + 12) * mib + 2 * (8 * 1024 * 4) + 8_519_680);
        assert_eq!(scenario.largest().unwrap().name, "validation, batch 65536");
    }
}
