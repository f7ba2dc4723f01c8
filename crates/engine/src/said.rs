//! From what was said of a training run to a [`Plan`], with what there is to say about that.
//!
//! Here alone flags, keys of JSON and attributes of a page come to mean something: a host parses what it is given into [`Said`], and no
//! more. Messages call a thing by its flag; JSON has the same words with underscores, an element has them as attributes.

use crate::allocators::AllocatorSettings;
use crate::parallel::Shared;
use crate::{
    Checkpoint, Compiled, Framework, Life, Loss, Mode, OptimizerImpl, Plan, Precision, Usual, optimizers,
};
use memfit_graph::Problem;

/// What was said; what was not is what applies to the file, else the default. Fields are those of [`Plan`].
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Said {
    pub framework: Option<Framework>,
    pub precision: Option<Precision>,
    pub mode: Option<Mode>,
    /// By any of its names.
    pub optimizer: Option<String>,
    pub optimizer_impl: Option<OptimizerImpl>,
    pub weight_decay: Option<bool>,
    pub clip_norm: Option<bool>,
    pub accumulate: Option<u32>,
    pub checkpoint: Option<Checkpoint>,
    pub freeze: Vec<String>,
    pub keep_gradients: Option<bool>,
    pub loss: Option<Loss>,
    pub ema: Option<bool>,
    pub master_weights: Option<bool>,
    pub cudnn_benchmark: Option<bool>,
    pub channels_last: Option<bool>,
    pub autocast_backward: Option<bool>,
    pub xla: Option<bool>,
    pub run_eagerly: Option<bool>,
    pub loss_scale: Option<bool>,
    pub composed_attention: Option<bool>,
    pub as_fake_tensors: Option<bool>,
    pub assume_batchnorm: Option<bool>,
    pub assume_dropout: Option<bool>,
    pub tied_embeddings: Option<bool>,
    /// How several GPUs share the work.
    pub shared: Shared,
    pub allocator: AllocatorSettings,
    pub aside: Aside,
}

/// What was said beside the plan and bears on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aside {
    /// Whether a card is named.
    pub card: bool,
    /// Whether it is said what else is on the card.
    pub others: bool,
    /// What happens in the process beside the step.
    pub life: Life,
}

impl Said {
    /// Whether the optimizer and the loss were left open.
    pub fn open(&self) -> [bool; 2] {
        [self.optimizer.is_none(), self.loss.unwrap_or_default() == Loss::Auto]
    }

