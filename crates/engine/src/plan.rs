//! How a model is trained: everything about a step that the model file does not say.

use crate::allocators::AllocatorSettings;
use crate::devices::{Card, Generation, Vendor};
use crate::optimizers;
use crate::parallel::{Parallel, Sharding};
use memfit_graph::{DType, Problem};

/// Whose rules apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Framework {
    #[default]
    Pytorch,
    Tensorflow,
    Burn,
}

/// The dtypes of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Everything in float32 (the file's own dtypes).
    #[default]
    Fp32,
    /// Autocast to float16 over float32 weights, with a gradient scaler.
    MixedFp16,
    /// Autocast to bfloat16 over float32 weights.
    MixedBf16,
    /// Everything in float16.
    Fp16,
    /// Everything in bfloat16.
    Bf16,
}

impl Precision {
    /// The dtype that autocast casts to, where it is on.
    pub fn autocast(self) -> Option<DType> {
        match self {
            Precision::MixedFp16 => Some(DType::Float16),
            Precision::MixedBf16 => Some(DType::Bfloat16),
            Precision::Fp32 | Precision::Fp16 | Precision::Bf16 => None,
        }
    }

    /// The dtype that stands for float32 in the model itself.
    pub fn model_dtype(self) -> DType {
        match self {
            Precision::Fp16 => DType::Float16,
            Precision::Bf16 => DType::Bfloat16,
            Precision::Fp32 | Precision::MixedFp16 | Precision::MixedBf16 => DType::Float32,
        }
    }

    /// What a dtype of the file is in the model: its float32 is [`Precision::model_dtype`].
    pub fn applied_to(self, dtype: DType) -> DType {
        if dtype == DType::Float32 { self.model_dtype() } else { dtype }
    }
}

/// What is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Forward, loss, backward, optimizer step.
    #[default]
    Train,
    /// Forward alone, without autograd.
    Infer,
}

/// How an optimizer loops over parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OptimizerImpl {
    /// Lists of tensors at once; PyTorch's default on CUDA. Its temporaries are as large as all parameters.
    #[default]
    Foreach,
    /// One kernel for everything; no temporaries.
    Fused,
    /// One parameter after the other.
    Loop,
}

/// Which activations are recomputed in backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checkpoint {
    /// None.
    #[default]
    None,
    /// Those inside of each repeated block of the model.
    Block,
    /// Those, and the stretches between the blocks (stem, head), each as a segment of its own.
    Full,
    /// Burn's `BalancedCheckpointing`: what memory-bound functions make is made again where backward reads it.
    Balanced,
}

/// What the outputs are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// Chosen from the outputs' shapes; the choice is among the estimate's assumptions.
    #[default]
    Auto,
    /// Softmax cross-entropy over integer classes.
    CrossEntropy,
    /// Mean squared error.
    Mse,
    /// Binary cross-entropy with logits.
    Bce,
    /// The mean of the output.
    None,
}

/// How a model is trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Whose rules apply.
    pub framework: Framework,
    /// The dtypes of a step.
    pub precision: Precision,
    /// What is run.
    pub mode: Mode,
    /// The optimizer's name in [`crate::optimizers`].
    pub optimizer: String,
    /// How it loops.
    pub optimizer_impl: OptimizerImpl,
    /// Whether weight decay is on, which costs a foreach optimizer a list of temporaries.
    pub weight_decay: bool,
    /// Micro-batches per optimizer step.
    pub accumulate: u32,
    /// Which activations are recomputed.
    pub checkpoint: Checkpoint,
    /// Globs over parameter names (`encoder.*`) that are not trained.
    pub freeze: Vec<String>,
    /// Whether `zero_grad(set_to_none=False)` keeps gradients between steps.
    pub keep_gradients: bool,
    /// The loss.
    pub loss: Loss,
    /// Whether an exponential moving average of the weights is kept.
    pub ema: bool,
    /// Whether half-precision weights have a float32 master copy in the optimizer.
    pub master_weights: bool,
    /// How several GPUs share the work; none where there is one.
    pub parallel: Option<Parallel>,
    /// How the framework's allocator is set up.
    pub allocator: AllocatorSettings,
    /// Whether `torch.backends.cudnn.benchmark` is on: the first time a convolution runs, plans for it are compared.
    pub cudnn_benchmark: bool,
    /// Whether convolutions' operands lie with their channels innermost: `torch.channels_last`.
    pub channels_last: bool,
    /// The card's compute capability, where it is known: kernels and their scratch memory depend on it.
    pub compute_capability: Option<(u32, u32)>,
    /// The card's family of chips where AMD makes it: its libraries stand in for those of CUDA.
    pub amd: Option<Generation>,
    /// Whether backward runs inside of the autocast region, as some training loops have it: the weights' casts live until it ends.
    pub autocast_backward: bool,
    /// Whether attention runs as two products with a softmax in between, as models wrote it before PyTorch 2.0 and their `eager`
    /// variants do, and not as one kernel.
    pub composed_attention: bool,
    /// Whether the step runs where the reference numbers come from: gradients meet out of place, as on PyTorch's fake tensors, and TensorFlow
    /// leaves images as a CPU takes them.
    pub as_fake_tensors: bool,
    /// Whether gradients are clipped by the norm of all of them together. PyTorch has all gradients at the step anyway.
    pub clip_norm: bool,
    /// Whether TensorFlow compiles the step with XLA.
    pub xla: bool,
    /// Whether Keras runs the step eagerly (`run_eagerly=True`): no graph, no XLA.
    pub eager: bool,
    /// Whether TensorFlow's graph optimizers put the step's kernels into their order, as they do unless they are turned off.
    pub grappler: bool,
    /// Whether a Keras optimizer scales the loss under mixed float16, as `compile()` makes it.
    pub loss_scale: bool,
    /// Whether batch norms folded by an inference export are put back.
    pub assume_batchnorm: bool,
    /// Whether dropout is put where training code has it.
    pub assume_dropout: bool,
    /// Whether the output layer's matrix is the embedding's where an inference export untied them; `None` to decide by the
    /// model.
    pub tied_embeddings: Option<bool>,
}

