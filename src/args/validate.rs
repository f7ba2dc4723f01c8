//! What `memfit validate` can be told.

use super::{FormatArgs, ModelArgs, PlanArgs};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Runs real training steps with random weights and inputs, and shows measured beside predicted memory.
///
/// The steps are run by Burn, and compared with what memfit predicts for Burn on that device. Exit code 1 means that the peak differs by
/// more than --tolerance, or that the device had not enough memory.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  memfit validate lenet.onnx -b 32 --backend cpu
  memfit validate unet.onnx -b 8 --backend wgpu --optimizer adamw --steps 5
  memfit validate resnet50.onnx -b 16 --backend cuda --search --record resnet50.json")]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// The device: the processor, wgpu (Vulkan, Metal, DirectX 12) or an NVIDIA card
    #[arg(
        long,
        value_enum,
        ignore_case = true,
        default_value_t,
        value_name = "NAME",
        help_heading = "Steps"
    )]
    pub(crate) backend: Backend,
    /// How many steps; the last one is compared
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..), value_name = "N", help_heading = "Steps")]
    pub(crate) steps: u32,
    /// Look for the largest batch that runs, each try in a process of its own
    #[arg(long, help_heading = "Steps")]
    pub(crate) search: bool,
    /// End a search after so many seconds
    #[arg(long, default_value_t = 600, value_name = "SECONDS", help_heading = "Steps")]
    pub(crate) search_seconds: u64,
    /// By how many per cent of the measured peak the prediction may be off
    #[arg(long, default_value_t = 3.0, value_name = "PERCENT", help_heading = "Steps")]
    pub(crate) tolerance: f64,
    /// Write everything to a JSON file, also when ended early
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) record: Option<PathBuf>,
    /// The batch of one try of a search
    #[arg(long, hide = true)]
    pub(crate) try_batch: Option<u64>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// The processor
    #[default]
    Cpu,
    /// Vulkan, Metal or DirectX 12
    Wgpu,
    /// An NVIDIA card
    Cuda,
}
