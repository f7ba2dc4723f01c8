//! The command line: what was typed becomes a binding and a plan, the crates do the work, and this alone does IO.
//!
//! Exit codes are the interface for scripts: 0 fine, 1 the negative finding, 2 bad input or usage. A reader that goes away
//! (`memfit … | head`) is no failure.

mod args;
mod commands;
mod failure;
mod load;
mod output;

use args::{Cli, Command};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too. If they cannot be printed there is nobody to tell.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    cli.color.apply();
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::error(&failure);
            ExitCode::from(2)
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Estimate(args) => commands::estimate(args),
        Command::Inspect(args) => commands::inspect(args),
        Command::Completions(args) => commands::completions(args),
    }
}
