//! A Python with what a task needs, made once under `target`.

use crate::command::{output, program, root, succeeds};
use anyhow::{Result, bail};
use std::path::PathBuf;

/// The environment `target/TASK` with what `xtask/TASK/requirements.txt` lists; `modules` are what it must be able to import.
pub(crate) fn environment(task: &str, modules: &str) -> Result<PathBuf> {
    let folder = root().join("target").join(task);
    let python = folder.join("bin/python");
    let has_all = || output(program(&python).args(["-c", &format!("import {modules}")])).is_ok();
    if has_all() {
        return Ok(python);
    }
    println!("making a Python environment in target/{task}; {modules} may be a download of several GB");
    let made = succeeds(program("python3").args(["-m", "venv"]).arg(&folder)).unwrap_or(false);
    if !made {
        bail!("Python 3 with its venv module is needed; or name a Python that has {modules} with --python");
    }
    let requirements = root().join("xtask").join(task).join("requirements.txt");
    succeeds(program(&python).args(["-m", "pip", "install", "--quiet", "-r"]).arg(requirements))?;
    if !has_all() {
        bail!("{modules} could not be installed into {}", folder.display());
    }
    Ok(python)
}
