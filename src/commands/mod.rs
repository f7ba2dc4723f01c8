//! One file per command.

mod advise;
mod calibrate;
mod check;
mod diff;
mod estimate;
mod explain;
mod fit;
mod gpus;
mod inspect;
mod report;
mod validate;

use crate::args::{Cli, CompletionsArgs};
use crate::failure::Failure;
use crate::output;
pub(crate) use advise::advise;
pub(crate) use calibrate::calibrate;
pub(crate) use check::check;
use clap::CommandFactory;
pub(crate) use diff::diff;
pub(crate) use estimate::estimate;
pub(crate) use explain::explain;
pub(crate) use fit::fit;
pub(crate) use gpus::gpus;
pub(crate) use inspect::inspect;
pub(crate) use report::report;
pub(crate) use validate::validate;

/// Writes the completion script of a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "memfit", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
