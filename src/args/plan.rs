//! How the model is trained, as flags say it.
//!
//! Names are taken as people type them (`fp32`, `float32`, `16-mixed`, `amp`); what is said with a flag comes to mean something in [`Said`].

use super::allocator::AllocatorArgs;
use super::parallel::ParallelArgs;
use super::typed;
use super::word::word;
use crate::failure::Failure;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use memfit_engine::{
    Aside, Checkpoint, Framework, Loss, Mode, OptimizerImpl, Plan, Precision, Said, Usual, optimizers,
};

#[derive(Args, Debug)]
#[command(next_help_heading = "Training plan")]
pub(crate) struct PlanArgs {
    /// Whose rules apply; where it is not given, tensorflow for Keras files and pytorch for others
    #[arg(long, value_parser = word::<Framework>(), ignore_case = true, value_name = "NAME")]
    framework: Option<Framework>,
    /// The dtypes of a step; mixed ones are autocast over float32 weights
    #[arg(
        long,
        value_parser = word::<Precision>(),
        ignore_case = true,
        default_value = "fp32",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    precision: Vec<Precision>,
    /// What is run: forward, backward and the optimizer, or forward alone without autograd
    #[arg(long, value_parser = word::<Mode>(), ignore_case = true, default_value = "train", value_name = "NAME")]
    mode: Mode,
    /// The optimizer; case and dashes don't matter. Where it is not given, what a Keras file was compiled with, else adam
    #[arg(long, value_parser = OptimizerName, value_delimiter = ',', value_name = "NAME")]
    optimizer: Vec<&'static str>,
    /// How the optimizer loops; the default is PyTorch's own on CUDA
    #[arg(long, value_parser = word::<OptimizerImpl>(), ignore_case = true, value_name = "NAME")]
    optimizer_impl: Option<OptimizerImpl>,
    /// Weight decay, which costs some optimizers temporaries; 0 is off
    #[arg(long, value_parser = typed::decay, allow_negative_numbers = true, value_name = "X")]
    weight_decay: Option<f64>,
    /// Gradients are clipped by the norm of all of them together (global_clipnorm, clip_grad_norm_); 0 is off
    #[arg(
        long,
        value_parser = typed::decay,
        allow_negative_numbers = true,
        value_name = "X",
        visible_alias = "clip-grad-norm"
    )]
    global_clipnorm: Option<f64>,
    /// Micro-batches per optimizer step, of the given batch size each
    #[arg(long, value_parser = typed::count::<u32>, allow_negative_numbers = true, value_name = "K")]
    accumulate: Option<u32>,
    /// Recompute activations in backward instead of keeping them
    #[arg(long, value_parser = word::<Checkpoint>(), ignore_case = true, default_value = "none", value_name = "WHICH")]
    checkpoint: Checkpoint,
    /// Do not train parameters whose name matches: --freeze 'encoder.*'; may be repeated
    #[arg(long, value_name = "GLOB")]
    freeze: Vec<String>,
    /// Gradients stay allocated between steps: zero_grad(set_to_none=False)
    #[arg(long)]
    keep_gradients: bool,
    /// What the outputs are compared with; `auto` takes what a Keras file was compiled with, else chooses by their shapes, and says so
    #[arg(long, value_parser = word::<Loss>(), ignore_case = true, default_value = "auto", value_name = "NAME")]
    loss: Loss,
    /// An exponential moving average of the weights is kept
    #[arg(long)]
    ema: bool,
    /// Half-precision weights have a float32 copy in the optimizer
    #[arg(long)]
    master_weights: bool,
    /// torch.backends.cudnn.benchmark is on: plans for each convolution are compared when it first runs
    #[arg(long)]
    cudnn_benchmark: bool,
    /// The model and its inputs are in torch.channels_last
    #[arg(long)]
    channels_last: bool,
    /// Backward runs inside of the autocast region, which keeps the casts of weights alive
    #[arg(long)]
    autocast_backward: bool,
    /// TensorFlow: the step is compiled with XLA, which Keras 3 turns on by itself on a GPU and Keras 2 does not
    #[arg(long, conflicts_with = "no_xla")]
    xla: bool,
    /// TensorFlow: it is not
    #[arg(long)]
    no_xla: bool,
    /// Keras: the step is run operation by operation, without a graph: compile(run_eagerly=True)
    #[arg(long, conflicts_with = "xla")]
    run_eagerly: bool,
    /// Keras under mixed float16: the optimizer does not scale the loss, as compile() makes it do
    #[arg(long)]
    no_loss_scale: bool,
    /// Attention runs as two products and a softmax, as before PyTorch 2.0 and in `eager` variants of models
    #[arg(long)]
    composed_attention: bool,
    /// Put back the batch norms that an inference export folded into convolutions
    #[arg(long)]
    assume_batchnorm: bool,
    /// Put dropout, which an inference export leaves out, where training code has it
    #[arg(long)]
    assume_dropout: bool,
    /// Whether the output layer shares the embedding's matrix, where an inference export shows two
    #[arg(long, value_enum, ignore_case = true, default_value_t = Tied::Auto, value_name = "WHETHER")]
    tied_embeddings: Tied,
    /// As the reference numbers were made: on PyTorch's fake tensors, or with TensorFlow on a CPU
    #[arg(long, hide = true)]
    as_fake_tensors: bool,
    #[command(flatten)]
    parallel: ParallelArgs,
    #[command(flatten)]
    allocator: AllocatorArgs,
}

