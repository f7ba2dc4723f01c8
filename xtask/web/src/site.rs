//! The folder that is the site: bindings, the page's own files, the examples, and a service worker that knows them all.

use crate::{bindings, budget, root};
use anyhow::{Context, Result, ensure};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;

/// The page's own files, all of which a first visit needs.
const FILES: [&str; 8] = [
    "index.html",
    "style.css",
    "theme.js",
    "main.js",
    "worker.js",
    "sw.js",
    "icon.svg",
    "manifest.webmanifest",
];

/// What other pages take from here to embed an estimate, with the core `memfit.js`. The page itself needs none of it.
const EMBED: [&str; 4] = ["embed.js", "embed-worker.js", "embed.html", "embed-page.js"];

/// Makes it from the page's module, the larger one and the core alone.
pub(crate) fn make([module, full, core]: [&Path; 3], out: &Path, check: bool) -> Result<()> {
    let web = root().join("web");
    if out.exists() {
        std::fs::remove_dir_all(out).with_context(|| out.display().to_string())?;
    }
    std::fs::create_dir_all(out.join("examples"))?;
    bindings::generate(module, out, "memfit_web", false)?;
    bindings::generate(full, out, "memfit_full", false)?;
    bindings::generate(core, out, "memfit", false)?;
    std::fs::copy(web.join("worker-full.js"), out.join("worker-full.js"))?;
    for file in FILES.iter().chain(&EMBED) {
        std::fs::copy(web.join(file), out.join(file)).with_context(|| file.to_owned())?;
    }
    let mut all: Vec<String> = FILES.iter().filter(|f| **f != "sw.js").map(|f| (*f).to_owned()).collect();
    all.extend(["memfit_web.js".to_owned(), "memfit_web_bg.wasm".to_owned()]);
    let first_load: Vec<String> = all.iter().cloned().chain(["sw.js".to_owned()]).collect();
    for line in std::fs::read_to_string(web.join("examples.txt"))?.lines() {
        let file = line.split(' ').next().unwrap_or_default();
        let from = root().join("models").join(file);
        std::fs::copy(&from, out.join("examples").join(file)).with_context(|| from.display().to_string())?;
        all.push(format!("examples/{file}"));
    }
    let later =
        EMBED.map(str::to_owned).into_iter().chain(["memfit.js".to_owned(), "memfit_bg.wasm".to_owned()]);
    service_worker(out, &all, &later.collect::<Vec<_>>())?;
    if check {
        budget::check(out, &first_load)?;
    }
    println!("wrote {}", out.display());
    Ok(())
}

/// Writes the list of files into the service worker, and a version that changes with any of them or of those it may keep later.
fn service_worker(out: &Path, files: &[String], later: &[String]) -> Result<()> {
    let path = out.join("sw.js");
    let text = std::fs::read_to_string(&path)?;
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    for file in files.iter().chain(later) {
        std::fs::read(out.join(file))?.hash(&mut hasher);
    }
    let list: Vec<String> = files.iter().map(|f| format!("\"{f}\"")).collect();
    let written = text
        .replace("\"development\"", &format!("\"memfit-{:016x}\"", hasher.finish()))
        .replace("FILES = []", &format!("FILES = [\"./\", {}]", list.join(", ")));
    ensure!(written != text, "sw.js has no place for its version and files");
    std::fs::write(path, written)?;
    Ok(())
}
