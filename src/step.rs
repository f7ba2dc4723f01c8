//! The step that was asked for: flags and a file become an estimate. What several commands begin with.

use crate::args::{EstimateArgs, GpuArgs, HostsArgs, ModelArgs, PlanArgs};
use crate::failure::Failure;
use crate::load::{self, Ready};
use memfit_engine::devices::Card;
use memfit_engine::{Aside, Companion, Estimate, Framework, Life, Mode, Model, Plan, Verdict};
use memfit_graph::Binding;

/// An estimate with the model it is of.
pub(crate) struct Step {
    /// The path as typed.
    pub(crate) file: String,
    /// Whose rules apply to such a file where nobody says it.
    pub(crate) usual: Framework,
    pub(crate) model: Model,
    pub(crate) binding: Binding,
    pub(crate) plan: Plan,
    pub(crate) card: Option<Card>,
    pub(crate) estimate: Estimate,
    /// A second host to compare with, and the plan as it runs there.
    pub(crate) second: Option<(Card, Plan)>,
    /// What happens beside the step, where anything does.
    process: Option<Process>,
}

/// How the steps of several models are taken to follow each other.
const APART: &str = "models run one after another: what one keeps for backward is gone when the next runs. Where a generator's loss runs \
    through its discriminator, or a teacher after its student, what both keep is there at once, which is more";

/// A process around a step.
struct Process {
    life: Life,
    others: Vec<Other>,
}

/// Another model of the process.
struct Other {
    /// The path as typed.
    file: String,
    name: String,
    model: Model,
    binding: Binding,
    plan: Plan,
    /// On the second host.
    there: Option<Plan>,
}

impl Step {
    /// Reads the model and estimates the step.
    pub(crate) fn new(model: &ModelArgs, plan: &PlanArgs, gpu: &GpuArgs) -> Result<Step, Failure> {
        Step::on(model, plan, gpu, &HostsArgs::default(), Life::ALONE)
    }

    /// The same with what is said of the host, and of a second one, in a process that does this beside the step.
    fn on(
        model: &ModelArgs,
        plan: &PlanArgs,
        gpu: &GpuArgs,
        hosts: &HostsArgs,
        life: Life,
    ) -> Result<Step, Failure> {
        let aside = Aside { life, ..gpu.aside() };
        Step::under(None, model, (plan, aside), gpu, hosts)
    }

    /// The same as after another: where no framework is typed, it is that step's, whatever the file's format.
    pub(crate) fn after(
        other: &Step,
        model: &ModelArgs,
        plan: &PlanArgs,
        gpu: &GpuArgs,
    ) -> Result<Step, Failure> {
        Step::under(Some(other.plan.framework), model, (plan, gpu.aside()), gpu, &HostsArgs::default())
    }

    fn under(
        framework: Option<Framework>,
        model: &ModelArgs,
        (flags, aside): (&PlanArgs, Aside),
        gpu: &GpuArgs,
        hosts: &HostsArgs,
    ) -> Result<Step, Failure> {
        flags.check()?;
        let mut card = gpu.card()?;
        let loaded = load::load(model)?;
        let usual = loaded.usual();
        // What runs on the host is known before the plan is made: XLA and what does nothing follow from it.
        let under =
            framework.or(hosts.framework(flags.framework())?).map_or(usual, |other| usual.with(other));
        let (mut plan, plan_warnings) = flags.plan(under, aside.clone())?;
        let second = hosts.second(|framework| match framework {
            Some(other) => flags.plan_under(other, usual, aside).map(|(plan, _)| plan),
            None => Ok(plan.clone()),
        })?;
        let own = plan.allocator.clone();
        hosts.first(gpu, &mut card, &mut plan)?;
        let told = |there: &Plan| match there.allocator == own {
            true => Vec::new(),
            false => there.allocator.warnings(there.framework),
        };
        let of_stack = told(&plan);
        let of_second =
            second.iter().flat_map(|(_, there)| told(there)).map(|warning| format!("--vs: {warning}"));
        let ready = loaded.bind(&model.sizes)?;
        let estimate = ready.model.estimate_on(&ready.binding, &plan, card.as_ref());
        let mut estimate = estimate.map_err(|problems| ready.failure(problems))?;
        estimate.assumptions.extend(flags.kept_to(usual, &plan));
        estimate.warnings.extend(ready.warnings.iter().map(ToString::to_string));
        estimate.warnings.extend(plan_warnings);
        estimate.warnings.extend(of_stack.into_iter().chain(of_second));
        let Ready { file, model, binding, .. } = ready;
        Ok(Step { file, usual: usual.framework, model, binding, plan, card, estimate, second, process: None })
    }

