//! The engine's words on the command line: what else people call each, and what help says of it.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use memfit_engine::parallel::Sharing;
use memfit_engine::{Checkpoint, Framework, Loss, Mode, OptimizerImpl, Precision, Word};

/// A choice of the engine as the command line offers it.
pub(super) trait Offered: Word + Send + Sync {
    /// Its other names, and what help says of it, where that is anything.
    fn offered(self) -> (&'static [&'static str], Option<&'static str>);

    /// The same for clap.
    fn value(self) -> PossibleValue {
        let (aliases, help) = self.offered();
        let value = PossibleValue::new(self.name()).aliases(aliases);
        match help {
            Some(help) => value.help(help),
            None => value,
        }
    }
}

/// Takes the names of a choice, however they are capitalized.
pub(super) fn word<W: Offered>() -> impl TypedValueParser<Value = W> {
    let typed_so = |typed: String| W::ALL.iter().copied().find(|choice| choice.value().matches(&typed, true));
    PossibleValuesParser::new(W::ALL.iter().map(|choice| choice.value()))
        .try_map(move |typed| typed_so(typed).ok_or("not one of the possible values"))
}

macro_rules! offered {
    ($($choice:ident { $($variant:ident [$($alias:literal),*] $($help:literal)?,)+ })+) => {$(
        impl Offered for $choice {
            fn offered(self) -> (&'static [&'static str], Option<&'static str>) {
                match self { $($choice::$variant => (&[$($alias),*], [$($help)?].first().copied())),+ }
            }
        }
    )+};
}

offered! {
    Framework {
        Pytorch ["torch"],
        Tensorflow ["tf", "keras"],
        Burn [],
    }
    Precision {
        Fp32 ["float32", "32", "full"] "The file's own dtypes",
        MixedFp16 ["amp", "mixed", "amp-fp16", "amp_fp16", "fp16-mixed", "16-mixed", "mixed-float16", "mixed_float16", "mixed_fp16"]
            "Autocast to float16, with a gradient scaler",
        MixedBf16 ["amp-bf16", "amp_bf16", "bf16-mixed", "mixed-bfloat16", "mixed_bfloat16", "mixed_bf16"]
            "Autocast to bfloat16",
        Fp16 ["float16", "half", "16", "fp16-true", "16-true"] "Everything in float16",
        Bf16 ["bfloat16", "bf16-true"] "Everything in bfloat16",
    }
    Mode {
        Train ["training"] "Forward, loss, backward, optimizer step",
        Infer ["inference", "eval"] "Forward alone, without autograd",
    }
    OptimizerImpl {
        Foreach ["for-each"] "Lists of tensors at once",
        Fused [] "One kernel for everything",
        Loop ["for-loop", "forloop"] "One parameter after the other",
    }
    Checkpoint {
        None ["off"] "Keep all",
        Block ["blocks"] "Keep what stands between the repeated blocks of the model",
        Full [] "Keep the inputs of those blocks alone",
        Balanced [] "Burn: make again what is cheap to make",
    }
    Loss {
        Auto [] "By the outputs' shapes",
        CrossEntropy ["ce", "crossentropy", "cross_entropy"] "Softmax cross-entropy over integer classes",
        Mse ["l2"] "Mean squared error",
        Bce ["bce-with-logits"] "Binary cross-entropy with logits",
        None ["mean"] "The mean of the output",
    }
    Sharing {
        Ddp ["data", "dp"] "Each has everything",
        Zero1 ["zero-1"] "The optimizer's state is split",
        Zero2 ["zero-2"] "And the gradients",
        Zero3 ["zero-3", "fsdp"] "And the parameters",
        Tp ["tensor"] "Each layer is split: --tensor-parallel with all GPUs",
        Pp ["pipeline"] "Each has a part of the layers: --pipeline-stages with all GPUs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn told_apart<W: Offered>() {
        let mut seen = BTreeSet::new();
        for choice in W::ALL {
            let (aliases, _) = choice.offered();
            for name in std::iter::once(&choice.name()).chain(aliases) {
                assert!(seen.insert(*name), "{name} is there twice");
            }
        }
    }

    #[test]
    fn no_name_is_that_of_two_choices() {
        told_apart::<Framework>();
        told_apart::<Precision>();
        told_apart::<Mode>();
        told_apart::<OptimizerImpl>();
        told_apart::<Checkpoint>();
        told_apart::<Loss>();
        told_apart::<Sharing>();
    }
}
