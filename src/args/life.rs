//! What happens in the process beside the step.

use super::typed;
use clap::Args;
use memfit_engine::Life;
use std::path::PathBuf;

/// Flags of the process around the step.
#[derive(Args, Debug)]
#[command(next_help_heading = "Process")]
pub(crate) struct LifeArgs {
    #[command(flatten)]
    pub(crate) own: OwnLifeArgs,
    /// Another model that is alive in the same process, trained the same way: the other half of a GAN; may be repeated
    #[arg(long, value_name = "MODEL")]
    pub(crate) with: Vec<PathBuf>,
    /// Another model that is only run: a teacher, a reference; may be repeated
    #[arg(long, value_name = "MODEL")]
    pub(crate) with_frozen: Vec<PathBuf>,
}

/// What the process does with this model beside the step.
#[derive(Args, Debug)]
#[command(next_help_heading = "Process")]
pub(crate) struct OwnLifeArgs {
    /// Validation runs between steps, with this batch size
    #[arg(long, value_name = "N", value_parser = typed::count::<u64>, allow_negative_numbers = true)]
    validation_batch: Option<u64>,
    /// Batches that a pipeline puts on the device ahead of their step
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = typed::from_zero, allow_negative_numbers = true, hide_default_value = true)]
    prefetch_to_device: u32,
    /// Batches whose predictions are all kept on the device
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = typed::from_zero, allow_negative_numbers = true, hide_default_value = true)]
    predict_batches: u32,
    /// Models of earlier runs that are still alive, as in a notebook
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = typed::from_zero, allow_negative_numbers = true, hide_default_value = true)]
    stale_models: u32,
    /// Keras: steps that run in one call of the graph: compile(steps_per_execution=N)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = typed::count::<u32>, allow_negative_numbers = true, hide_default_value = true)]
    steps_per_execution: u32,
}

impl LifeArgs {
    /// What the flags mean; nothing where none was typed.
    pub(crate) fn life(&self) -> Option<Life> {
        let life = self.own.life();
        let alone = life.is_step_alone() && self.with.is_empty() && self.with_frozen.is_empty();
        (!alone).then_some(life)
    }
}

impl OwnLifeArgs {
    /// What the flags mean.
    pub(crate) fn life(&self) -> Life {
        Life {
            validation_batch: self.validation_batch,
            prefetch: self.prefetch_to_device,
            predict_batches: self.predict_batches,
            stale_models: self.stale_models,
            steps_per_execution: self.steps_per_execution,
        }
    }
}
