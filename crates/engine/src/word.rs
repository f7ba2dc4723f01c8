//! What the choices of a plan are called: one word each, the same on the command line, in JSON and in reports.

use crate::parallel::{Sharding, Sharing};
use crate::{Checkpoint, Framework, Loss, Mode, OptimizerImpl, Precision};

/// A choice that is said with one word.
pub trait Word: Copy + Eq + 'static {
    /// All choices, in the order in which they are offered.
    const ALL: &'static [Self];

    /// What this one is called.
    fn name(self) -> &'static str;

    /// The choice that is called so.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|choice| choice.name() == name)
    }
}

/// One list gives the order and the names; the match sees to it that none is left out.
macro_rules! words {
    ($($choice:ty { $($variant:ident $name:literal),+ $(,)? })+) => {$(
        impl Word for $choice {
            const ALL: &'static [$choice] = &[$(<$choice>::$variant),+];

            fn name(self) -> &'static str {
                match self { $(<$choice>::$variant => $name),+ }
            }
        }
    )+};
}

words! {
    Framework { Pytorch "pytorch", Tensorflow "tensorflow", Burn "burn" }
    Precision { Fp32 "fp32", MixedFp16 "mixed-fp16", MixedBf16 "mixed-bf16", Fp16 "fp16", Bf16 "bf16" }
    Mode { Train "train", Infer "infer" }
    OptimizerImpl { Foreach "foreach", Fused "fused", Loop "loop" }
    Checkpoint { None "none", Block "block", Full "full", Balanced "balanced" }
    Loss { Auto "auto", CrossEntropy "cross-entropy", Mse "mse", Bce "bce", None "none" }
    Sharding { Ddp "ddp", Zero1 "zero1", Zero2 "zero2", Zero3 "zero3" }
    Sharing { Ddp "ddp", Zero1 "zero1", Zero2 "zero2", Zero3 "zero3", Tp "tp", Pp "pp" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each_by_its_own_name<W: Word + std::fmt::Debug>() {
        for choice in W::ALL {
            assert_eq!(W::named(choice.name()), Some(*choice));
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
        assert_eq!(Precision::named("AMP"), None);
    }
}
