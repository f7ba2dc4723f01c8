//! What `memfit calibrate` takes.

use clap::Args;
use std::path::PathBuf;

/// Turns what `memfit validate` recorded on a host with a card into a device profile: the context, the libraries' scratch memory and the
/// allocator's slack as they are there. `--device-profile FILE` uses it in the place of published figures.
///
/// The records must be of one card and one framework, and say what the driver showed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  memfit validate --suite models/suite.toml --runner torch --record records.jsonl
  memfit calibrate records.jsonl -o a100.json
  memfit estimate resnet50.onnx -b 64 --device-profile a100.json")]
pub(crate) struct CalibrateArgs {
    /// Files of records: one JSON document each, or one a line
    #[arg(value_name = "RECORDS", required = true)]
    pub(crate) records: Vec<PathBuf>,
    /// Where to write; without it, or with -, standard output
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
}
