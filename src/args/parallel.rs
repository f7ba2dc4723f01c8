//! How several GPUs share the work, as flags say it.

use super::typed;
use super::word::word;
use clap::Args;
use memfit_engine::parallel::{DeepSpeed, Shared, Sharing};

#[derive(Args, Debug)]
#[command(next_help_heading = "Training plan")]
pub(crate) struct ParallelArgs {
    /// GPUs that train together; the batch size is that of one of them [default: as many as the splits below ask for]
    #[arg(long, value_parser = typed::count::<u32>, allow_negative_numbers = true, value_name = "N")]
    gpus: Option<u32>,
    /// How they share the work
    #[arg(long, value_parser = word::<Sharing>(), ignore_case = true, default_value = "ddp", value_name = "HOW")]
    parallel: Sharing,
    /// GPUs that each layer is split over; all that see the same samples have one batch
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024), value_name = "T")]
    tensor_parallel: Option<u32>,
    /// Stages that the layers are split into; the batch size is then that of a micro-batch, of which --accumulate says how many
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024), value_name = "P")]
    pipeline_stages: Option<u32>,
    /// zero1 to zero3 are DeepSpeed's, with its buckets, and not PyTorch's
    #[arg(long)]
    deepspeed: bool,
    /// DeepSpeed: elements of the bucket that gradients are copied into [default: 500000000]
    #[arg(long, requires = "deepspeed", value_name = "N")]
    reduce_bucket_size: Option<u64>,
    /// DeepSpeed, zero3: elements of parameters that are gathered ahead [default: 50000000]
    #[arg(long, requires = "deepspeed", value_name = "N")]
    stage3_prefetch_bucket_size: Option<u64>,
    /// DeepSpeed, zero3: elements of gathered parameters up to which more are gathered ahead [default: 1000000000]
    #[arg(long, requires = "deepspeed", value_name = "N")]
    stage3_max_live_parameters: Option<u64>,
    /// DeepSpeed, zero3: parameters stay gathered that are used again within so many elements [default: 1000000000]
    #[arg(long, requires = "deepspeed", value_name = "N")]
    stage3_max_reuse_distance: Option<u64>,
    /// DeepSpeed, zero3: parameters of up to so many elements are whole on each GPU [default: 100000]
    #[arg(long, requires = "deepspeed", value_name = "N")]
    stage3_param_persistence_threshold: Option<u64>,
}

impl ParallelArgs {
    /// What the flags say.
    pub(super) fn said(&self) -> Shared {
        Shared {
            gpus: self.gpus,
            sharing: Some(self.parallel),
            tensor: self.tensor_parallel,
            pipeline: self.pipeline_stages,
            deepspeed: self.deepspeed.then(|| self.options()),
        }
    }

    /// DeepSpeed's options.
    fn options(&self) -> DeepSpeed {
        let usual = DeepSpeed::default();
        DeepSpeed {
            reduce_bucket: self.reduce_bucket_size.unwrap_or(usual.reduce_bucket),
            prefetch_bucket: self.stage3_prefetch_bucket_size.unwrap_or(usual.prefetch_bucket),
            max_live: self.stage3_max_live_parameters.unwrap_or(usual.max_live),
            max_reuse: self.stage3_max_reuse_distance.unwrap_or(usual.max_reuse),
            persistence: self.stage3_param_persistence_threshold.unwrap_or(usual.persistence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use memfit_engine::parallel::{Parallel, Sharding};

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        parallel: ParallelArgs,
    }

    #[test]
    fn gpus_are_shared_as_asked() {
        let parallel = |flags: &str| {
            let typed = Typed::try_parse_from(std::iter::once("memfit").chain(flags.split_whitespace()));
            typed
                .map_err(|e| e.to_string())?
                .parallel
                .said()
                .parallel()
                .map_err(|problem| problem.to_string())
        };
        let splits = |gpus, tensor, pipeline| Parallel {
            gpus,
            sharding: Sharding::Ddp,
            tensor,
            pipeline,
            deepspeed: None,
        };
        assert_eq!(parallel("--gpus 1 --tensor-parallel 1"), Ok(None));
        assert_eq!(parallel("--gpus 4 --parallel fsdp"), Ok(Some(Parallel::data(4, Sharding::Zero3))));
        assert_eq!(parallel("--gpus 4 --parallel tp"), Ok(Some(splits(4, 4, 1))));
        assert_eq!(parallel("--gpus 8 --parallel pp --tensor-parallel 2"), Ok(Some(splits(8, 2, 4))));
        assert_eq!(parallel("--tensor-parallel 2 --pipeline-stages 3"), Ok(Some(splits(6, 2, 3))));
        let small = DeepSpeed { reduce_bucket: 1_000, max_live: 5, ..DeepSpeed::default() };
        assert_eq!(
            parallel(
                "--gpus 2 --parallel zero3 --deepspeed --reduce-bucket-size 1000 --stage3-max-live-parameters 5"
            ),
            Ok(Some(Parallel { deepspeed: Some(small), ..Parallel::data(2, Sharding::Zero3) }))
        );
        for (wrong, says) in [
            ("--gpus 6 --tensor-parallel 4", "a multiple of 4 x 1"),
            ("--gpus 4 --parallel tp --tensor-parallel 2", "leave one of the two out"),
            ("--tensor-parallel 0", "--tensor-parallel"),
            (
                "--gpus 2 --parallel zero2 --deepspeed --reduce-bucket-size 18446744073709551615",
                "expected 1 to 281474976710656",
            ),
        ] {
            let error = parallel(wrong).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
