//! Every model of the reference corpus has Keras' own counts, output shapes and variables. Skips where the corpus is absent.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use common::{differences, options};
use memfit_keras::import_from;
use serde_json::Value;
use std::fs::File;
use std::path::Path;

#[test]
fn counts_shapes_and_variables_are_those_of_keras() {
    let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus/keras"));
    let Ok(index) = std::fs::read(dir.join("index.json")) else {
        println!("skipped: there is no {}", dir.display());
        return;
    };
    let index: Value = serde_json::from_slice(&index).unwrap();
    let (mut files, mut problems) = (0, Vec::new());
    for truth in index["models"].as_array().unwrap() {
        for file in truth["files"].as_array().unwrap() {
            let name = file["file"].as_str().unwrap();
            files += 1;
            match import_from(File::open(dir.join(name)).unwrap(), &options(truth)) {
                Ok(model) => {
                    problems.extend(differences(&model, truth).iter().map(|d| format!("{name}: {d}")))
                }
                Err(found) => problems.extend(found.iter().map(|p| format!("{name}: {p}"))),
            }
        }
    }
    println!("{files} files, {} differences", problems.len());
    assert!(
        problems.is_empty(),
        "{} differences:\n{}",
        problems.len(),
        problems[..problems.len().min(60)].join("\n")
    );
}
