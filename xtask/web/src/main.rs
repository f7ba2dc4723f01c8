//! The tasks of the browser calculator that need more than a stock Rust: bindings for a built module, the site's folder with its
//! size checked, the npm package, a static server.
//!
//! `cargo xtask web` starts this with what it has built.
#![allow(clippy::print_stdout)]

mod bindings;
mod budget;
mod package;
mod serve;
mod site;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Makes web/dist from a built module
    Site {
        /// The module, as cargo built it
        module: PathBuf,
        /// The larger module
        full: PathBuf,
        /// The core alone, for pages that embed an estimate
        core: PathBuf,
        /// Where to
        out: PathBuf,
        /// Does not check the size
        #[arg(long)]
        unchecked: bool,
    },
    /// Makes the npm package from a built module
    Package {
        /// The module, as cargo built it
        module: PathBuf,
        /// Where to
        out: PathBuf,
    },
    /// Serves a folder on this machine
    Serve {
        /// The folder
        folder: PathBuf,
        /// The port; 0 takes a free one
        #[arg(long, default_value_t = 8080)]
        port: u16,
        /// The path under which it is served
        #[arg(long, default_value = "/")]
        base: String,
    },
}

fn main() -> Result<()> {
    match Cli::parse().task {
        Task::Site { module, full, core, out, unchecked } => {
            site::make([&module, &full, &core], &out, !unchecked)
        }
        Task::Package { module, out } => package::make(&module, &out),
        Task::Serve { folder, port, base } => serve::run(&folder, port, &base),
    }
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}
