//! Runs the lines of code that advice gives: with a Python that has the frameworks, or in an environment of its own.

use crate::{lab, python};
use anyhow::Result;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A Python that has PyTorch or TensorFlow, instead of a new environment in target/snippets
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

/// Runs all; whether all succeeded.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let python = match &options.python {
        Some(python) => python.clone(),
        None => python::environment("snippets", "torch, tensorflow, keras")?,
    };
    lab::run("snippets", &["--python".into(), python.to_string_lossy().into_owned()])
}
