//! JavaScript for a module, by the library behind the command `wasm-bindgen`, so that no tool of the right version has to be
//! found. Binaryen's `wasm-opt` is not run: it takes a tenth off the module, and nothing off what is downloaded compressed.

use anyhow::{Context, Result};
use std::path::Path;
use wasm_bindgen_cli_support::Bindgen;

/// Writes `NAME.js` and `NAME_bg.wasm` into a folder, types beside them if asked for.
pub(crate) fn generate(module: &Path, out: &Path, name: &str, types: bool) -> Result<()> {
    let mut bindgen = Bindgen::new();
    bindgen.input_path(module).out_name(name).typescript(types).remove_name_section(true);
    bindgen.remove_producers_section(true).web(true)?;
    bindgen.generate(out).with_context(|| format!("bindings of {}", module.display()))?;
    Ok(())
}
