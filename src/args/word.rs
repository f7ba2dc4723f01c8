//! The engine's words on the command line, and what help says of each.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use memfit_engine::parallel::Sharing;
use memfit_engine::{Checkpoint, Framework, Loss, Mode, OptimizerImpl, Precision, Word};

/// A choice of the engine as the command line offers it.
pub(super) trait Offered: Word + Send + Sync {
    /// What help says of it, where that is anything.
    fn help(self) -> Option<&'static str>;

    /// The same for clap.
    fn value(self) -> PossibleValue {
        let value = PossibleValue::new(self.name()).aliases(self.other_names());
        match self.help() {
            Some(help) => value.help(help),
            None => value,
        }
    }
}

/// Takes the names of a choice, however they are capitalized.
pub(super) fn word<W: Offered>() -> impl TypedValueParser<Value = W> {
    PossibleValuesParser::new(W::ALL.iter().map(|choice| choice.value()))
        .try_map(|typed| W::named(&typed).ok_or("not one of the possible values"))
}

macro_rules! offered {
    ($($choice:ident { $($variant:ident $($help:literal)?,)+ })+) => {$(
        impl Offered for $choice {
            fn help(self) -> Option<&'static str> {
                match self { $($choice::$variant => [$($help)?].first().copied()),+ }
            }
        }
    )+};
}

offered! {
    Framework {
        Pytorch,
        Tensorflow,
        Burn,
    }
    Precision {
        Fp32 "The file's own dtypes",
        MixedFp16 "Autocast to float16, with a gradient scaler",
        MixedBf16 "Autocast to bfloat16",
        Fp16 "Everything in float16",
        Bf16 "Everything in bfloat16",
    }
    Mode {
        Train "Forward, loss, backward, optimizer step",
        Infer "Forward alone, without autograd",
    }
    OptimizerImpl {
        Foreach "Lists of tensors at once",
        Fused "One kernel for everything",
        Loop "One parameter after the other",
    }
    Checkpoint {
        None "Keep all",
        Block "Keep what stands between the repeated blocks of the model",
        Full "Keep the inputs of those blocks alone",
        Balanced "Burn: make again what is cheap to make",
    }
    Loss {
        Auto "By the outputs' shapes",
        CrossEntropy "Softmax cross-entropy over integer classes",
        Mse "Mean squared error",
        Bce "Binary cross-entropy with logits",
        None "The mean of the output",
    }
    Sharing {
        Ddp "Each has everything",
        Zero1 "The optimizer's state is split",
        Zero2 "And the gradients",
        Zero3 "And the parameters",
        Tp "Each layer is split: --tensor-parallel with all GPUs",
        Pp "Each has a part of the layers: --pipeline-stages with all GPUs",
    }
}
