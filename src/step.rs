//! The step that was asked for: flags and a file become an estimate. What several commands begin with.

use crate::args::{EstimateArgs, GpuArgs, HostsArgs, ModelArgs, PlanArgs};
use crate::failure::Failure;
use crate::load::{self, Ready};
use memfit_engine::devices::Card;
use memfit_engine::{Companion, Estimate, Life, Mode, Model, Plan, Verdict};
use memfit_graph::{Binding, Problem};

/// An estimate with the model it is of.
pub(crate) struct Step {
    /// The path as typed.
    pub(crate) file: String,
    pub(crate) model: Model,
    pub(crate) binding: Binding,
    pub(crate) plan: Plan,
    pub(crate) card: Option<Card>,
    pub(crate) estimate: Estimate,
    /// A second host to compare with, and the plan as it runs there.
    pub(crate) second: Option<(Card, Plan)>,
}

impl Step {
    /// Reads the model and estimates the step.
    pub(crate) fn new(model: &ModelArgs, plan: &PlanArgs, gpu: &GpuArgs) -> Result<Step, Failure> {
        Step::on(model, plan, gpu, &HostsArgs::default())
    }

    /// The same with what is said of the host, and of a second one.
    pub(crate) fn on(
        model: &ModelArgs,
        plan: &PlanArgs,
        gpu: &GpuArgs,
        hosts: &HostsArgs,
    ) -> Result<Step, Failure> {
        // What is wrong with the flags alone is told before a file is opened.
        plan.framework()?;
        let mut card = gpu.card()?;
        let loaded = load::load(model)?;
        let (mut plan, plan_warnings) = plan.plan(loaded.usual())?;
        let second = hosts.second(&plan)?;
        hosts.first(gpu, &mut card, &mut plan)?;
        let ready = loaded.bind(&model.sizes)?;
        let estimate = ready.model.estimate_on(&ready.binding, &plan, card.as_ref());
        let mut estimate = estimate.map_err(|problems| ready.failure(problems))?;
        estimate.warnings.extend(ready.warnings.iter().map(ToString::to_string));
        estimate.warnings.extend(plan_warnings);
        estimate.warnings.extend(gpu.warnings(&plan));
        let Ready { file, model, binding, .. } = ready;
        Ok(Step { file, model, binding, plan, card, estimate, second })
    }

    /// All that `memfit estimate` is asked about: the step on its host, with the process around it.
    pub(crate) fn asked(args: &EstimateArgs) -> Result<Step, Failure> {
        let mut step = Step::on(&args.model, &args.plan, &args.gpu, &args.hosts)?;
        step.estimate.warnings.extend(args.life.own.warning(step.plan.framework));
        if let Some(life) = args.life.life() {
            step.add_process(args, &life)?;
        }
        Ok(step)
    }

    /// Adds the parts of the process around the step.
    fn add_process(&mut self, args: &EstimateArgs, life: &Life) -> Result<(), Failure> {
        let trained = args.life.with.iter().map(|path| (path, self.plan.mode));
        let frozen = args.life.with_frozen.iter().map(|path| (path, Mode::Infer));
        let mut others = Vec::new();
        for (path, mode) in trained.chain(frozen) {
            let loaded = load::load_with(path, &args.model.sizes)?;
            let (own, _) = args.plan.plan(loaded.usual())?;
            let other = Model::new(loaded.model.graph, &loaded.name, loaded.format, loaded.model.operators);
            others.push((loaded.name, other, Plan { mode, ..own }));
        }
        let companions: Vec<Companion<'_>> = others
            .iter()
            .map(|(name, model, plan)| Companion {
                model,
                name,
                // Named sizes are this model's; the batch is the process's.
                binding: Binding { batch: args.model.sizes.batch_size, ..Binding::default() },
                plan: plan.clone(),
            })
            .collect();
        self.model
            .add_process(&mut self.estimate, &self.binding, life, &companions, self.card.as_ref())
            .map_err(|problems| Failure::of_file(&self.file, problems))
    }

    /// The same step on the second host.
    pub(crate) fn elsewhere(&self) -> Result<Option<Estimate>, Failure> {
        let Some((card, plan)) = &self.second else { return Ok(None) };
        let failure = |problems: Vec<Problem>| Failure::of_file(&self.file, problems);
        self.model.estimate_on(&self.binding, plan, Some(card)).map(Some).map_err(failure)
    }

    /// Whether it fits, or no card was named.
    pub(crate) fn fits(&self) -> bool {
        self.estimate.fit.as_ref().is_none_or(|fit| fit.verdict != Verdict::DoesNotFit)
    }
}
