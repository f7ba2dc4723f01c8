//! What a machine with a stock Rust lacks: clippy, rustfmt and the standard library for wasm32.

use crate::command::{cargo, output, program, root, succeeds};
use anyhow::{Result, bail};
use std::path::PathBuf;

/// The target that the browser runs.
pub(crate) const WASM: &str = "wasm32-unknown-unknown";

/// Adds what is missing. A tool that cannot be had is an error that says how to get it.
pub(crate) fn run() -> Result<()> {
    for (tool, component) in [("clippy", "clippy"), ("fmt", "rustfmt")] {
        if output(cargo().args([tool, "--version"])).is_err() {
            println!("adding {component}");
            let added = succeeds(program("rustup").args(["component", "add", component])).unwrap_or(false);
            if !added || output(cargo().args([tool, "--version"])).is_err() {
                bail!("`cargo {tool}` is missing; install {component} for this toolchain");
            }
        }
    }
    wasm()
}

/// Adds the standard library for wasm32.
pub(crate) fn wasm() -> Result<()> {
    if has_wasm()? {
        return Ok(());
    }
    println!("adding the target {WASM}");
    let added = succeeds(program("rustup").args(["target", "add", WASM])).unwrap_or(false);
    if !(added && has_wasm()?) {
        println!("rustup could not add it; building its standard library from source");
        succeeds(program("bash").arg(root().join("xtask/wasm-std.sh")))?;
    }
    if !has_wasm()? {
        bail!("the target {WASM} is missing; with rustup it is `rustup target add {WASM}`");
    }
    Ok(())
}

/// Whether the toolchain has the target's standard library, whoever put it there.
fn has_wasm() -> Result<bool> {
    let sysroot = output(program("rustc").args(["--print", "sysroot"]))?;
    let libraries: PathBuf = [sysroot.trim(), "lib", "rustlib", WASM, "lib"].iter().collect();
    let Ok(entries) = std::fs::read_dir(libraries) else { return Ok(false) };
    Ok(entries.flatten().any(|e| e.file_name().to_string_lossy().starts_with("libstd-")))
}
