//! The tasks that need memfit itself. `cargo xtask` builds this with optimisation and starts it.
#![allow(clippy::print_stdout)]

mod accuracy;
mod measure;
mod parity;
mod snippets;

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The tasks that need memfit itself")]
enum Task {
    /// Compares estimates with the frameworks' own numbers and writes docs/accuracy.md
    Accuracy(accuracy::Options),
    /// Checks that wasm gives the same bytes as a native build
    Parity,
    /// Runs the lines of code that advice gives with the installed frameworks
    Snippets(snippets::Options),
    /// Times the work alone, without the start of a program
    Time(measure::Timed),
    /// Writes a file with 2 GiB of weights inside, all of them holes, or a transformer
    Make {
        /// Where
        path: std::path::PathBuf,
        /// How many nodes the transformer has
        #[arg(long)]
        nodes: Option<usize>,
    },
}

fn main() -> ExitCode {
    let result = match Task::parse() {
        Task::Accuracy(options) => accuracy::run(&options),
        Task::Parity => parity::run(),
        Task::Snippets(options) => snippets::run(&options),
        Task::Time(timed) => measure::time(&timed),
        Task::Make { path, nodes } => measure::make(&path, nodes),
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

/// The repository's root.
fn root() -> std::path::PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}