/// Optimizers that PyTorch or a library of it has and Keras has not (keras/src/optimizers, 3.15).
const NOT_IN_KERAS: &[&str] = &["adam8bit", "adamw8bit", "asgd", "lars", "radam", "rprop"];

/// keras/src/optimizers/base_optimizer.py, 3.15: with `gradient_accumulation_steps` variables are updated inside of a condition, where
/// `tf.distribute` may not merge what its replicas do ("`merge_call` called while defining a new graph or a tf.function").
const NO_ACCUMULATION: &str = "--accumulate: tf.distribute.MirroredStrategy does not run an optimizer with \
    gradient_accumulation_steps (RuntimeError: `merge_call` called while defining a new graph); what is counted is a loop of one's own";

impl Plan {
    /// The plan as it runs on a card, whose kernels follow from its compute capability or its family of chips.
    pub fn on(&self, card: &Card) -> Plan {
        let device = &card.device;
        let compute_capability = self.compute_capability.or(device.compute_capability);
        let amd = self.amd.or((device.vendor == Vendor::Amd).then_some(device.generation));
        Plan { compute_capability, amd, ..self.clone() }
    }

    /// What the framework does not have at all.
    pub(crate) fn refusal(&self) -> Option<Problem> {
        let burn = self.framework == Framework::Burn;
        let keras = self.framework == Framework::Tensorflow && self.mode == Mode::Train;
        if keras && NOT_IN_KERAS.contains(&&*self.optimizer) {
            return Some(Problem::new("--optimizer", format!("Keras has no {}", self.optimizer)));
        }
        let (message, hint) = match self.checkpoint {
            Checkpoint::Block | Checkpoint::Full if burn => {
                ("Burn recomputes by function, not by block", "--checkpoint balanced is Burn's own strategy")
            }
            Checkpoint::Balanced if !burn => (
                "balanced is a strategy of Burn",
                "PyTorch recomputes blocks: --checkpoint block or full; TensorFlow recomputes nothing",
            ),
            _ => return None,
        };
        Some(Problem::new("--checkpoint", message).hint(hint))
    }

    /// Calls the optimizer by its own name, which all rules go by, gives it the implementation that was asked for, its own where
    /// it has no such or nothing was asked for, and says which parts of the plan do nothing.
    pub fn settle(&mut self, asked: Option<OptimizerImpl>) -> Vec<String> {
        let mut warnings = Vec::new();
        let optimizer = optimizers::find(&self.optimizer);
        if let Some(known) = optimizer {
            self.optimizer = known.name().into();
        }
        let used = optimizer.map(|o| o.implementation(asked.unwrap_or_default()));
        self.optimizer_impl = used.unwrap_or_default();
        if asked.is_some_and(|asked| asked != self.optimizer_impl) {
            let name = &self.optimizer;
            warnings.push(format!(
                "{name} has no such implementation as --optimizer-impl asks for; its default is used"
            ));
        }
        let mut told: Vec<&str> = Vec::new();
        for (flag, _, why) in self.idle(asked).into_iter().filter(|(_, set, _)| *set) {
            if !told.contains(&flag) {
                told.push(flag);
                warnings.push(format!("{flag} does nothing: {why}"));
            }
        }
        if self.framework != Framework::Tensorflow {
            (self.xla, self.eager) = (false, false);
        }
        let trains_alike = |p: Parallel| self.mode == Mode::Train && p.pipeline == 1;
        if self.framework == Framework::Tensorflow
            && self.accumulate > 1
            && self.parallel.is_some_and(trains_alike)
        {
            warnings.push(NO_ACCUMULATION.into());
        }
        warnings.extend(self.allocator.warnings(self.framework));
        warnings
    }

