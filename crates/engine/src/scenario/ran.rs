//! The steps of a process, each run once: what each holds alone and how it gets on inside of a card are read off the same steps.

use super::{Life, forward_alone};
use crate::devices::Card;
use crate::fit::Axis;
use crate::{Framework, Model, Plan, Timeline};
use memfit_graph::{Binding, Bytes, Problem};

/// Another model of the same process, with its step under a plan of its own.
pub struct Companion<'a> {
    pub(super) name: &'a str,
    pub(super) framework: Framework,
    pub(super) step: Timeline,
}

impl<'a> Companion<'a> {
    /// Runs its step, as it is on the card.
    ///
    /// # Errors
    /// As [`Model::estimate`].
    pub fn run(
        name: &'a str,
        model: &Model,
        binding: &Binding,
        plan: &Plan,
        card: Option<&Card>,
    ) -> Result<Companion<'a>, Vec<Problem>> {
        let plan = card.map_or_else(|| plan.clone(), |card| plan.on(card));
        let step = model.step(binding, &plan)?.timeline;
        Ok(Companion { name, framework: plan.framework, step })
    }
}

/// All steps of a process.
pub(crate) struct Ran<'a> {
    pub(super) plan: &'a Plan,
    pub(super) life: &'a Life,
    pub(super) step: Timeline,
    pub(super) validation: Option<(u64, Timeline)>,
    /// With the bytes of one batch's predictions.
    pub(super) prediction: Option<(Timeline, Bytes)>,
    pub(super) others: &'a [Companion<'a>],
}

impl<'a> Ran<'a> {
    /// Runs the steps of the process's own model, of which `step` is the first.
    pub(crate) fn of(
        model: &Model,
        (binding, plan): (&Binding, &'a Plan),
        life: &'a Life,
        others: &'a [Companion<'a>],
        step: impl Fn(&Binding, &Plan) -> Result<Timeline, Vec<Problem>>,
    ) -> Result<Ran<'a>, Vec<Problem>> {
        let infer = forward_alone(plan);
        let mut ran =
            Ran { plan, life, step: step(binding, plan)?, validation: None, prediction: None, others };
        if let Some(batch) = life.validation_batch {
            let binding = Axis::Batch.bind(model.graph(), binding, batch);
            ran.validation = Some((batch, step(&binding, &infer)?));
        }
        if life.predict_batches > 0 {
            let forward = step(binding, &infer)?;
            let of_one = forward.output_bytes();
            ran.prediction = Some((forward, of_one));
        }
        Ok(ran)
    }

    /// Whether something runs whose need is not known.
    pub(crate) fn is_partial(&self) -> bool {
        self.own().any(|step| step.is_partial)
    }

    /// By how much, in thousandths, another order of the kernels of one of its steps may need more.
    pub(crate) fn spread(&self) -> u64 {
        self.own().map(|step| step.spread).max().unwrap_or(0)
    }

    /// What runs of the process's own model.
    fn own(&self) -> impl Iterator<Item = &Timeline> {
        let validation = self.validation.iter().map(|(_, step)| step);
        validation.chain(self.prediction.iter().map(|(step, _)| step)).chain([&self.step])
    }
}
