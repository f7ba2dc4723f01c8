//! What can be typed. What it means is in [`binding`] and [`plan`].

mod allocator;
mod binding;
mod calibrate;
mod estimate;
mod fit;
mod gpu;
mod life;
mod parallel;
mod plan;
mod report;
mod stack;
mod typed;
mod validate;
mod word;

use crate::output::Color;
pub(crate) use binding::{ModelArgs, SizeArgs};
pub(crate) use calibrate::CalibrateArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
pub(crate) use estimate::EstimateArgs;
pub(crate) use fit::FitArgs;
pub(crate) use gpu::{GpuArgs, GpusArgs, HostsArgs, StackArgs};
pub(crate) use life::{LifeArgs, OwnLifeArgs};
pub(crate) use plan::PlanArgs;
pub(crate) use report::{Document, ReportArgs};
use std::path::{Path, PathBuf};
pub(crate) use typed::memory;
pub(crate) use validate::{Backend, Runner, ValidateArgs};

/// Tells, before a GPU is rented, where the memory of one training step goes.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100, after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// When to colour text
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", help_heading = "Output")]
    pub(crate) color: Color,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  memfit estimate resnet50.onnx -b 32
  memfit estimate bert.onnx -b 16 --set seq=512 --precision mixed-bf16 --optimizer adamw
  memfit fit resnet50.onnx --gpu rtx-3060,rtx-4090 --precision fp32,mixed-fp16
  memfit advise resnet50.onnx --gpu rtx-3060 -b 192
  memfit inspect resnet50.onnx -b 32
  memfit gpus rtx
  curl -s https://example.com/model.onnx | memfit estimate - -b 8 --format json

Exit codes: 0 fine, 1 the negative finding, 2 bad input or usage.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The peak of one training step and where it comes from
    Estimate(Box<EstimateArgs>),
    /// Every tensor with its shape and dtype, operators and warnings; no training
    Inspect(InspectArgs),
    /// An estimate as a document: HTML, Markdown, SVG, CSV, a badge…
    Report(Box<ReportArgs>),
    /// What changed in memory from one model to another, and in which layers
    Diff(Box<DiffArgs>),
    /// The models of a memfit.toml against their budgets and what they took before
    Check(CheckArgs),
    /// What a log says of memory that ran out: why, with the lines that prove it, and what to do
    Explain(Box<ExplainArgs>),
    /// The largest batch per GPU, precision and optimizer
    Fit(Box<FitArgs>),
    /// Ranked changes that make a step fit, each with its saving and its code
    Advise(Box<AdviseArgs>),
    /// The cards that memfit knows, with what their memory really is
    Gpus(GpuListArgs),
    /// Real training steps on a device, measured beside predicted
    Validate(Box<ValidateArgs>),
    /// Records of this host's card as a device profile, for estimates of that card
    Calibrate(CalibrateArgs),
    /// A completion script for a shell
    Completions(CompletionsArgs),
}

/// Tells what changed in memory from one model to another under the same plan.
///
/// Layers are matched by name, then by structure, so that a renamed or moved layer is recognised.
#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// The model before
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// The model after
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    #[command(flatten)]
    pub(crate) models: SizeArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    #[command(flatten)]
    pub(crate) gpu: GpuArgs,
    /// How to write the result
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub(crate) format: DiffFormat,
    /// Show at most this many layers, those that changed most: a number or `all`
    #[arg(long, value_name = "N", default_value = "30", value_parser = typed::top, help_heading = "Output")]
    pub(crate) top: usize,
}

/// How a difference is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// For people
    #[default]
    Text,
    /// For a comment on a pull request
    #[value(alias = "md")]
    Markdown,
    /// For programs
    Json,
}

/// Checks models against their budgets, their card and what they took before. For pull requests and hooks.
///
/// Exits with 0 where all is well, 1 where a model is over, 2 where the file or a model cannot be read.
#[derive(Args, Debug)]
#[command(after_help = "\
Example of a memfit.toml:
  version = 1
  baseline = \"memfit.baseline.json\"

  [[model]]
  path = \"models/detector.onnx\"
  batch_size = 32
  precision = \"mixed-bf16\"
  gpu = \"rtx-4090\"
  budget = \"20GiB\"
  max_growth = \"1%\"")]
pub(crate) struct CheckArgs {
    /// The file that lists models and budgets
    #[arg(value_name = "FILE", default_value = "memfit.toml")]
    pub(crate) config: PathBuf,
    /// Write what the models take now as the baseline
    #[arg(long)]
    pub(crate) update: bool,
    /// How to write the result
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub(crate) format: CheckFormat,
}