    /// Flags that do nothing here: which, whether it is so, and why. Of several reasons the first is told.
    fn idle(&self, asked: Option<OptimizerImpl>) -> [(&'static str, bool, &'static str); 19] {
        let (torch, keras) = (self.framework == Framework::Pytorch, self.framework == Framework::Tensorflow);
        let infers = self.mode == Mode::Infer;
        let recomputes = self.checkpoint != Checkpoint::None;
        let untrained = "nothing is trained";
        let of_torch = "it is PyTorch's";
        [
            ("--optimizer-impl", infers && asked.is_some(), untrained),
            ("--weight-decay", infers && self.weight_decay, untrained),
            ("--global-clipnorm", infers && self.clip_norm, untrained),
            // A pipeline's micro-batches run forward, too.
            ("--accumulate", infers && self.accumulate > 1 && self.parallel.is_none(), untrained),
            ("--checkpoint", infers && recomputes, untrained),
            ("--freeze", infers && !self.freeze.is_empty(), untrained),
            ("--keep-gradients", infers && self.keep_gradients, untrained),
            ("--loss", infers && self.loss != Loss::Auto, untrained),
            ("--ema", infers && self.ema, untrained),
            ("--master-weights", infers && self.master_weights, untrained),
            ("--autocast-backward", infers && self.autocast_backward, untrained),
            ("--optimizer-impl", keras && asked.is_some(), "Keras has one implementation of each optimizer"),
            ("--checkpoint", keras && recomputes, "nothing is recomputed in TensorFlow's step"),
            ("--keep-gradients", keras && self.keep_gradients, "a gradient lives until its update"),
            ("--channels-last", keras && self.channels_last, "channels are last in TensorFlow anyway"),
            ("--master-weights", keras && self.master_weights, "variables are float32 under a mixed policy"),
            (
                "--master-weights",
                self.master_weights && self.precision.model_dtype() == DType::Float32,
                "the weights are float32 already",
            ),
            ("--cudnn-benchmark", !torch && self.cudnn_benchmark, of_torch),
            ("--autocast-backward", !torch && self.autocast_backward, of_torch),
        ]
    }

    /// What is said where TensorFlow has no such way of sharing. A Keras file's layers are not split, and that is said where it is done.
    pub(crate) fn foreign_split(&self, is_keras: bool) -> Option<&'static str> {
        let p = self.parallel.filter(|_| self.framework == Framework::Tensorflow)?;
        let whole = p.sharding == Sharding::Ddp && (p.tensor == 1 || is_keras) && p.pipeline == 1;
        (!whole).then_some(
            "TensorFlow gives each GPU the whole model (tf.distribute): what is counted is PyTorch's way of splitting it",
        )
    }

    /// The same of flags that depend on what a file says of itself: whether Keras runs it, its own mixed policy.
    pub(crate) fn idle_for(&self, is_keras: bool) -> impl Iterator<Item = String> + use<> {
        let of_onnx = [
            ("--composed-attention", self.composed_attention),
            ("--assume-batchnorm", self.assume_batchnorm),
            ("--assume-dropout", self.assume_dropout),
            ("--tied-embeddings", self.tied_embeddings.is_some()),
        ];
        let of_onnx = of_onnx.into_iter().filter(move |(_, said)| is_keras && *said).map(|(flag, _)| {
            format!("{flag} does nothing: it is about ONNX files, and this one says what Keras runs")
        });
        let torch = self.framework == Framework::Pytorch;
        let scales = match self.framework {
            Framework::Pytorch => is_keras,
            Framework::Tensorflow => self.precision == Precision::MixedFp16,
            Framework::Burn => false,
        };
        let trains = self.mode == Mode::Train;
        let lone = trains && torch && self.autocast_backward && self.precision.autocast().is_none();
        let own = torch && is_keras;
        let unscaled = trains && !self.loss_scale && !scales;
        [
            lone.then_some("--autocast-backward does nothing: the precision is not a mixed one"),
            unscaled.then_some("--no-loss-scale does nothing: it is Keras' optimizers' under mixed float16"),
            (own && self.channels_last)
                .then_some("--channels-last does nothing: Keras' layers have a data_format of their own"),
            (own && trains && self.optimizer_impl == OptimizerImpl::Fused)
                .then_some("--optimizer-impl does nothing: Keras has one implementation of each optimizer"),
        ]
        .into_iter()
        .flatten()
        .map(str::to_owned)
        .chain(of_onnx)
    }
}

