//! The most that each part of a process holds, as sums of what each holds alone, and which part is the largest.

use super::{
    Companion, INFERENCE, Life, Ran, TRAINING, gradients, joins_predictions, prediction, set_up, step_of,
    validation,
};
use crate::devices::Card;
use crate::model::block;
use crate::{Category, Estimate, Framework, Mode, Model, Timeline, replay};
use memfit_graph::{Binding, Bytes, Problem};

/// One part of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// What it is: `train step`, `validation`.
    pub name: String,
    /// The most bytes that live tensors hold in it.
    pub allocated: Bytes,
}

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

/// What a model holds before a step, after it, and at its highest point.
struct Held {
    weights: Bytes,
    optimizer: Bytes,
    gradients: Bytes,
    batch: Bytes,
    peak: Bytes,
}

impl Held {
    fn at_rest(&self) -> Bytes {
        self.weights + self.optimizer + self.gradients
    }
}

fn held(timeline: &Timeline, framework: Framework) -> Held {
    let sum = |of: &[Category]| set_up(timeline, of).sum();
    Held {
        weights: sum(&[Category::Parameter, Category::Buffer]),
        optimizer: sum(&[Category::OptimizerState]),
        gradients: gradients(timeline).into_iter().sum(),
        batch: sum(&[Category::Input]),
        peak: replay::peak(timeline, block(framework)).peak.allocated,
    }
}

/// `times` as much.
fn times(bytes: Bytes, times: u32) -> Bytes {
    Bytes(bytes.0.saturating_mul(u64::from(times)))
}

impl Ran<'_> {
    /// The most that each part of the process holds.
    pub(crate) fn scenario(&self) -> Scenario {
        let Ran { plan, life, .. } = self;
        let own = held(&self.step, plan.framework);
        let others: Vec<(&str, Held)> =
            self.others.iter().map(|o| (o.name, held(&o.step, o.framework))).collect();
        let stale = times(own.at_rest(), life.stale_models);
        let beside = others.iter().map(|(_, held)| held.at_rest()).sum::<Bytes>() + stale;
        let mut scenario = Scenario::default();
        let mut add = |name: String, allocated| scenario.stretches.push(Stretch { name, allocated });
        add("build".into(), own.weights + beside);
        let training = plan.mode == Mode::Train;
        if training {
            add("optimizer state".into(), own.weights + own.optimizer + beside);
        }
        let name = if training { TRAINING } else { INFERENCE };
        let ahead = life.ahead(plan);
        add(name.into(), own.peak + beside + times(own.batch, ahead));
        let state = own.optimizer + own.gradients;
        if let Some((batch, forward)) = &self.validation {
            let forward = held(forward, plan.framework);
            let ahead = times(forward.batch, ahead);
            add(validation(*batch), forward.peak + state + beside + ahead);
        }
        if let Some((forward, of_one)) = &self.prediction {
            let (forward, of_one) = (held(forward, plan.framework), *of_one);
            let kept = life.predict_batches.saturating_sub(1);
            let joined = if joins_predictions(plan) {
                times(of_one, life.predict_batches) + of_one
            } else {
                Bytes::ZERO
            };
            let most = forward.peak.max(forward.weights + forward.batch + joined) + times(of_one, kept);
            let waiting = times(forward.batch, life.prefetch);
            add(prediction(life.predict_batches), most + state + beside + waiting);
        }
        for (name, held) in &others {
            let rest = beside - held.at_rest() + own.at_rest() + times(own.batch, life.prefetch);
            add(step_of(name), held.peak + rest);
        }
        let largest = scenario.stretches.iter().map(|s| s.allocated).max();
        scenario.worst = scenario.stretches.iter().position(|s| Some(s.allocated) == largest).unwrap_or(0);
        scenario
    }
}

impl Model {
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
        // As it runs on the card.
        let plan = card.map_or_else(|| estimate.plan.clone(), |card| estimate.plan.on(card));
        let ran =
            Ran::of(self, (binding, &plan), life, others, |at, of| match (at, of) == (binding, &plan) {
                true => Ok(estimate.timeline.clone()),
                false => Ok(self.step(at, of)?.timeline),
            })?;
        let scenario = ran.scenario();
        estimate.warnings.extend(scenario.warning());
        if let Some(card) = card {
            let (name, fit) = ran.worst_on(card)?;
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
}

#[cfg(test)]
mod tests {
    use super::super::testing::dense;
    use super::*;
    use crate::parallel::Sharding;
    use crate::{Framework, Plan, Precision};

