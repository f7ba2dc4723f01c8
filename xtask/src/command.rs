//! Running other programs from the repository's root, with their command line shown.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The cargo that started this program.
pub(crate) fn cargo() -> Command {
    let mut command = program(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    // What the outer cargo set for this package must not leak into what the inner one builds.
    command.env_remove("CARGO_MANIFEST_DIR");
    command
}

/// Any program, started in the root, with nothing on its standard input.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_stem().unwrap_or_default();
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Runs it with its output passed on; whether it succeeded.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| format!("`{}` could not be started", shown(command)))?;
    Ok(status.success())
}

/// Runs it with its output passed on, and hands each line of it to `see` as well; whether it succeeded.
pub(crate) fn watched(command: &mut Command, mut see: impl FnMut(&str)) -> Result<bool> {
    command.stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("`{}` could not be started", shown(command)))?;
    if let Some(output) = child.stdout.take() {
        let mut stdout = std::io::stdout();
        for line in BufReader::new(output).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            see(&line);
            writeln!(stdout, "{line}")?;
        }
    }
    Ok(child.wait()?.success())
}

/// What it prints on standard output.
///
/// # Errors
/// It could not be started, or failed; then with what it printed on standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("`{}` could not be started", shown(command)))?;
    if !output.status.success() {
        bail!("`{}` failed:\n{}", shown(command), String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Asks Debian's and Ubuntu's installer, which only an administrator may. Whether it worked shows in what is found then.
pub(crate) fn apt(packages: &[&str]) {
    println!("installing {}", packages.join(" and "));
    let mut update = program("apt-get");
    let _ = succeeds(update.args(["update", "--quiet"]));
    let mut install = program("apt-get");
    let _ = succeeds(install.args(["install", "--quiet", "--yes", "--no-install-recommends"]).args(packages));
}
