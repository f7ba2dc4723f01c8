//! The same files give the same bytes in wasm as in a native build.
//!
//! A pure-Rust interpreter runs the module that `crates/wasm/parity` makes, over the models of this repository and, where
//! a larger collection lies beside it, a sample of that.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::time::Instant;
use wasmi::{Engine, Linker, Module, Store};

/// Every so many files of the larger collection are compared.
const SAMPLE: usize = 12;

/// The questions asked about every file.
const PLANS: [&str; 2] = [
    r#"{"batch_size": 3}"#,
    r#"{"batch_size": 2, "precision": "mixed-bf16", "optimizer": "sgd", "optimizer_impl": "loop"}"#,
];

/// Compares; whether all answers are equal.
pub(crate) fn run() -> Result<bool> {
    let root = crate::root();
    let path = root.join("target/wasm32-unknown-unknown/quick/memfit_parity.wasm");
    let bytes = std::fs::read(&path).with_context(|| format!("{} is not built", path.display()))?;
    let engine = Engine::default();
    let module = Module::new(&engine, &bytes)?;
    ensure!(module.imports().len() == 0, "the core imports something from its host");

    let in_both = |folders: [&str; 2]| folders.map(|folder| models(&root.join(folder))).concat();
    let own = in_both(["models", "models/keras"]);
    let shared = in_both(["../shared/corpus/onnx", "../shared/corpus/keras"]);
    let sample: Vec<PathBuf> = shared.into_iter().step_by(SAMPLE).collect();
    if own.is_empty() && sample.is_empty() {
        bail!("there is no model to compare");
    }
    println!("{} models of this repository, {} of a larger collection", own.len(), sample.len());
    let begin = Instant::now();
    let (mut answers, mut different) = (0, 0);
    for path in own.iter().chain(&sample) {
        let model = std::fs::read(path)?;
        for plan in PLANS {
            for (question, native) in
                [(0, memfit_wasm::estimate_json(&model, plan)), (1, memfit_wasm::inspect_json(&model, plan))]
            {
                answers += 1;
                let wasm = ask(&engine, &module, question, &model, plan.as_bytes())
                    .with_context(|| format!("{}: the module stopped", path.display()))?;
                if wasm != native {
                    different += 1;
                    println!("{} {plan}: {}", path.display(), difference(&native, &wasm));
                }
            }
        }
    }
    println!("{answers} answers, {different} different, {:.1} s", begin.elapsed().as_secs_f64());
    Ok(different == 0)
}

/// The models of a folder, in the order of their names.
fn models(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|e| e.path()).collect();
    let is_model = |e: &std::ffi::OsStr| ["onnx", "keras", "h5", "json"].iter().any(|known| e == *known);
    // An index or a table of layers beside the models is no model.
    let is_list = |path: &Path| path.file_stem().is_some_and(|s| s == "index" || s == "layers");
    paths.retain(|path| path.extension().is_some_and(is_model) && !is_list(path));
    paths.sort();
    paths
}

/// What the module answers, in an instance of its own.
fn ask(
    engine: &Engine,
    module: &Module,
    question: u32,
    model: &[u8],
    plan: &[u8],
) -> Result<Result<String, String>> {
    let mut store = Store::new(engine, ());
    let instance = Linker::<()>::new(engine).instantiate_and_start(&mut store, module)?;
    let memory = instance.get_memory(&store, "memory").context("the module has no memory")?;
    let allocate = instance.get_typed_func::<u32, u32>(&store, "allocate")?;
    let answer = instance.get_typed_func::<(u32, u32, u32, u32, u32), u64>(&store, "answer")?;
    let mut place = |bytes: &[u8]| -> Result<(u32, u32)> {
        let length = u32::try_from(bytes.len())?;
        let at = allocate.call(&mut store, length)?;
        memory.write(&mut store, at as usize, bytes)?;
        Ok((at, length))
    };
    let (model, plan) = (place(model)?, place(plan)?);
    let found = answer.call(&mut store, (question, model.0, model.1, plan.0, plan.1))?;
    let mut bytes = vec![0; (found & u64::from(u32::MAX)) as usize];
    memory.read(&store, (found >> 32) as usize, &mut bytes)?;
    let text = String::from_utf8(bytes.split_off(1))?;
    Ok(if bytes[0] == 0 { Ok(text) } else { Err(text) })
}

/// Where two answers part.
fn difference(native: &Result<String, String>, wasm: &Result<String, String>) -> String {
    let text = |answer: &Result<String, String>| match answer {
        Ok(text) => text.clone(),
        Err(text) => format!("error: {text}"),
    };
    let (native, wasm) = (text(native), text(wasm));
    let lines = native.lines().zip(wasm.lines()).zip(1..).find(|((a, b), _)| a != b);
    match lines {
        Some(((a, b), number)) => format!("line {number} is `{a}` natively and `{b}` in wasm"),
        None => format!("{} bytes natively and {} in wasm", native.len(), wasm.len()),
    }
}
