//! The folder that is the site: bindings, the page's own files, the examples, and a service worker that knows them all.

use crate::{bindings, budget, root};
use anyhow::{Context, Result, ensure};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;

/// The page's own files, all of which a first visit needs.
const FILES: [&str; 11] = [
    "index.html",
    "style.css",
    "theme.js",
    "main.js",
    "compiled.js",
    "worker.js",
    "pack.js",
    "png.js",
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
    bare(&out.join("style.css"), &[])?;
    bare(&out.join("memfit_web.js"), &["//", "/*", "*"])?;
    let mut all: Vec<String> = FILES.iter().filter(|f| **f != "sw.js").map(|f| (*f).to_owned()).collect();
    all.extend(["memfit_web.js".to_owned(), "memfit_web_bg.wasm".to_owned()]);
    let first_load: Vec<String> = all.iter().cloned().chain(["sw.js".to_owned()]).collect();
    let mut later = vec!["worker-full.js".into(), "memfit_full.js".into(), "memfit_full_bg.wasm".into()];
    for line in std::fs::read_to_string(web.join("examples.txt"))?.lines() {
        let file = line.split(' ').next().unwrap_or_default();
        let from = root().join("models").join(file);
        std::fs::copy(&from, out.join("examples").join(file)).with_context(|| from.display().to_string())?;
        later.push(format!("examples/{file}"));
    }
    let embedded =
        EMBED.map(str::to_owned).into_iter().chain(["memfit.js".to_owned(), "memfit_bg.wasm".to_owned()]);
    service_worker(out, &all, &later, &embedded.collect::<Vec<_>>())?;
    if check {
        budget::check(out, &first_load)?;
    }
    println!("wrote {}", out.display());
    Ok(())
}

/// Takes out of a text what is there for its readers alone: what indents a line, and the lines that begin as `comments` do. Neither file has
/// a string of several lines.
fn bare(path: &Path, comments: &[&str]) -> Result<()> {
    let text = std::fs::read_to_string(path)?;
    let is_code = |line: &&str| !line.is_empty() && !comments.iter().any(|c| line.starts_with(c));
    let lines: Vec<&str> = text.lines().map(str::trim).filter(is_code).collect();
    std::fs::write(path, lines.join("\n"))?;
    Ok(())
}

/// Writes the lists of files into the service worker, and a version that changes with any of them or of those it may keep once asked for.
fn service_worker(out: &Path, files: &[String], later: &[String], others: &[String]) -> Result<()> {
    let path = out.join("sw.js");
    let text = std::fs::read_to_string(&path)?;
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    for file in files.iter().chain(later).chain(others) {
        std::fs::read(out.join(file))?.hash(&mut hasher);
    }
    let list = |files: &[String]| files.iter().map(|f| format!("\"{f}\"")).collect::<Vec<_>>().join(", ");
    let mut written = text;
    for (place, content) in [
        ("\"development\"", format!("\"memfit-{:016x}\"", hasher.finish())),
        ("FILES = []", format!("FILES = [\"./\", {}]", list(files))),
        ("LATER = []", format!("LATER = [{}]", list(later))),
    ] {
        ensure!(written.contains(place), "sw.js has no place for `{place}`");
        written = written.replace(place, &content);
    }
    std::fs::write(path, written)?;
    Ok(())
}