impl PlanArgs {
    /// What the flags say.
    fn said(&self, aside: Aside) -> Said {
        let given = |flag: bool| flag.then_some(true);
        Said {
            framework: self.framework,
            // Of several that are compared, those that stand for a plan are told by `plans`.
            precision: None,
            optimizer: self.optimizer.first().map(|name| (*name).to_owned()),
            mode: Some(self.mode),
            optimizer_impl: self.optimizer_impl,
            weight_decay: self.weight_decay.map(|x| x > 0.0),
            clip_norm: self.global_clipnorm.map(|x| x > 0.0),
            accumulate: self.accumulate,
            checkpoint: Some(self.checkpoint),
            freeze: self.freeze.clone(),
            keep_gradients: given(self.keep_gradients),
            loss: Some(self.loss),
            ema: given(self.ema),
            master_weights: given(self.master_weights),
            cudnn_benchmark: given(self.cudnn_benchmark),
            channels_last: given(self.channels_last),
            autocast_backward: given(self.autocast_backward),
            xla: given(self.xla).or(self.no_xla.then_some(false)),
            run_eagerly: given(self.run_eagerly),
            loss_scale: self.no_loss_scale.then_some(false),
            composed_attention: given(self.composed_attention),
            as_fake_tensors: given(self.as_fake_tensors),
            assume_batchnorm: given(self.assume_batchnorm),
            assume_dropout: given(self.assume_dropout),
            tied_embeddings: self.tied_embeddings.meant(),
            shared: self.parallel.said(),
            allocator: self.allocator.settings(),
            aside,
        }
    }

    /// What is wrong with the flags alone, which is told before a file is opened.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.said(Aside::default()).check().map_err(Failure::of_flags)
    }

    /// What the flags mean for a model to which `usual` applies, with a warning for each that does nothing here.
    pub(crate) fn plan(&self, usual: Usual, aside: Aside) -> Result<(Plan, Vec<String>), Failure> {
        self.one_of(&self.said(aside), usual)
    }

    /// The same under another framework than was typed.
    pub(crate) fn plan_under(
        &self,
        framework: Framework,
        usual: Usual,
        aside: Aside,
    ) -> Result<(Plan, Vec<String>), Failure> {
        let said = Said { framework: Some(framework), ..self.said(aside) };
        self.one_of(&said, usual.with(framework))
    }

    fn one_of(&self, said: &Said, usual: Usual) -> Result<(Plan, Vec<String>), Failure> {
        let (plans, warnings) =
            said.plans(&self.precision, &self.optimizer, usual).map_err(Failure::of_flags)?;
        let [plan] = <[Plan; 1]>::try_from(plans).map_err(|plans| {
            let message = format!("expected one precision and one optimizer, found {} plans", plans.len());
            Failure::new("--precision, --optimizer", message).hint("memfit fit compares several")
        })?;
        Ok((plan, warnings))
    }

    /// A plan for each precision with each optimizer, and the warnings.
    pub(crate) fn plans(&self, usual: Usual, aside: Aside) -> Result<(Vec<Plan>, Vec<String>), Failure> {
        let said = self.said(aside);
        said.plans(&self.precision, &self.optimizer, usual).map_err(Failure::of_flags)
    }

    /// What the plan took from the file, in words.
    pub(crate) fn kept_to(&self, usual: Usual, plan: &Plan) -> Vec<String> {
        usual.kept_to(plan, self.said(Aside::default()).open())
    }

    /// The weight decay and the norm for clipping that were typed.
    pub(crate) fn numbers(&self) -> (Option<f64>, Option<f64>) {
        (self.weight_decay, self.global_clipnorm)
    }

    /// The framework that was typed.
    pub(crate) fn framework(&self) -> Option<Framework> {
        self.framework
    }
}