    /// What can be known to be wrong without a model.
    ///
    /// # Errors
    /// All that is.
    pub fn check(&self) -> Result<(), Vec<Problem>> {
        let mut problems: Vec<Problem> = self.shared.parallel().err().into_iter().collect();
        if let Some(name) = self.optimizer.as_deref().filter(|name| optimizers::find(name).is_none()) {
            problems.push(Problem::new("--optimizer", format!("there is no optimizer `{name}`")));
        }
        let from_one = [
            ("--accumulate", self.accumulate == Some(0)),
            ("--validation-batch", self.aside.life.validation_batch == Some(0)),
        ];
        let wrong = from_one.into_iter().filter(|(_, is_none)| *is_none);
        problems
            .extend(wrong.map(|(flag, _)| Problem::new(flag, "expected a whole number from 1, found `0`")));
        problems.extend(self.allocator.check());
        if self.xla == Some(true) && self.run_eagerly == Some(true) {
            let message = "--run-eagerly leaves no graph that --xla could compile";
            problems.push(Problem::new("--xla", message).hint("leave one of the two out"));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// The plan for a model to which `usual` applies, and what there is to warn of.
    ///
    /// # Errors
    /// As [`Said::check`].
    pub fn plan(&self, usual: Usual) -> Result<(Plan, Vec<String>), Vec<Problem>> {
        self.check()?;
        let parallel = self.shared.parallel().map_err(|problem| vec![problem])?;
        let framework = self.framework.unwrap_or(usual.framework);
        let compiles = usual.with(framework).compiles(parallel.is_some());
        let eager = self.run_eagerly.unwrap_or_default();
        let [open_optimizer, open_loss] = self.open();
        // The rest of what a file says of its optimizer goes with that one.
        let of_file = if open_optimizer { usual.compiled } else { Compiled::default() };
        let loss_of_file = usual.compiled.loss.filter(|_| open_loss);
        let d = Plan::default();
        let mut plan = Plan {
            framework,
            precision: self.precision.unwrap_or(d.precision),
            mode: self.mode.unwrap_or(d.mode),
            optimizer: self.optimizer.clone().unwrap_or_else(|| usual.optimizer().into()),
            optimizer_impl: d.optimizer_impl,
            weight_decay: self.weight_decay.unwrap_or(of_file.weight_decay),
            clip_norm: self.clip_norm.unwrap_or(of_file.clip_norm),
            accumulate: self.accumulate.unwrap_or(of_file.accumulate.max(1)),
            checkpoint: self.checkpoint.unwrap_or(d.checkpoint),
            freeze: self.freeze.clone(),
            keep_gradients: self.keep_gradients.unwrap_or(d.keep_gradients),
            loss: loss_of_file.or(self.loss).unwrap_or(d.loss),
            ema: self.ema.unwrap_or(of_file.ema),
            master_weights: self.master_weights.unwrap_or(d.master_weights),
            parallel,
            allocator: self.allocator.clone(),
            cudnn_benchmark: self.cudnn_benchmark.unwrap_or(d.cudnn_benchmark),
            channels_last: self.channels_last.unwrap_or(d.channels_last),
            compute_capability: None,
            amd: None,
            autocast_backward: self.autocast_backward.unwrap_or(d.autocast_backward),
            xla: self.xla.unwrap_or(compiles) && !eager,
            eager,
            grappler: d.grappler,
            loss_scale: self.loss_scale.unwrap_or(d.loss_scale),
            composed_attention: self.composed_attention.unwrap_or(d.composed_attention),
            as_fake_tensors: self.as_fake_tensors.unwrap_or(d.as_fake_tensors),
            assume_batchnorm: self.assume_batchnorm.unwrap_or(d.assume_batchnorm),
            assume_dropout: self.assume_dropout.unwrap_or(d.assume_dropout),
            tied_embeddings: self.tied_embeddings,
        };
        let mut warnings = plan.settle(self.optimizer_impl);
        warnings.extend(self.shared.warning(parallel));
        warnings.extend(self.idle(&plan));
        warnings.sort_unstable();
        Ok((plan, warnings))
    }

    /// A plan for each precision with each optimizer, where several are compared; what is said stands where a list is empty. Each
    /// warning is there once.
    ///
    /// # Errors
    /// As [`Said::check`].
    pub fn plans(
        &self,
        precisions: &[Precision],
        optimizers: &[impl AsRef<str>],
        usual: Usual,
    ) -> Result<(Vec<Plan>, Vec<String>), Vec<Problem>> {
        let precisions = match precisions {
            [] => vec![self.precision],
            several => several.iter().copied().map(Some).collect(),
        };
        let optimizers: Vec<Option<String>> = match optimizers {
            [] => vec![self.optimizer.clone()],
            several => several.iter().map(|name| Some(name.as_ref().to_owned())).collect(),
        };
        let (mut plans, mut warnings) = (Vec::new(), Vec::new());
        for precision in precisions {
            for optimizer in &optimizers {
                let said = Said { precision, optimizer: optimizer.clone(), ..self.clone() };
                let (plan, more) = said.plan(usual)?;
                plans.push(plan);
                warnings.extend(more);
            }
        }
        warnings.sort_unstable();
        warnings.dedup();
        Ok((plans, warnings))
    }

    /// What does nothing here and leaves no trace in the plan.
    fn idle(&self, plan: &Plan) -> Vec<String> {
        let of_tensorflow = [
            ("--xla", self.xla == Some(true)),
            ("--no-xla", self.xla == Some(false)),
            ("--run-eagerly", self.run_eagerly == Some(true)),
            ("--steps-per-execution", self.aside.life.steps_per_execution > 1),
        ];
        let is_tensorflow = plan.framework == Framework::Tensorflow;
        let idle = of_tensorflow.into_iter().filter(|(_, said)| *said && !is_tensorflow);
        let idle = idle.map(|(flag, _)| format!("{flag} does nothing: it is TensorFlow's"));
        let of_card = [
            (self.aside.others, "--other-processes and --display do nothing without --gpu"),
            (plan.allocator.memory_fraction.is_some(), "--memory-fraction does nothing without --gpu"),
            (
                is_tensorflow && plan.allocator.memory_limit.is_some(),
                "--memory-limit does nothing without --gpu",
            ),
        ];
        let cardless = of_card.into_iter().filter(|(said, _)| *said && !self.aside.card);
        idle.chain(cardless.map(|(_, what)| what.to_owned())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::Sharing;
    use memfit_graph::Bytes;

    fn planned(said: &Said) -> (Plan, Vec<String>) {
        said.plan(Usual::default()).unwrap()
    }

    #[test]
    fn nothing_said_is_the_default_plan() {
        assert_eq!(planned(&Said::default()), (Plan::default(), Vec::new()));
    }

    #[test]
    fn what_is_said_stands_before_what_a_file_says() {
        let compiled = Compiled {
            optimizer: Some("momentum"),
            weight_decay: true,
            clip_norm: true,
            ema: true,
            accumulate: 4,
            loss: Some(Loss::Mse),
        };
        let usual = Usual::of("keras", "keras 3.15.0").trained(compiled);
        let plan = |said: Said| said.plan(usual).unwrap().0;
        let all = |p: &Plan| (p.weight_decay, p.clip_norm, p.ema, p.accumulate);
        let own = plan(Said::default());
        assert_eq!((&*own.optimizer, own.loss, all(&own)), ("momentum", Loss::Mse, (true, true, true, 4)));
        let other = plan(Said { optimizer: Some("AdamW".into()), ..Said::default() });
        assert_eq!((&*other.optimizer, other.loss), ("adamw", Loss::Mse));
        assert_eq!(all(&other), (false, false, false, 1));
        let off = Some(false);
        let none =
            Said { weight_decay: off, clip_norm: off, ema: off, accumulate: Some(1), ..Said::default() };
        assert_eq!(all(&plan(none)), (false, false, false, 1));
        assert_eq!(plan(Said { loss: Some(Loss::Bce), ..Said::default() }).loss, Loss::Bce);
    }

    #[test]
    fn keras_compiles_unless_it_is_told_not_to() {
        let framework = Some(Framework::Tensorflow);
        let xla = |said: Said| planned(&Said { framework, ..said }).0.xla;
        assert!(xla(Said::default()) && xla(Said { xla: Some(true), ..Said::default() }));
        assert!(!xla(Said { xla: Some(false), ..Said::default() }));
        assert!(!xla(Said { run_eagerly: Some(true), ..Said::default() }));
        let shared = Shared { gpus: Some(2), ..Shared::default() };
        assert!(
            !xla(Said { shared, ..Said::default() })
                && xla(Said { shared, xla: Some(true), ..Said::default() })
        );
    }

    #[test]
    fn what_does_nothing_is_told() {
        let told = |said: &Said| planned(said).1;
        let (yes, no) = (Some(true), Some(false));
        let life = Life { steps_per_execution: 4, ..Life::default() };
        for (said, flag) in [
            (Said { xla: yes, ..Said::default() }, "--xla"),
            (Said { xla: no, ..Said::default() }, "--no-xla"),
            (Said { run_eagerly: yes, ..Said::default() }, "--run-eagerly"),
            (Said { aside: Aside { life, ..Aside::default() }, ..Said::default() }, "--steps-per-execution"),
        ] {
            assert_eq!(told(&said), [format!("{flag} does nothing: it is TensorFlow's")]);
            assert_eq!(told(&Said { framework: Some(Framework::Tensorflow), ..said }), [""; 0]);
        }
        let shared = Shared { sharing: Some(Sharing::Zero3), ..Shared::default() };
        assert!(told(&Said { shared, ..Said::default() })[0].starts_with("--parallel does nothing"));
    }

    #[test]
    fn what_is_a_cards_does_nothing_without_one() {
        let allocator = AllocatorSettings {
            memory_fraction: Some(500),
            memory_limit: Some(Bytes::mib(1)),
            ..AllocatorSettings::default()
        };
        let mut said = Said { allocator, framework: Some(Framework::Tensorflow), ..Said::default() };
        said.aside.others = true;
        let without = planned(&said).1;
        assert_eq!(without.iter().filter(|w| w.ends_with("without --gpu")).count(), 3, "{without:?}");
        said.aside.card = true;
        assert!(planned(&said).1.iter().all(|w| !w.contains("without --gpu")));
    }

    #[test]
    fn all_that_is_wrong_is_refused_at_once() {
        let said = Said {
            optimizer: Some("adamx".into()),
            accumulate: Some(0),
            xla: Some(true),
            run_eagerly: Some(true),
            shared: Shared { gpus: Some(0), ..Shared::default() },
            ..Said::default()
        };
        let places: Vec<String> =
            said.plan(Usual::default()).unwrap_err().into_iter().map(|problem| problem.place).collect();
        assert_eq!(places, ["--gpus", "--optimizer", "--accumulate", "--xla"]);
    }

    #[test]
    fn several_precisions_and_optimizers_are_a_plan_each() {
        let said = Said { xla: Some(true), precision: Some(Precision::Bf16), ..Said::default() };
        let plans = |precisions: &[Precision], optimizers: &[&str]| {
            let (plans, warnings) = said.plans(precisions, optimizers, Usual::default()).unwrap();
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            plans.into_iter().map(|p| (p.precision, p.optimizer)).collect::<Vec<_>>()
        };
        assert_eq!(plans(&[], &[]), [(Precision::Bf16, "adam".to_owned())]);
        let of = |precision| [(precision, "sgd".to_owned()), (precision, "adamw".to_owned())];
        assert_eq!(
            plans(&[Precision::Fp32, Precision::Fp16], &["sgd", "AdamW"]),
            [of(Precision::Fp32), of(Precision::Fp16)].concat()
        );
    }
}
