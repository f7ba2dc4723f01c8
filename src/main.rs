//! The command line: what was typed becomes a binding and a plan, the crates do the work, and this alone does IO.
//!
//! Exit codes are the interface for scripts: 0 fine, 1 the negative finding, 2 bad input or usage. A reader that goes away
//! (`memfit … | head`) is no failure.

mod args;
mod commands;
mod failure;
mod host;
mod load;
mod output;
mod progress;
mod spool;
mod step;
mod table;
mod text;
mod threads;

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
        Ok(Finding::Fine) => ExitCode::SUCCESS,
        Ok(Finding::Negative) => ExitCode::from(1),
        Err(failure) => {
            output::error(&failure);
            ExitCode::from(2)
        }
    }
}

/// What a command that did its work has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// Nothing wrong.
    Fine,
    /// It does not fit, is over budget, was measured outside of the range.
    Negative,
}

impl Finding {
    fn fine_if(fine: bool) -> Finding {
        if fine { Finding::Fine } else { Finding::Negative }
    }
}

fn run(command: &Command) -> Result<Finding, Failure> {
    let done = |result: Result<(), Failure>| result.map(|()| Finding::Fine);
    match command {
        Command::Estimate(args) => commands::estimate(args),
        Command::Advise(args) => commands::advise(args),
        Command::Fit(args) => commands::fit(args),
        Command::Inspect(args) => done(commands::inspect(args)),
        Command::Report(args) => commands::report(args),
        Command::Diff(args) => done(commands::diff(args)),
        Command::Check(args) => commands::check(args),
        Command::Explain(args) => commands::explain(args),
        Command::Gpus(args) => done(commands::gpus(args)),
        Command::Calibrate(args) => done(commands::calibrate(args)),
        Command::Validate(args) => commands::validate(args),
        Command::Completions(args) => done(commands::completions(args)),
    }
}
