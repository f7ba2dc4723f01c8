//! The npm package: one set of bindings with an entry for browsers and bundlers and one for Node.

use crate::{bindings, root};
use anyhow::{Context, Result};
use std::path::Path;

/// What is written by hand, in `crates/wasm/npm`.
const FILES: [&str; 4] = ["index.js", "node.js", "index.d.ts", "README.md"];

/// Makes it.
pub(crate) fn make(module: &Path, out: &Path) -> Result<()> {
    let from = root().join("crates/wasm/npm");
    if out.exists() {
        std::fs::remove_dir_all(out).with_context(|| out.display().to_string())?;
    }
    std::fs::create_dir_all(out)?;
    bindings::generate(module, out, "memfit", true)?;
    for file in FILES {
        std::fs::copy(from.join(file), out.join(file)).with_context(|| file.to_owned())?;
    }
    let manifest = std::fs::read_to_string(from.join("package.json"))?;
    std::fs::write(out.join("package.json"), manifest.replace("0.0.0", env!("CARGO_PKG_VERSION")))?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        std::fs::copy(root().join(licence), out.join(licence))?;
    }
    println!("wrote {}", out.display());
    Ok(())
}
