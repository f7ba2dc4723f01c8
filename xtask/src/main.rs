//! Everything a person or CI runs: `cargo xtask test`, `cargo xtask web`, `cargo xtask accuracy`, …
//!
//! This program stays small so that it compiles in seconds; what needs memfit itself lives in `xtask/lab`, which is
//! built with optimisation and started from here.
#![allow(clippy::print_stdout)]

mod checks;
mod command;
mod lab;
mod lavapipe;
mod peers;
mod picture;
mod python;
mod setup;
mod snippets;
mod tidy;
mod tree;
mod web;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Everything a person or CI runs on memfit")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Sets up what is missing, runs every check and lists all that failed
    Test(checks::Options),
    /// Compares estimates with the frameworks' own numbers and writes docs/accuracy.md (`--help` for its options)
    #[command(disable_help_flag = true)]
    Accuracy(lab::Arguments),
    /// Runs other tools beside memfit on this machine and writes docs/performance.md; needs Python 3
    Peers(peers::Options),
    /// Runs the lines of code that advice gives with PyTorch, TensorFlow and Keras; needs Python 3
    Snippets(snippets::Options),
    /// Draws docs/estimate.svg, the picture in the README, from real output
    Picture,
    /// Builds and serves the browser calculator; `web build` writes web/dist
    Web(web::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Test(options) => checks::run(&options),
        Task::Peers(options) => peers::run(&options),
        Task::Snippets(options) => snippets::run(&options),
        Task::Picture => picture::run(),
        Task::Web(options) => web::run(&options),
        Task::Accuracy(arguments) => lab::run("accuracy", &arguments.all),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
