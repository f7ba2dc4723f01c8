//! Every model of the reference corpus has Keras' own counts, output shapes and variables. Skips where the corpus is absent.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use common::{differences, options};
use memfit_keras::import_from;
use serde_json::Value;
use std::fs::File;
use std::path::Path;

/// How many files were compared, and every difference.
fn compare(dir: &Path) -> Option<(usize, Vec<String>)> {
    let index: Value = serde_json::from_slice(&std::fs::read(dir.join("index.json")).ok()?).unwrap();
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
    Some((files, problems))
}

fn check(dir: &str, least: usize) {
    let Some((files, problems)) = compare(Path::new(dir)) else {
        println!("skipped: there is no {dir}");
        return;
    };
    let shown = &problems[..problems.len().min(60)];
    assert!(files >= least && problems.is_empty(), "{} differences:\n{}", problems.len(), shown.join("\n"));
}

#[test]
fn the_models_here_are_what_keras_says() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/keras");
    assert!(Path::new(dir).exists());
    check(dir, 12);
}

#[test]
fn the_corpus_is_what_keras_says() {
    check(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus/keras"), 86);
}