    fn ran<'a>(
        model: &Model,
        plan: &'a Plan,
        life: &'a Life,
        others: &'a [Companion<'a>],
    ) -> Result<Ran<'a>, Vec<Problem>> {
        let step = |binding: &_, plan: &_| Ok(model.step(binding, plan)?.timeline);
        Ran::of(model, (&Binding::default(), plan), life, others, step)
    }

    fn scenario(
        model: &Model,
        plan: &Plan,
        life: &Life,
        others: &[Companion<'_>],
    ) -> Result<Scenario, Vec<Problem>> {
        ran(model, plan, life, others).map(|ran| ran.scenario())
    }

    #[test]
    fn a_loop_over_steps_has_the_next_batch() {
        let model = dense("a");
        let step = |steps_per_execution, eager| {
            let plan = Plan { framework: Framework::Tensorflow, eager, ..Plan::default() };
            let life = Life { steps_per_execution, ..Life::default() };
            let scenario = scenario(&model, &plan, &life, &[]).unwrap();
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
        let frozen = Plan { mode: Mode::Infer, ..plan.clone() };
        let teacher = Companion::run("teacher", &other, &binding, &frozen, None).unwrap();
        let scenario = scenario(&model, &plan, &life, &[teacher]).unwrap();
        let at =
            |name: &str| scenario.stretches.iter().find(|s| s.name.starts_with(name)).unwrap().allocated.0;
        // Weights of 4 MiB; Adam's moments are two more, and a model of an earlier run has all three.
        let mib = 1 << 20;
        assert_eq!(at("build"), (4 + 12 + 4) * mib);
        assert_eq!(at("optimizer state") - at("build"), 8 * mib);
        let alone = model.estimate(&binding, &plan).unwrap().peak.allocated.0;
        assert_eq!(at("train step"), alone + 16 * mib + 2 * (8 * 1024 * 4));
        // The teacher's weights and activations and cuBLAS's workspace, what the student keeps with its batches ahead, and as much of
        // the earlier run.
        assert_eq!(at("step of teacher"), (4 + 12 + 12) * mib + 4 * (8 * 1024 * 4) + 8_519_680);
        assert_eq!(scenario.largest().unwrap().name, "validation, batch 65536");
    }

    #[test]
    fn what_outlives_a_step_is_there_in_validation_and_predictions_are_joined() {
        let model = dense("a");
        let life = Life { validation_batch: Some(8), predict_batches: 1000, ..Life::ALONE };
        let at = |name: &str, plan: &Plan| {
            let scenario = scenario(&model, plan, &life, &[]).unwrap();
            scenario.stretches.iter().find(|s| s.name.starts_with(name)).unwrap().allocated.0
        };
        let plain = Plan::default();
        let kept = Plan { keep_gradients: true, ..plain.clone() };
        assert_eq!(at("validation", &kept) - at("validation", &plain), 4 << 20);
        let buckets =
            Plan { parallel: Some(crate::parallel::Parallel::data(2, Sharding::Ddp)), ..plain.clone() };
        assert_eq!(at("validation", &buckets) - at("validation", &plain), 4 << 20);
        // A sum of micro-batches is gone by then.
        let summed = Plan { accumulate: 4, ..plain.clone() };
        assert_eq!(at("validation", &summed), at("validation", &plain));
        // 1,000 batches of 8 predictions of 1,024 numbers, and all of them once more.
        let of_all = 1000 * 8 * 1024 * 4;
        let tensorflow = Plan { framework: Framework::Tensorflow, ..plain.clone() };
        assert!((of_all..2 * of_all).contains(&at("predict", &plain)));
        assert!((2 * of_all..3 * of_all).contains(&at("predict", &tensorflow)));
        let part = ran(&model, &tensorflow, &life, &[]).unwrap().parts().pop().unwrap();
        assert!((2 * of_all..3 * of_all).contains(&crate::replay::highest(&part.timeline, 256).0));
    }

    #[test]
    fn predictions_are_kept_in_the_dtype_that_the_plan_computes_in() {
        let model = dense("a");
        let life = Life { predict_batches: 1000, ..Life::ALONE };
        let at = |framework, precision| {
            let plan = Plan { framework, precision, ..Plan::default() };
            let scenario = scenario(&model, &plan, &life, &[]).unwrap();
            scenario.stretches.iter().find(|s| s.name.starts_with("predict")).unwrap().allocated.0
        };
        // 999 batches of 8 predictions of 1,024 numbers beside the one that is made.
        let of_kept = 999 * 8 * 1024 * 2;
        for framework in [Framework::Pytorch, Framework::Tensorflow, Framework::Burn] {
            let [full, half] = [Precision::Fp32, Precision::Fp16].map(|precision| at(framework, precision));
            assert!(full - half > of_kept, "{framework:?}: {full}, {half}");
        }
        let mixed = at(Framework::Pytorch, Precision::MixedFp16);
        // Less the weights' casts.
        let saved = at(Framework::Pytorch, Precision::Fp32) - mixed;
        assert_eq!(saved, of_kept - (1024 * 1024 * 2), "autocast gives halves");
    }

    #[test]
    fn a_forward_pass_between_steps_is_shared_as_the_step_is() {
        let model = dense("a");
        let life = Life { validation_batch: Some(8), ..Life::ALONE };
        let beside_inference = |sharding| {
            let parallel = Some(crate::parallel::Parallel::data(8, sharding));
            let plan = Plan { parallel, ..Plan::default() };
            let infer = Plan { mode: Mode::Infer, ..plan.clone() };
            let at = |plan: &Plan, life: &Life, name: &str| {
                let scenario = scenario(&model, plan, life, &[]).unwrap();
                scenario.stretches.iter().find(|s| s.name.starts_with(name)).unwrap().allocated.0
            };
            at(&plan, &life, "validation") - at(&infer, &Life::ALONE, "inference")
        };
        // Adam's two numbers a weight, or an eighth of them.
        assert_eq!(beside_inference(Sharding::Zero3), 1 << 20);
        assert_eq!(beside_inference(Sharding::Ddp), (8 << 20) + (4 << 20), "and DDP's buckets");
    }
}