/// Takes every name that the engine knows, and offers the main ones.
#[derive(Clone)]
struct OptimizerName;

impl TypedValueParser for OptimizerName {
    type Value = &'static str;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<&'static str, clap::Error> {
        match value.to_str().and_then(optimizers::find) {
            Some(optimizer) => Ok(optimizer.name()),
            // Never one of them, so this is the usual error, with the nearest name in it.
            None => PossibleValuesParser::new(optimizers::names()).parse_ref(command, arg, value).map(|_| ""),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(optimizers::names().map(PossibleValue::new)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tied {
    /// By the model: shared, unless its positions are rotary
    Auto,
    /// Shared
    Yes,
    /// Apart
    No,
}

impl Tied {
    fn meant(self) -> Option<bool> {
        match self {
            Tied::Auto => None,
            Tied::Yes => Some(true),
            Tied::No => Some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        plan: PlanArgs,
    }

    fn plan(flags: &str) -> Result<(Plan, Vec<String>), String> {
        let typed = Typed::try_parse_from(std::iter::once("memfit").chain(flags.split_whitespace()));
        typed
            .map_err(|e| e.to_string())?
            .plan
            .plan(Usual::default(), Aside::default())
            .map_err(|f| f.to_string())
    }

    #[test]
    fn nothing_typed_is_the_default_plan() {
        assert_eq!(plan("").unwrap(), (Plan::default(), Vec::new()));
    }

    #[test]
    fn flags_mean_what_people_type() {
        let (p, _) =
            plan("--precision AMP --mode train --optimizer AdamW --optimizer-impl fused --weight-decay 0")
                .unwrap();
        assert_eq!((p.precision, &*p.optimizer, p.weight_decay), (Precision::MixedFp16, "adamw", false));
        assert_eq!(p.optimizer_impl, OptimizerImpl::Fused);
        let (p, _) =
            plan("--weight-decay 1e-4 --freeze a.* --freeze b --loss ce --precision bf16-mixed").unwrap();
        assert_eq!(
            (p.weight_decay, p.freeze, p.loss),
            (true, vec!["a.*".into(), "b".into()], Loss::CrossEntropy)
        );
        assert_eq!(p.precision, Precision::MixedBf16);
    }

    #[test]
    fn what_is_not_supported_is_said_plainly() {
        assert_eq!(plan("--framework burn").unwrap().0.framework, Framework::Burn);
        let (keras, _) = plan("--framework keras").unwrap();
        assert_eq!((keras.framework, keras.xla), (Framework::Tensorflow, true));
        assert!(!plan("--framework tf --no-xla").unwrap().0.xla);
        let message = plan("--optimizer adm").unwrap_err();
        assert!(message.contains("--optimizer") && message.contains("adamw"), "{message}");
        let message = plan("--precision fp8").unwrap_err();
        assert!(message.contains("mixed-bf16"), "{message}");
        for (wrong, says) in [
            ("--accumulate 0", "--accumulate"),
            ("--weight-decay -1", "expected a number such as 0.01 (0 is off), found `-1`"),
            ("--clip-grad-norm -0.5", "(0 is off), found `-0.5`"),
            ("--xla --no-xla", "cannot be used with"),
            ("--no-xla --xla", "cannot be used with"),
        ] {
            let message = plan(wrong).unwrap_err();
            assert!(message.contains(says), "{message}");
        }
        assert_eq!(plan("--optimizer rprop --optimizer-impl fused").unwrap().1.len(), 1);
        let (torch, warnings) = plan("--framework torch --xla").unwrap();
        assert!(!torch.xla && warnings == ["--xla does nothing: it is TensorFlow's"]);
        assert!(plan("--parallel zero3").unwrap().1[0].contains("--gpus"));
    }
}
