//! How several GPUs are said to share the work, and what that comes to.

use super::{DeepSpeed, Parallel, Sharding};
use memfit_graph::Problem;

/// No model has more layers, and no layer more heads, to split.
const MOST_PARTS: u32 = 1024;

/// A bucket of 1 PiB of float32, as large as a tensor may be.
const LARGEST_BUCKET: u64 = 1 << 48;

/// A way of sharing as people name it: how replicas share, or one of the splits with all GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Each has everything.
    #[default]
    Ddp,
    /// The optimizer's state is split.
    Zero1,
    /// And the gradients.
    Zero2,
    /// And the parameters.
    Zero3,
    /// Each layer is split over all GPUs.
    Tp,
    /// Each GPU has a part of the layers.
    Pp,
}

impl Sharing {
    /// How replicas share.
    fn sharding(self) -> Sharding {
        match self {
            Sharing::Ddp | Sharing::Tp | Sharing::Pp => Sharding::Ddp,
            Sharing::Zero1 => Sharding::Zero1,
            Sharing::Zero2 => Sharding::Zero2,
            Sharing::Zero3 => Sharding::Zero3,
        }
    }
}

/// What is said of several GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// How many there are; as many as the splits ask for where it is not said.
    pub gpus: Option<u32>,
    /// How they share.
    pub sharing: Option<Sharing>,
    /// GPUs that each layer is split over.
    pub tensor: Option<u32>,
    /// Stages that the layers are split into.
    pub pipeline: Option<u32>,
    /// DeepSpeed's options, where it is DeepSpeed that shares.
    pub deepspeed: Option<DeepSpeed>,
}

impl Shared {
    /// What it comes to; nothing where there is one GPU.
    ///
    /// # Errors
    /// Where numbers do not go together, or where several GPUs are left out of a build (feature `parallel`).
    pub fn parallel(&self) -> Result<Option<Parallel>, Problem> {
        let (sharing, said) = (self.sharing.unwrap_or_default(), [self.tensor, self.pipeline]);
        for (flag, n) in ["--tensor-parallel", "--pipeline-stages"].into_iter().zip(said) {
            if let Some(n) = n.filter(|n| !(1..=MOST_PARTS).contains(n)) {
                return Err(Problem::new(flag, format!("expected 1 to {MOST_PARTS}, found {n}")));
            }
        }
        let alone = |word: &str, other: &str| {
            let message = format!("--parallel {word} takes all GPUs for it, and {other} says how many");
            Problem::new("--parallel", message).hint("leave one of the two out")
        };
        let gpus = self.gpus.unwrap_or(1);
        let (tensor, pipeline) = (self.tensor.unwrap_or(1), self.pipeline.unwrap_or(1));
        let (tensor, pipeline) = match sharing {
            Sharing::Tp if self.tensor.is_some() => return Err(alone("tp", "--tensor-parallel")),
            Sharing::Pp if self.pipeline.is_some() => return Err(alone("pp", "--pipeline-stages")),
            Sharing::Tp => ((gpus / pipeline).max(1), pipeline),
            Sharing::Pp => (tensor, (gpus / tensor).max(1)),
            Sharing::Ddp | Sharing::Zero1 | Sharing::Zero2 | Sharing::Zero3 => (tensor, pipeline),
        };
        let splits = tensor.saturating_mul(pipeline);
        let gpus = self.gpus.unwrap_or(splits);
        if gpus == 0 || !gpus.is_multiple_of(splits) {
            let message = format!("expected a multiple of {tensor} x {pipeline} GPUs, found {gpus}");
            let hint = "each replica takes --tensor-parallel times --pipeline-stages GPUs";
            return Err(Problem::new("--gpus", message).hint(hint));
        }
        if gpus > 1 && !cfg!(feature = "parallel") {
            return Err(Problem::new("--gpus", "this build knows one GPU alone"));
        }
        let sharding = sharing.sharding();
        if self.deepspeed.is_some() && sharding == Sharding::Ddp {
            let message = "DeepSpeed's buckets are those of zero1, zero2 and zero3";
            return Err(Problem::new("--deepspeed", message).hint("say which: --parallel zero2"));
        }
        if let Some(n) = self.deepspeed.map(|d| d.reduce_bucket).filter(|n| !(1..=LARGEST_BUCKET).contains(n))
        {
            let message = format!("expected 1 to {LARGEST_BUCKET} elements, found {n}");
            return Err(Problem::new("--reduce-bucket-size", message));
        }
        let deepspeed = self.deepspeed;
        Ok((gpus > 1).then_some(Parallel { gpus, sharding, tensor, pipeline, deepspeed }))
    }

