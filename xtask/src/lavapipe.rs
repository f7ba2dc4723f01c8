//! Real steps on Mesa's lavapipe, a Vulkan device that is the processor: what Burn's pools hold there is compared with what is predicted.

use crate::checks::DEVICES;
use crate::command::{apt, cargo, output, program, root, shown, succeeds};
use anyhow::Result;
use std::path::PathBuf;

/// Where a distribution tells the loader of it.
const DRIVERS: &str = "/usr/share/vulkan/icd.d";

/// Runs the suite; nothing to check where there is no such device and none can be installed.
pub(crate) fn passes() -> Result<Option<bool>> {
    let Some(driver) = driver().or_else(install) else {
        println!("skipped: no lavapipe (Debian: apt-get install mesa-vulkan-drivers)");
        return Ok(None);
    };
    // The tests' own binary, built as the checks before have it.
    let mut build = cargo();
    build.args(["test", "--quiet"]).args(DEVICES).args(["--test", "cli", "--no-run"]);
    println!("{}", shown(&build));
    if !succeeds(&mut build)? {
        return Ok(Some(false));
    }
    let records = root().join("target/lavapipe.jsonl");
    let _ = std::fs::remove_file(&records);
    let mut run = program(root().join("target/debug/memfit"));
    run.args(["validate", "--suite"])
        .arg(root().join("models/suite.toml"))
        .args(["--backend", "wgpu", "--record"])
        .arg(records)
        .env("VK_ICD_FILENAMES", driver);
    println!("{}", shown(&run));
    succeeds(&mut run).map(Some)
}

fn driver() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(DRIVERS).ok()?.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("lvp")));
    found.sort();
    found.pop()
}

/// As continuous integration can: as root, with Debian's tools.
fn install() -> Option<PathBuf> {
    let root = output(program("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !root || !std::path::Path::new("/usr/bin/apt-get").exists() {
        return None;
    }
    apt(&["mesa-vulkan-drivers", "libvulkan1"]);
    driver()
}
