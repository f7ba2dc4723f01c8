//! Starts the part of the tasks that needs memfit itself (`xtask/lab`), built with optimisation.

use crate::command;
use anyhow::Result;

/// What is handed to the lab as it was typed.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub(crate) all: Vec<String>,
}

/// Runs one of the lab's tasks; whether it succeeded.
pub(crate) fn run(task: &str, arguments: &[String]) -> Result<bool> {
    let mut cargo = command::cargo();
    cargo.args(["run", "--quiet", "--profile", "quick", "--package", "lab", "--", task]).args(arguments);
    command::succeeds(&mut cargo)
}
