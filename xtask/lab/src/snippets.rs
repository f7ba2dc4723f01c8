//! Runs the lines of code that advice gives with the frameworks that a Python has, written for their releases.

use anyhow::{Context, Result, bail};
use memfit_engine::advise::{Api, Release, examples};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A Python that has PyTorch or TensorFlow
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,
}

/// Runs all; whether all succeeded.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let script = crate::root().join("xtask/snippets/run.py");
    let call = |task: &str| {
        let mut command = Command::new(&options.python);
        command.arg(&script).arg(task);
        command
    };
    let told = call("versions").output().with_context(|| options.python.display().to_string())?;
    let releases: BTreeMap<String, Release> = serde_json::from_slice(&told.stdout)
        .with_context(|| String::from_utf8_lossy(&told.stderr).into_owned())?;
    if releases.is_empty() {
        bail!("{} has neither torch nor tensorflow", options.python.display());
    }
    let mut all_ran = true;
    let all =
        [("torch", Api::Pytorch), ("tensorflow", Api::Tensorflow), ("keras on torch", Api::KerasOnPytorch)];
    for (name, api) in all {
        let Some(release) = releases.get(name) else {
            println!("skipped {name}: it is not installed");
            continue;
        };
        println!("{name} {}.{}", release.0, release.1);
        let mut child = call(name).stdin(Stdio::piped()).spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(serde_json::to_string(&examples(api, Some(*release)))?.as_bytes())?;
        }
        all_ran &= child.wait()?.success();
    }
    Ok(all_ran)
}
