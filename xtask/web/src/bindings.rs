//! JavaScript for a module, by the library behind the command `wasm-bindgen`, so that no tool of the right version has to be
//! found. Binaryen's `wasm-opt` is not run: it takes a tenth off the module, and nothing off what is downloaded compressed. The names by
//! which module and JavaScript know each other end in a hash each, which nothing compresses: they are numbered instead.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use wasm_bindgen_cli_support::Bindgen;

/// Writes `NAME.js` and `NAME_bg.wasm` into a folder, types beside them if asked for.
pub(crate) fn generate(module: &Path, out: &Path, name: &str, types: bool) -> Result<()> {
    let mut bindgen = Bindgen::new();
    bindgen.input_path(module).out_name(name).typescript(types).remove_name_section(true);
    bindgen.remove_producers_section(true).web(true)?;
    let mut output =
        bindgen.generate_output().with_context(|| format!("bindings of {}", module.display()))?;
    let mut names = Vec::new();
    for import in output.wasm_mut().imports.iter_mut().filter(|i| i.module.ends_with("_bg.js")) {
        let number = format!("i{}", names.len());
        names.push((std::mem::replace(&mut import.name, number.clone()), number));
    }
    output.emit(out)?;
    let path = out.join(name).with_extension("js");
    let mut script = std::fs::read_to_string(&path)?;
    for (long, number) in names {
        let key = format!(" {long}: ");
        ensure!(script.matches(&key).count() == 1, "{} does not define {long} once", path.display());
        script = script.replace(&key, &format!(" {number}: "));
    }
    std::fs::write(&path, script)?;
    Ok(())
}
