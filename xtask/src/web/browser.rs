//! What the tests in a browser need: Node, a Chromium, and a few packages of npm. Each is looked for first and installed where it
//! is missing and can be had; a machine where it cannot is told so.

use crate::command::{apt, program, root, succeeds};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// What drives the browser, what looks for barriers, what validates HTML, and what the npm package has to get along with: a bundler
/// and a compiler of types.
const PACKAGES: [&str; 5] =
    ["playwright-core@1.65.1", "axe-core@4.14.1", "html-validate@10.17.0", "vite@8.4.0", "typescript@5.9.3"];

/// Names under which a Chromium is found.
const NAMES: [&str; 5] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];

/// The tools that were found or installed.
pub(crate) struct Tools {
    pub(crate) chromium: PathBuf,
    /// The folder `node_modules`.
    pub(crate) modules: PathBuf,
}

/// Finds or installs them.
///
/// # Errors
/// What is missing and how to get it.
pub(crate) fn find() -> Result<Tools> {
    if on_path("node").is_none() || on_path("npm").is_none() {
        apt(&["nodejs", "npm"]);
    }
    on_path("node").context("there is no Node; install Node 20 or newer")?;
    let modules = modules()?;
    let chromium = match chromium() {
        Some(found) => found,
        None => {
            apt(&["chromium", "fonts-dejavu-core"]);
            chromium()
                .or_else(downloaded)
                .context("there is no Chromium; install it or name one in MEMFIT_CHROMIUM")?
        }
    };
    Ok(Tools { chromium, modules })
}

/// The test files.
pub(crate) fn tests() -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(root().join("web/tests"))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    files.retain(|f| f.to_string_lossy().ends_with(".test.js"));
    files.sort();
    Ok(files)
}

fn chromium() -> Option<PathBuf> {
    let named = std::env::var_os("MEMFIT_CHROMIUM").map(PathBuf::from).filter(|p| p.exists());
    named.or_else(|| NAMES.iter().find_map(|name| on_path(name)))
}

/// A Chromium for tests alone, from where its makers publish it.
fn downloaded() -> Option<PathBuf> {
    let folder = root().join("target/web/browser");
    let mut npx = program("npx");
    npx.args(["--yes", "@puppeteer/browsers", "install", "chrome-headless-shell@stable", "--path"])
        .arg(&folder);
    succeeds(&mut npx).ok().filter(|done| *done)?;
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).ok()?.flatten().map(|e| e.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.file_stem().is_some_and(|n| n == "chrome-headless-shell") {
                return Some(path);
            }
        }
    }
    None
}

/// The folder with the packages, installed if it is not there.
fn modules() -> Result<PathBuf> {
    let folder = root().join("target/web");
    let modules = folder.join("node_modules");
    let wanted = PACKAGES.join("\n");
    let note = folder.join("installed");
    if std::fs::read_to_string(&note).is_ok_and(|have| have == wanted) {
        return Ok(modules);
    }
    std::fs::create_dir_all(&folder)?;
    let mut npm = program("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--prefix"])
        .arg(&folder);
    if !succeeds(npm.args(PACKAGES))? {
        bail!("npm could not install {}", PACKAGES.join(", "));
    }
    std::fs::write(note, wanted)?;
    Ok(modules)
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
