//! Module paths of nodes against the module names that PyTorch itself gives what it saves.
//!
//! `MODEL=bert cargo test -p memfit-onnx --test scopes -- --nocapture` prints what files of that name lack.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use serde_json::Value as Json;
use std::collections::BTreeSet;

#[test]
fn scopes_are_the_frameworks_module_paths() {
    let wanted = std::env::var("MODEL").ok();
    let (mut found, mut all) = (0, 0);
    for path in common::files("corpus/onnx", ".onnx") {
        let name = path.file_name().unwrap().to_str().unwrap();
        let (model, variant) = name.split_once('.').unwrap();
        // Training exports without optimisation keep every module.
        let complete = variant.starts_with("ts_train") || variant.starts_with("dyn_train_noopt");
        let chosen = wanted.as_ref().map_or(complete, |w| name.contains(w));
        let truth = path.with_file_name(format!("../../truth/pytorch/{model}.json"));
        let (true, Ok(truth)) = (chosen, std::fs::read_to_string(truth)) else { continue };
        let truth: Json = serde_json::from_str(&truth).unwrap();
        let modules = &truth["cases"][0]["saved_for_backward"]["by_module"];
        let graph = memfit_onnx::import_from(std::fs::File::open(&path).unwrap()).unwrap().graph;
        let scopes: BTreeSet<&str> = graph.nodes.iter().map(|n| &*n.scope).collect();
        for module in modules.as_object().unwrap().keys().filter(|m| !m.starts_with('(')) {
            all += 1;
            if scopes.contains(module.as_str()) {
                found += 1;
            } else if wanted.is_some() {
                println!("{name}: no node is in {module}");
            }
        }
    }
    println!("{found} of {all} modules have a node");
    // What is left: two models that were exported inside of a wrapper, and losses that were not exported.
    assert!(found * 100 >= all * 97);
}
