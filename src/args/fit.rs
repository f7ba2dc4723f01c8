//! What `memfit fit` takes.

use super::{FormatArgs, GpusArgs, ModelArgs, OwnLifeArgs, PlanArgs};
use clap::Args;

/// Searches the largest batch that fits on each GPU, with each precision and each optimizer; or the largest image or sequence at a
/// given batch.
///
/// Every answer is the largest size at which the replay of a real step goes through inside of what the card leaves. Exits with 1
/// where nothing fits.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  memfit fit resnet50.onnx --gpu rtx-3060,rtx-4090,a100-40gb
  memfit fit resnet50.onnx --gpu rtx-4090 --precision fp32,mixed-bf16 --optimizer sgd,momentum,adamw
  memfit fit resnet50.onnx --gpu all -b 64
  memfit fit unet.onnx --gpu 24GiB -b 4 --max image
  memfit fit llm.onnx --gpu h100 -b 1 --max seq --format json")]
pub(crate) struct FitArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    #[command(flatten)]
    pub(crate) gpus: GpusArgs,
    #[command(flatten)]
    pub(crate) life: OwnLifeArgs,
    /// What is made larger: `batch`, `image` (its side, in steps of 32), `seq`, or a size that the model leaves open
    #[arg(long, value_name = "WHAT", default_value = "batch", help_heading = "Search")]
    pub(crate) max: String,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}