    /// What is to be said where there is nobody to share with.
    pub(crate) fn warning(&self, parallel: Option<Parallel>) -> Option<String> {
        (self.sharing.unwrap_or_default() != Sharing::Ddp && parallel.is_none())
            .then(|| "--parallel does nothing: there is one GPU, unless --gpus says more".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(gpus: u32, sharing: Sharing) -> Shared {
        Shared { gpus: Some(gpus), sharing: Some(sharing), ..Shared::default() }
    }

    #[test]
    fn a_way_of_sharing_and_the_splits_say_how_many_gpus_there_are() {
        let splits = |gpus, tensor, pipeline| {
            Ok(Some(Parallel { tensor, pipeline, ..Parallel::data(gpus, Sharding::Ddp) }))
        };
        let two = Some(2);
        assert_eq!(Shared { tensor: Some(1), ..shared(1, Sharing::Ddp) }.parallel(), Ok(None));
        assert_eq!(shared(4, Sharing::Zero3).parallel(), Ok(Some(Parallel::data(4, Sharding::Zero3))));
        assert_eq!(shared(4, Sharing::Tp).parallel(), splits(4, 4, 1));
        assert_eq!(Shared { tensor: two, ..shared(8, Sharing::Pp) }.parallel(), splits(8, 2, 4));
        assert_eq!(
            Shared { tensor: two, pipeline: Some(3), ..Shared::default() }.parallel(),
            splits(6, 2, 3)
        );
        let deepspeed = Some(DeepSpeed::default());
        assert_eq!(
            Shared { deepspeed, ..shared(2, Sharing::Zero2) }.parallel(),
            Ok(Some(Parallel { deepspeed, ..Parallel::data(2, Sharding::Zero2) }))
        );
    }

    #[test]
    fn numbers_that_do_not_go_together_are_refused() {
        let two = Some(2);
        for (wrong, flag, says) in [
            (Shared { tensor: Some(4), ..shared(6, Sharing::Ddp) }, "--gpus", "a multiple of 4 x 1"),
            (shared(0, Sharing::Ddp), "--gpus", "found 0"),
            (Shared { tensor: two, ..shared(4, Sharing::Tp) }, "--parallel", "says how many"),
            (Shared { pipeline: two, ..shared(4, Sharing::Pp) }, "--parallel", "says how many"),
            (Shared { tensor: Some(0), ..Shared::default() }, "--tensor-parallel", "1 to 1024, found 0"),
            (Shared { pipeline: Some(1025), ..Shared::default() }, "--pipeline-stages", "1 to 1024"),
            (
                Shared { deepspeed: Some(DeepSpeed::default()), ..shared(2, Sharing::Tp) },
                "--deepspeed",
                "zero1, zero2 and zero3",
            ),
        ] {
            let problem = wrong.parallel().unwrap_err();
            assert!(problem.place == flag && problem.message.contains(says), "{problem}");
        }
    }

    #[test]
    fn sharing_with_nobody_does_nothing() {
        assert!(shared(1, Sharing::Zero3).warning(None).is_some_and(|w| w.contains("--gpus")));
        assert_eq!(shared(1, Sharing::Ddp).warning(None), None);
        let four = shared(4, Sharing::Zero3);
        assert_eq!(four.warning(four.parallel().unwrap()), None);
    }
}
