//! JavaScript for a module, by the library behind the command `wasm-bindgen`, so that no tool of the right version has to be
//! found; and the module made smaller by binaryen, where that is there.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;
use wasm_bindgen_cli_support::Bindgen;

/// Writes `NAME.js` and `NAME_bg.wasm` into a folder, types beside them if asked for.
pub(crate) fn generate(module: &Path, out: &Path, name: &str, types: bool) -> Result<()> {
    let mut bindgen = Bindgen::new();
    bindgen.input_path(module).out_name(name).typescript(types).remove_name_section(true);
    bindgen.remove_producers_section(true).web(true)?;
    bindgen.generate(out).with_context(|| format!("bindings of {}", module.display()))?;
    shrink(&out.join(format!("{name}_bg.wasm")));
    Ok(())
}

/// Runs `wasm-opt` over a module. Without that program the module stays as it is, which is larger and works as well.
fn shrink(module: &Path) {
    let smaller = module.with_extension("smaller");
    let run = Command::new("wasm-opt")
        .args(["-Os", "--enable-bulk-memory", "--enable-nontrapping-float-to-int", "--enable-sign-ext"])
        .args(["--enable-mutable-globals", "--enable-reference-types", "--enable-multivalue"])
        .arg(module)
        .arg("-o")
        .arg(&smaller)
        .output();
    if run.is_ok_and(|run| run.status.success()) && std::fs::rename(&smaller, module).is_ok() {
        println!("wasm-opt has gone over {}", module.display());
    }
    let _ = std::fs::remove_file(&smaller);
}
