//! What the choices of a plan are called: one word each in reports, and that or another that people use for it on the command line and in
//! JSON.

use crate::parallel::{Sharding, Sharing};
use crate::{Checkpoint, Framework, Loss, Mode, OptimizerImpl, Precision};

/// A choice that is said with one word.
pub trait Word: Copy + Eq + 'static {
    /// All choices, in the order in which they are offered.
    const ALL: &'static [Self];

    /// What this one is called.
    fn name(self) -> &'static str;

    /// What else people call it.
    fn other_names(self) -> &'static [&'static str];

    /// The choice that is called so, by any of its names, however they are capitalized.
    fn named(name: &str) -> Option<Self> {
        let is = |known: &str| known.eq_ignore_ascii_case(name);
        Self::ALL
            .iter()
            .copied()
            .find(|choice| is(choice.name()) || choice.other_names().iter().any(|other| is(other)))
    }
}

/// One list gives the order and the names; the match sees to it that none is left out.
macro_rules! words {
    ($($choice:ty { $($variant:ident $name:literal [$($other:literal),*]),+ $(,)? })+) => {$(
        impl Word for $choice {
            const ALL: &'static [$choice] = &[$(<$choice>::$variant),+];

            fn name(self) -> &'static str {
                match self { $(<$choice>::$variant => $name),+ }
            }

            fn other_names(self) -> &'static [&'static str] {
                match self { $(<$choice>::$variant => &[$($other),*]),+ }
            }
        }
    )+};
}

words! {
    Framework {
        Pytorch "pytorch" ["torch"],
        Tensorflow "tensorflow" ["tf", "keras"],
        Burn "burn" [],
    }
    Precision {
        Fp32 "fp32" ["float32", "32", "full"],
        MixedFp16 "mixed-fp16" ["amp", "mixed", "amp-fp16", "amp_fp16", "fp16-mixed", "16-mixed", "mixed-float16", "mixed_float16", "mixed_fp16"],
        MixedBf16 "mixed-bf16" ["amp-bf16", "amp_bf16", "bf16-mixed", "mixed-bfloat16", "mixed_bfloat16", "mixed_bf16"],
        Fp16 "fp16" ["float16", "half", "16", "fp16-true", "16-true"],
        Bf16 "bf16" ["bfloat16", "bf16-true"],
    }
    Mode {
        Train "train" ["training"],
        Infer "infer" ["inference", "eval"],
    }
    OptimizerImpl {
        Foreach "foreach" ["for-each"],
        Fused "fused" [],
        Loop "loop" ["for-loop", "forloop"],
    }
    Checkpoint {
        None "none" ["off"],
        Block "block" ["blocks"],
        Full "full" [],
        Balanced "balanced" [],
    }
    Loss {
        Auto "auto" [],
        CrossEntropy "cross-entropy" ["ce", "crossentropy", "cross_entropy"],
        Mse "mse" ["l2"],
        Bce "bce" ["bce-with-logits"],
        None "none" ["mean"],
    }
    Sharding {
        Ddp "ddp" ["data", "dp"],
        Zero1 "zero1" ["zero-1"],
        Zero2 "zero2" ["zero-2"],
        Zero3 "zero3" ["zero-3", "fsdp"],
    }
    Sharing {
        Ddp "ddp" ["data", "dp"],
        Zero1 "zero1" ["zero-1"],
        Zero2 "zero2" ["zero-2"],
        Zero3 "zero3" ["zero-3", "fsdp"],
        Tp "tp" ["tensor"],
        Pp "pp" ["pipeline"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each_by_its_own_name<W: Word + std::fmt::Debug>() {
        for choice in W::ALL {
            for name in choice.other_names().iter().copied().chain([choice.name()]) {
                assert_eq!(W::named(name), Some(*choice), "{name} is there twice");
            }
        }
        assert_eq!(W::named(""), None);
    }

    #[test]
    fn a_name_leads_back_to_its_choice() {
        each_by_its_own_name::<Framework>();
        each_by_its_own_name::<Precision>();
        each_by_its_own_name::<Mode>();
        each_by_its_own_name::<OptimizerImpl>();
        each_by_its_own_name::<Checkpoint>();
        each_by_its_own_name::<Loss>();
        each_by_its_own_name::<Sharding>();
        each_by_its_own_name::<Sharing>();
        assert_eq!(Precision::named("AMP"), Some(Precision::MixedFp16));
        assert_eq!(Precision::named("fp8"), None);
    }
}