    /// All that `memfit estimate` is asked about: the step on its host, with the process around it.
    pub(crate) fn asked(args: &EstimateArgs) -> Result<Step, Failure> {
        let mut step = Step::on(&args.model, &args.plan, &args.gpu, &args.hosts, args.life.own.life())?;
        if let Some(life) = args.life.life() {
            let (others, warnings) = others(args, &step)?;
            let process = Process { life, others };
            let new = |warning: &String| !step.estimate.warnings.contains(warning);
            let warnings: Vec<String> = warnings.into_iter().filter(new).collect();
            step.estimate.warnings.extend(warnings);
            if !process.others.is_empty() {
                step.estimate.assumptions.push(APART.into());
            }
            let own = (&*step.file, &step.model, &step.binding);
            process.add_to(&mut step.estimate, own, step.card.as_ref(), (&step.plan, false))?;
            step.process = Some(process);
        }
        Ok(step)
    }

    /// The same step on the second host.
    pub(crate) fn elsewhere(&self) -> Result<Option<Estimate>, Failure> {
        let Some((card, plan)) = &self.second else { return Ok(None) };
        let failure = |problems| Failure::of_file(&self.file, problems);
        let mut estimate = self.model.estimate_on(&self.binding, plan, Some(card)).map_err(failure)?;
        if let Some(process) = &self.process {
            let own = (&*self.file, &self.model, &self.binding);
            process.add_to(&mut estimate, own, Some(card), (plan, true))?;
        }
        Ok(Some(estimate))
    }

    /// Whether it fits, or no card was named.
    pub(crate) fn fits(&self) -> bool {
        self.estimate.fit.as_ref().is_none_or(|fit| fit.verdict != Verdict::DoesNotFit)
    }
}

impl Process {
    /// Adds what happens beside the step to an estimate of it, on its host or the second one: other models run there as the step's plan
    /// does.
    fn add_to(
        &self,
        estimate: &mut Estimate,
        (file, model, binding): (&str, &Model, &Binding),
        card: Option<&Card>,
        (host, is_second): (&Plan, bool),
    ) -> Result<(), Failure> {
        let plan = |other: &Other| {
            let own = other.there.as_ref().filter(|_| is_second).unwrap_or(&other.plan);
            Plan {
                allocator: host.allocator.clone(),
                xla: own.xla && host.xla,
                cudnn_benchmark: host.cudnn_benchmark,
                ..own.clone()
            }
        };
        // What is wrong with one is told of its own file.
        let companions: Result<Vec<Companion<'_>>, Failure> = self
            .others
            .iter()
            .map(|other| {
                let Other { file, name, model, binding, .. } = other;
                let step = Companion::run(name, model, binding, &plan(other), card);
                step.map_err(|problems| Failure::of_file(file, problems))
            })
            .collect();
        let companions = companions?;
        let added = model.add_process(estimate, binding, &self.life, &companions, card);
        added.map_err(|problems| Failure::of_file(file, problems))
    }
}

/// The other models of the process, which its framework runs as well, and what there is to warn of in their plans.
fn others(args: &EstimateArgs, step: &Step) -> Result<(Vec<Other>, Vec<String>), Failure> {
    let trained = args.life.with.iter().map(|path| (path, step.plan.mode));
    let frozen = args.life.with_frozen.iter().map(|path| (path, Mode::Infer));
    let (mut others, mut warnings) = (Vec::new(), Vec::new());
    for (path, mode) in trained.chain(frozen) {
        let loaded = load::load_with(path, &args.model.sizes)?;
        let usual = loaded.usual();
        let under = |host: &Plan| {
            let (own, warnings) = args.plan.plan_under(host.framework, usual, args.gpu.aside())?;
            Ok::<_, Failure>((Plan { mode, ..own }, warnings))
        };
        let (plan, more) = under(&step.plan)?;
        warnings.extend(more);
        let there = step.second.as_ref().map(|(_, host)| under(host).map(|(plan, _)| plan)).transpose()?;
        let binding = args.model.sizes.known_to(&loaded.model.graph);
        let model = Model::new(loaded.model.graph, &loaded.name, loaded.model.format, loaded.model.operators);
        others.push(Other { file: loaded.file, name: loaded.name, model, binding, plan, there });
    }
    Ok((others, warnings))
}
