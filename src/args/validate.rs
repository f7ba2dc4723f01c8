//! What `memfit validate` can be told.

use super::{FormatArgs, ModelArgs, PlanArgs, typed};
use clap::{Args, ValueEnum};
use memfit_graph::Bytes;
use std::path::PathBuf;

/// Runs real training steps with random weights and inputs, and shows measured beside predicted memory.
///
/// The steps are run by Burn inside of memfit, or by the host's own PyTorch or Keras (--runner), and compared with what memfit predicts for
/// that framework. Exit code 1 means that the peak differs by more than --tolerance, or that the device had not enough memory; a missing
/// interpreter, package or device is exit code 2, and so is half precision where a backend of Burn's has none: the processor's has neither
/// dtype, wgpu float16 where the driver has it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  memfit validate lenet.onnx -b 32 --backend cpu
  memfit validate resnet50.onnx -b 32 --runner torch --precision mixed-bf16
  memfit validate model.keras -b 32 --runner keras --python .venv/bin/python
  memfit validate unet.onnx -b 8 --backend wgpu --optimizer adamw --steps 5
  memfit validate unet.onnx -b 8 --backend cuda --precision mixed-bf16
  memfit validate resnet50.onnx --backend cuda --search --record search.json
  memfit validate --suite models/suite.toml --backend wgpu --record records.jsonl")]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Who runs the steps
    #[arg(
        long,
        value_enum,
        ignore_case = true,
        default_value_t,
        value_name = "NAME",
        help_heading = "Steps"
    )]
    pub(crate) runner: Runner,
    /// The device; without it, the processor for Burn, and CUDA for a framework that finds it
    #[arg(long, value_enum, ignore_case = true, value_name = "NAME", help_heading = "Steps")]
    pub(crate) backend: Option<Backend>,
    /// The interpreter of --runner torch and keras; without it, python3 of PATH
    #[arg(long, value_name = "PATH", help_heading = "Steps")]
    pub(crate) python: Option<PathBuf>,
    /// Print the program that --runner torch or keras would run, and run nothing
    #[arg(long, help_heading = "Steps", conflicts_with_all = ["search", "suite"])]
    pub(crate) print_script: bool,
    /// How many steps; the last one is compared
    #[arg(long, default_value_t = 3, value_parser = typed::count::<u32>, allow_negative_numbers = true, value_name = "N", help_heading = "Steps")]
    pub(crate) steps: u32,
    /// Run as if the device had no more memory than this: 2GiB
    #[arg(long, value_name = "SIZE", value_parser = typed::memory, help_heading = "Steps")]
    pub(crate) limit: Option<Bytes>,
    /// Look for the largest batch that runs, each try in a process of its own; goes on where --record was left
    #[arg(long, help_heading = "Steps", conflicts_with = "suite")]
    pub(crate) search: bool,
    /// End a search after so many seconds
    #[arg(long, default_value_t = 600, value_name = "SECONDS", help_heading = "Steps")]
    pub(crate) search_seconds: u64,
    /// MODEL is a list of runs (TOML): each in a process of its own, those that --record has already left out
    #[arg(long, help_heading = "Steps", requires = "record")]
    pub(crate) suite: bool,
    /// By how many per cent of the measured peak the prediction may be off
    #[arg(long, default_value_t = 3.0, value_name = "PERCENT", help_heading = "Steps")]
    pub(crate) tolerance: f64,
    /// By how many per cent what Burn's pools hold may be off
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT", help_heading = "Steps")]
    pub(crate) reserved_tolerance: f64,
    /// Write everything to a JSON file, also when ended early; a suite adds a line for each run
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) record: Option<PathBuf>,
    /// Say who would run and where, as a record does
    #[arg(long, hide = true)]
    pub(crate) describe: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Who runs the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Runner {
    /// Burn, inside of this program
    #[default]
    Burn,
    /// The host's PyTorch: a module is written from the graph
    #[value(alias = "pytorch")]
    Torch,
    /// The host's Keras with TensorFlow: the file as it is
    #[value(aliases = ["tensorflow", "tf"])]
    Keras,
}

impl Runner {
    /// As it is typed and recorded.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Runner::Burn => "burn",
            Runner::Torch => "torch",
            Runner::Keras => "keras",
        }
    }
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

impl Backend {
    /// As it is typed and recorded.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Backend::Cpu => "cpu",
            Backend::Wgpu => "wgpu",
            Backend::Cuda => "cuda",
        }
    }
}
