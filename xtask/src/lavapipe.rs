//! Real steps on Mesa's lavapipe, a Vulkan device that is the processor: what Burn's pools hold there is compared with what is predicted.

use crate::checks::DEVICES;
use crate::command::{apt, cargo, output, program, root, shown, succeeds};
use anyhow::Result;
use std::path::PathBuf;

/// Where a distribution tells the loader of it.
const DRIVERS: &str = "/usr/share/vulkan/icd.d";

/// The lists of runs, and the files of their records. Mesa computes float16 since version 22.3, where the processor converts it (F16C).
const SUITES: [(&str, &str); 3] = [
    ("models/suite_small.toml", "lavapipe"),
    ("models/balanced.toml", "lavapipe_balanced"),
    ("models/suite_half.toml", "lavapipe_half"),
];

/// Runs the suites; nothing to check where there is no such device and none can be installed.
pub(crate) fn passes() -> Result<Option<bool>> {
    let Some(driver) = driver().or_else(install) else {
        println!("skipped: no lavapipe (Debian: apt-get install mesa-vulkan-drivers)");
        return Ok(None);
    };
    // The tests' own binary, built as the checks before have it, and those that compare what is computed.
    let mut build = cargo();
    build
        .args(["test", "--quiet"])
        .args(DEVICES)
        .args(["--test", "cli", "--test", "half", "--test", "values", "--no-run"]);
    println!("{}", shown(&build));
    if !succeeds(&mut build)? {
        return Ok(Some(false));
    }
    let mut passes = true;
    for (test, only) in [("half", ""), ("values", "wgpu")] {
        let mut run = cargo();
        run.args(["test", "--quiet"]).args(DEVICES).args(["--test", test, only]);
        println!("{}", shown(&run));
        // Many kernels that run once: to optimise them takes longer.
        passes &= succeeds(run.env("VK_ICD_FILENAMES", &driver).env("GALLIVM_PERF", "nopt"))?;
    }
    let converts = std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" f16c"));
    let suites = if converts { &SUITES[..] } else { &SUITES[..2] };
    for (suite, name) in suites {
        let records = root().join(format!("target/{name}.jsonl"));
        let _ = std::fs::remove_file(&records);
        let mut run = program(root().join("target/debug/memfit"));
        run.args(["validate", "--suite"])
            .arg(root().join(suite))
            .args(["--backend", "wgpu", "--record"])
            .arg(records)
            .env("VK_ICD_FILENAMES", &driver);
        println!("{}", shown(&run));
        passes &= succeeds(&mut run)?;
    }
    Ok(Some(passes))
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