/// How a check is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    /// For people
    #[default]
    Text,
    /// For a comment on a pull request
    #[value(alias = "md")]
    Markdown,
    /// For programs
    Json,
    /// For a code host's alerts (SARIF 2.1.0)
    Sarif,
    /// For annotations in a GitHub workflow
    Github,
}

/// Reads the log of a run that died and says what happened to its memory.
///
/// The log may be of any size; `-` is standard input. Messages of TensorFlow, Keras, PyTorch, JAX, the CUDA driver and libraries, and of
/// the host itself are known. With the model it also says which layer asked and which batch would have fitted. Exits with 1 where
/// memory ran out, with 0 where it did not or the run went on.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  memfit explain train.log
  memfit explain train.log resnet50.onnx --optimizer sgd
  kubectl logs trainer-0 | memfit explain - --format json | jq .findings[0].cause")]
pub(crate) struct ExplainArgs {
    /// The log, or - for standard input
    #[arg(value_name = "LOG")]
    pub(crate) log: PathBuf,
    /// The model that ran
    #[arg(value_name = "MODEL")]
    pub(crate) model: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) sizes: SizeArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Shows every tensor with its shape and dtype, how often each operator occurs, and what is odd about the file.
///
/// Sizes that the model leaves open stand by their names until they are given with -b, --set, --input or --value.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  memfit inspect resnet50.onnx
  memfit inspect bert.onnx -b 2 --set seq=128 --format json
  memfit inspect detector.onnx --value max_boxes=100")]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Looks for changes that make a step fit on a card: what each saves alone and what it costs, the smallest set that fits, and the
/// lines of code for it.
///
/// What a change saves is no rule of thumb: the changed step is run and replayed. Exits with 1 where the step does not fit as it is.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  memfit advise resnet50.onnx --gpu rtx-3060 -b 192
  memfit advise bert.onnx --gpu t4 -b 64 --optimizer adamw --code
  memfit advise resnet50.onnx --gpu t4 -b 32 --validation-batch 512 --stack 'torch 2.1'
  memfit advise unet.onnx --gpu 8GiB -b 8 --format json")]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    #[command(flatten)]
    pub(crate) gpu: GpuArgs,
    #[command(flatten)]
    pub(crate) stack: StackArgs,
    #[command(flatten)]
    pub(crate) life: OwnLifeArgs,
    /// Show the code of every change, not only of those that are needed
    #[arg(long, help_heading = "Output")]
    pub(crate) code: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Lists the cards that --gpu can name: the size on the box, what nvidia-smi shows, and what a framework can see of it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  memfit gpus
  memfit gpus rtx 40
  memfit gpus a100 --format json")]
pub(crate) struct GpuListArgs {
    /// Words of a name
    #[arg(value_name = "QUERY")]
    pub(crate) query: Vec<String>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

#[derive(Args, Debug)]
pub(crate) struct FormatArgs {
    /// How to write the result
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub(crate) format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Writes a completion script to standard output.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  memfit completions bash > ~/.local/share/bash-completion/completions/memfit
  memfit completions zsh > ~/.zfunc/_memfit
  memfit completions fish > ~/.config/fish/completions/memfit.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// The file that was named to write to; `-` is standard output, as nothing is.
pub(crate) fn file(output: Option<&PathBuf>) -> Option<&Path> {
    output.map(PathBuf::as_path).filter(|path| path.as_os_str() != "-")
}

/// What `memfit estimate` would understand of these words; the first is the command.
pub(crate) fn estimate(words: impl Iterator<Item = String>) -> Result<EstimateArgs, clap::Error> {
    match command(words)? {
        Command::Estimate(args) => Ok(*args),
        _ => Err(clap::Error::new(clap::error::ErrorKind::InvalidSubcommand)),
    }
}

/// What `memfit validate` would understand of these words; the first is the command.
pub(crate) fn validate(words: impl Iterator<Item = String>) -> Result<ValidateArgs, clap::Error> {
    match command(words)? {
        Command::Validate(args) => Ok(*args),
        _ => Err(clap::Error::new(clap::error::ErrorKind::InvalidSubcommand)),
    }
}

fn command(words: impl Iterator<Item = String>) -> Result<Command, clap::Error> {
    Ok(Cli::try_parse_from(std::iter::once("memfit".to_owned()).chain(words))?.command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_says_what_it_does() {
        for command in Cli::command().get_subcommands() {
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
            }
        }
    }
}