impl Default for Plan {
    /// PyTorch, fp32, Adam with foreach.
    fn default() -> Plan {
        Plan {
            framework: Framework::Pytorch,
            precision: Precision::Fp32,
            mode: Mode::Train,
            optimizer: "adam".into(),
            optimizer_impl: OptimizerImpl::Foreach,
            weight_decay: false,
            accumulate: 1,
            checkpoint: Checkpoint::None,
            freeze: Vec::new(),
            keep_gradients: false,
            loss: Loss::Auto,
            ema: false,
            master_weights: false,
            parallel: None,
            allocator: AllocatorSettings::default(),
            cudnn_benchmark: false,
            channels_last: false,
            compute_capability: None,
            amd: None,
            autocast_backward: false,
            composed_attention: false,
            as_fake_tensors: false,
            clip_norm: false,
            xla: false,
            eager: false,
            grappler: true,
            loss_scale: true,
            assume_batchnorm: false,
            assume_dropout: false,
            tied_embeddings: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_do_nothing_are_told_once_each() {
        let told = |plan: Plan| {
            let mut plan = plan;
            let warnings = plan.settle(None);
            let flag = |w: &String| w.split(' ').next().unwrap_or_default().to_owned();
            warnings.iter().map(flag).collect::<Vec<_>>().join(" ")
        };
        let plan = |framework| Plan {
            framework,
            xla: true,
            eager: true,
            cudnn_benchmark: true,
            autocast_backward: true,
            master_weights: true,
            ..Plan::default()
        };
        assert_eq!(told(Plan::default()), "");
        assert_eq!(told(plan(Framework::Pytorch)), "--master-weights");
        let tensorflow = "--master-weights --cudnn-benchmark --autocast-backward";
        assert_eq!(told(plan(Framework::Tensorflow)), tensorflow);
        let infer = Plan {
            mode: Mode::Infer,
            checkpoint: Checkpoint::Block,
            ema: true,
            master_weights: true,
            ..Plan::default()
        };
        assert_eq!(told(infer), "--checkpoint --ema --master-weights");
    }

    #[test]
    fn an_optimizer_is_called_by_its_own_name() {
        for (said, name) in [("AdamW", "adamw"), ("SGD momentum", "momentum"), ("Nesterov", "nesterov")] {
            let mut plan =
                Plan { framework: Framework::Tensorflow, optimizer: said.into(), ..Plan::default() };
            assert_eq!((plan.settle(None), &*plan.optimizer), (Vec::new(), name));
        }
        // What Keras has not is refused however it is written, and what nobody knows keeps its name for the message.
        let mut plan =
            Plan { framework: Framework::Tensorflow, optimizer: "RAdam".into(), ..Plan::default() };
        plan.settle(None);
        assert!(plan.refusal().is_some_and(|problem| problem.message == "Keras has no radam"));
        let mut plan = Plan { optimizer: "Mine".into(), ..Plan::default() };
        plan.settle(None);
        assert_eq!(plan.optimizer, "Mine");
    }

    #[test]
    fn what_tensorflow_does_not_share_is_told() {
        let plan = |parallel| {
            let (framework, accumulate) = (Framework::Tensorflow, 2);
            Plan { framework, accumulate, parallel: Some(parallel), ..Plan::default() }
        };
        let data = |sharding| Parallel::data(4, sharding);
        let tensor = Parallel { tensor: 4, ..data(Sharding::Ddp) };
        let pipeline = Parallel { pipeline: 4, ..data(Sharding::Ddp) };
        let splits = |parallel, is_keras| plan(parallel).foreign_split(is_keras).is_some();
        assert!(!splits(data(Sharding::Ddp), true) && splits(data(Sharding::Zero3), true));
        assert!(splits(tensor, false) && !splits(tensor, true) && splits(pipeline, true));
        let accumulates =
            |parallel| plan(parallel).settle(None).iter().any(|w| w.contains("MirroredStrategy"));
        assert!(accumulates(data(Sharding::Ddp)) && accumulates(tensor) && !accumulates(pipeline));
        assert!(plan(tensor).settle(None).len() == 1, "{:?}", plan(tensor).settle(None));
    }

    #[test]
    fn what_a_file_decides_is_told_with_it() {
        let plan = Plan { autocast_backward: true, loss_scale: false, ..Plan::default() };
        assert_eq!(plan.idle_for(false).count(), 2);
        let mixed = Plan { precision: Precision::MixedFp16, ..plan };
        assert_eq!((mixed.idle_for(false).count(), mixed.idle_for(true).count()), (1, 0));
        let of_onnx = Plan {
            composed_attention: true,
            assume_batchnorm: true,
            assume_dropout: true,
            tied_embeddings: Some(false),
            ..Plan::default()
        };
        assert_eq!((of_onnx.idle_for(false).count(), of_onnx.idle_for(true).count()), (0, 4));
    }
}
